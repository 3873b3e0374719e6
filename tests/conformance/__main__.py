"""`python -m tests.conformance [pytest words]`: transformers' own model tests, run on our classes.

The tests come from the source distribution of the installed transformers version, fetched into `.cache/conformance`
(they are not part of its wheel). Nothing of it is committed.
"""

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import transformers

from tests.conformance.skips import why


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
    if subprocess.run([sys.executable, "-m", "pip", *words, "--quiet", "--disable-pip-version-check"]).returncode:
        sys.exit(f"cannot fetch transformers' own tests: pip {' '.join(words)} failed")


def fetch_suite() -> Path:
    """The folder to put on the path for `import transformers_suite`; made on the first call, by the network.

    Raises:
        SystemExit: If pip cannot fetch it; pip has said why.
    """
    if not SUITE.exists():
        scratch = CACHE / "download"
        version = transformers.__version__
        pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(scratch), f"transformers=={version}")
        pip("install", "--upgrade", "--no-deps", "--target", str(SUITE.parent), "parameterized")
        shutil.rmtree(SUITE.with_suffix(".partial"), ignore_errors=True)
        unpack(scratch / f"transformers-{version}.tar.gz", SUITE.with_suffix(".partial"))
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


class Count:
    """A pytest plugin that counts how tests ended, and notes each reason for a skip that nobody has judged."""

    def __init__(self):
        self.outcomes = dict.fromkeys(("passed", "failed", "skipped", "deselected"), 0)
        self.unknown: dict[str, str] = {}  # reason -> a test skipped for it

    def pytest_deselected(self, items):
        self.outcomes["deselected"] += len(items)

    def pytest_runtest_logreport(self, report):
        # Of setups, teardowns and the parts of a test only those that did not pass count beside the test.
        if not report.passed or (report.when == "call" and not isinstance(report, pytest.SubtestReport)):
            self.outcomes[report.outcome] += 1
        if report.skipped:
            _, _, reason = report.longrepr
            reason = reason.removeprefix("Skipped: ")
            if why(reason) is None:
                self.unknown[reason] = report.nodeid


def main(words: list[str]) -> int:
    """Run the suite; 0 if nothing failed and every skip has a reason that `skips.py` knows."""
    sys.path.insert(0, str(fetch_suite()))
    suite = Path(__file__).with_name("suite.py")
    count = Count()
    # the suite has markers of its own, so addopts goes without --strict-markers
    status = pytest.main([str(suite), "-o", "addopts=-q", "-p", "no:cacheprovider", *words], plugins=[count])
    for reason, test in count.unknown.items():
        print(f"skipped for a reason that tests/conformance/skips.py does not know: {reason} ({test})")
    counts = ", ".join(f"{number} {outcome}" for outcome, number in count.outcomes.items())
    print(f"transformers {transformers.__version__}: {counts}")
    return int(status or bool(count.unknown))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
