"""What a user installs: the plugin alone, unless asked for more."""

import re
import tomllib
from pathlib import Path


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def names(requirements):
    return {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}


def test_the_wheel_holds_the_plugin_and_needs_torch_and_transformers_only():
    assert PROJECT["tool"]["setuptools"]["packages"] == ["hf_tinybert"]
    assert [path for path in (ROOT / "hf_tinybert").iterdir() if path.is_dir() and path.name != "__pycache__"] == []
    assert names(PROJECT["project"]["dependencies"]) == {"torch", "transformers"}


def test_the_extras_are_there():
    extras = PROJECT["project"]["optional-dependencies"]
    assert {"training", "demo", "onnx", "dev"} <= extras.keys()
    assert {"onnx", "onnxruntime", "onnxscript"} <= names(extras["onnx"])


def test_the_makefile_installs_extras_that_exist_and_pins_what_they_name():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    installed = set(re.findall(r"\$\(VENV\)/\.(demo|dev|training|onnx)\b", makefile))
    assert installed == {"demo", "dev"}
    extras = PROJECT["project"]["optional-dependencies"]
    pinned = {
        re.sub(r"[-_.]+", "-", name).lower()
        for name in re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.M)
    }
    wanted = names([*(name for extra in extras.values() for name in extra), "transformers"]) - {"hf-tinybert"}
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in wanted} <= pinned
