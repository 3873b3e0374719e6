"""What pip installs: built as it is released, and used where nothing but torch and transformers is."""

import datetime
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import torch
import yaml

from hf_tinybert import TinyBertForMaskedLM, __version__


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MADE_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg", *(f"hf_tinybert.egg-info/{name}" for name in (
    "PKG-INFO", "SOURCES.txt", "dependency_links.txt", "requires.txt", "top_level.txt",
))}  # fmt: skip


def files_of_the_clone():
    """The files that git tracks, or would."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git clone")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """The sdist, and the wheel that was built from it, of a copy of the clone."""
    pytest.importorskip("build", reason="the package build is not installed")
    pytest.importorskip("setuptools", reason="setuptools is not installed")
    pytest.importorskip("pip", reason="pip is not installed")
    folder = tmp_path_factory.mktemp("packaging")
    for name in files_of_the_clone():
        (folder / "clone" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "clone" / name)
    (folder / "clone" / "training" / "__pycache__").mkdir()
    (folder / "clone" / "training" / "__pycache__" / "stray.cpython-311.pyc").write_bytes(b"")
    (folder / "clone" / "runs").mkdir()
    (folder / "clone" / "runs" / "stray.txt").write_text("", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder / "clone")],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=folder,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert "Warning" not in result.stdout + result.stderr
    sdist, wheel = sorted((folder / "dist").iterdir(), key=lambda path: path.suffix)
    assert (sdist.name, wheel.name) == (
        f"hf_tinybert-{__version__}.tar.gz",
        f"hf_tinybert-{__version__}-py3-none-any.whl",
    )
    return sdist, wheel


def test_the_sdist_is_the_clone(archives):
    with tarfile.open(archives[0]) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert names - MADE_BY_SETUPTOOLS == set(files_of_the_clone())


def test_the_wheel_is_the_plugin_its_types_and_its_licence(archives):
    with zipfile.ZipFile(archives[1]) as archive:
        names = set(archive.namelist())
        told = archive.read(f"hf_tinybert-{__version__}.dist-info/METADATA").decode()
    of_the_package = {f"hf_tinybert/{path.name}" for path in (ROOT / "hf_tinybert").iterdir() if path.is_file()}
    info = {f"hf_tinybert-{__version__}.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "top_level.txt")}
    assert names == of_the_package | info | {f"hf_tinybert-{__version__}.dist-info/licenses/LICENSE"}
    assert "hf_tinybert/py.typed" in names
    for line in (
        f"Version: {__version__}",
        "License-Expression: Apache-2.0",
        "Description-Content-Type: text/markdown",
        *(f"Provides-Extra: {extra}" for extra in ("training", "demo", "onnx", "dev")),
    ):
        assert f"\n{line}\n" in told
    needed = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", told, flags=re.M)
    assert needed == ["torch", "transformers"]


def distributions_behind(names):
    """What is installed of `names` and of all that they need, without extras."""
    from packaging.requirements import Requirement

    found, todo = {}, list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        for text in found[name].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return found


PROGRAM = """
import importlib.util
import sys

from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline

for name in ("accelerate", "datasets", "sklearn", "scipy", "pandas", "matplotlib", "training", "pytest"):
    assert importlib.util.find_spec(name) is None, name

import torch

import hf_tinybert

assert hf_tinybert.__file__.startswith(sys.argv[2]), hf_tinybert.__file__
model = AutoModelForMaskedLM.from_pretrained(sys.argv[1]).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
with torch.no_grad():
    logits = model(**tokenizer("我爱北京", return_tensors="pt")).logits
assert type(AutoModel.from_pretrained(sys.argv[1])) is hf_tinybert.TinyBertModel
answers = pipeline("fill-mask", model=sys.argv[1])("我爱[MASK]京")
print(hf_tinybert.__version__, len(answers), f"{logits.double().sum().item():.6f}")
"""


def test_the_wheel_loads_a_folder_where_only_torch_and_transformers_are(
    archives, tmp_path, tiny_model, tiny_tokenizer
):
    model = tiny_model(TinyBertForMaskedLM)
    model.save_pretrained(tmp_path / "model")
    tiny_tokenizer.save_pretrained(tmp_path / "model")
    with torch.no_grad():
        expected = model(**tiny_tokenizer("我爱北京", return_tensors="pt")).logits.double().sum().item()
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    assert site.is_dir()
    # Instead of a download of several hundred MB: links to what pip would bring along, and to nothing else.
    try:
        for distribution in distributions_behind(["torch", "transformers"]).values():
            for top in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    os.symlink(distribution.locate_file(top), site / top)
    except OSError as error:
        pytest.skip(f"no links here: {error}")
    python = next(path for path in environment.glob("*/python*") if path.stem == "python")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(archives[1])], check=True)
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")

    result = subprocess.run(
        [python, "-I", "-X", "utf8", str(tmp_path / "program.py"), str(tmp_path / "model"), str(site)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )

    assert result.returncode == 0, result.stderr[-3000:]
    version, answers, total = result.stdout.split()
    assert (version, answers) == (__version__, "5")
    assert float(total) == pytest.approx(expected, abs=1e-3)


def test_the_version_is_told_once_and_the_citation_and_changelog_follow():
    assert "version" in PROJECT["project"]["dynamic"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert (
        citation["cff-version"] == "1.2.0" and citation["message"] and citation["title"] == PROJECT["project"]["name"]
    )
    assert citation["authors"] == [{"name": "The hf-tinybert developers"}]
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["abstract"] == PROJECT["project"]["description"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)", changelog, flags=re.M)
    assert headings[0] == "[Unreleased]"
    for heading in headings[1:]:
        version, date = re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\S+)", heading).groups()
        assert datetime.date.fromisoformat(date) and version
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert {*re.findall(r"^### (.*)", changelog, flags=re.M)} <= kinds
    if len(headings) > 1:
        assert headings[1].startswith(f"[{__version__}]")
    else:
        assert f"{__version__} will be the first release" in changelog


def make_targets():
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))


def test_the_workflow_calls_targets_that_exist_by_actions_of_a_known_version():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert {"push", "pull_request"} <= workflow[True].keys()  # YAML 1.1 reads `on` as true
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all(re.fullmatch(r"[\w./-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    called = [re.match(r"make ([a-z-]+)", step["run"])[1] for step in steps if "run" in step]
    assert {"lint", "test"} <= {*called} <= make_targets()
    of_ci = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), flags=re.M)
    assert {*of_ci} <= {*called}


def test_a_contributor_is_told_three_commands_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```bash\n(.*?)```", text, flags=re.S)
    commands = block.splitlines()
    assert len(commands) == 3 and {line.removeprefix("make ") for line in commands} <= make_targets()
    for path in re.findall(r"`([\w.]*/[\w./]*)`", text):
        assert (ROOT / path).exists() or path == ".venv", path
