"""`python -m tests.conformance [pytest words]`: transformers' own model tests, run on our classes.

The tests come from the source distribution of the installed transformers version, fetched into `.cache/conformance`
(they are not part of its wheel). Nothing of it is committed.
"""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import transformers


CACHE = Path(__file__).parents[2] / ".cache" / "conformance"
SUITE = CACHE / f"transformers-{transformers.__version__}" / "transformers_suite"

# Modules that the suite imports but its source distribution leaves out, with just what it imports from them.
STAND_INS = {
    "exporters/test_export.py": "class ExportTesterMixin: pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin: pass\n",
    "utils/test_configuration_utils.py": "config_common_kwargs = {'dtype': 'float16', 'return_dict': False, "
    "'output_hidden_states': True, 'output_attentions': True, 'chunk_size_feed_forward': 5, "
    "'architectures': ['TinyBertModel'], 'problem_type': 'regression', 'id2label': {0: 'label'}, "
    "'label2id': {'label': 0}, 'is_encoder_decoder': False}\n",
}


def pip(*words: str):
    subprocess.run([sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"], check=True)


def fetch_suite() -> Path:
    """The folder to put on the path for `import transformers_suite`; made on the first call, by the network."""
    if not SUITE.exists():
        scratch = CACHE / "download"
        version = f"transformers=={transformers.__version__}"
        pip("download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(scratch), version)
        pip("install", "--target", str(SUITE.parent), "parameterized")
        (archive,) = scratch.glob("transformers-*.tar.gz")
        unpack(archive, SUITE.with_suffix(".partial"))
        SUITE.with_suffix(".partial").rename(SUITE)
    return SUITE.parent


def unpack(archive: Path, folder: Path):
    """The `tests/test_*.py` of a source distribution as one package, stand-ins included."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            if re.fullmatch(r"[^/]+/tests/\w+\.py", member.name):
                (folder / Path(member.name).name).write_bytes(tar.extractfile(member).read())
    for name, text in STAND_INS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for package in {folder, *(folder / Path(name).parent for name in STAND_INS)}:
        (package / "__init__.py").touch()


def main(words: list[str]) -> int:
    sys.path.insert(0, str(fetch_suite()))
    suite = Path(__file__).with_name("suite.py")
    # the suite has markers of its own, so addopts goes without --strict-markers
    return pytest.main([str(suite), "-o", "addopts=-q", "-p", "no:cacheprovider", *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
