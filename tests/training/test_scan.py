import json
import os
from pathlib import Path

import pytest

import training
from training.scan import find_private


TOKEN = "hf_" + "aB3" * 10  # of the shape of a token


def found(folder):
    return [(finding.file, finding.line, finding.what) for finding in find_private(folder)]


@pytest.mark.parametrize(
    "text",
    [
        "/home/anna/data.txt",
        "file:///home/anna/x",
        '{"path": "/Users/anna"}',
        "at /root/model",
        "/root",
        "C:\\Users\\Anna\\x",
        '"C:\\\\Users\\\\Anna"',
        "/home/张三/数据",
        "model=/tmp/run",
        "/data/reviews.txt",
        'File "/some/where/modeling.py", line 3, in forward',
        f"trained in {Path(training.__file__).parents[1]}",
        f"{Path.home() / 'x'}",
    ],
)
def test_paths_of_a_machine_are_found(tmp_path, text):
    (tmp_path / "config.json").write_text(f"first line\n{text}\n", encoding="utf-8")
    assert found(tmp_path) == [("config.json", 2, "absolute path")]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (TOKEN, "Hugging Face token"),
        (f"token={TOKEN}.", "Hugging Face token"),
        ("ghp_" + "a1B2" * 9, "GitHub token"),
        ("sk-" + "proj-" + "a1B2" * 6, "API key"),
        ("AKIA" + "ABCDEFGHIJKLMNOP", "AWS key"),
        ("-----BEGIN " + "OPENSSH PRIVATE KEY-----", "private key"),
    ],
)
def test_secrets_are_found_and_not_repeated(tmp_path, text, what):
    (tmp_path / "README.md").write_text(f"# A model\n{text}", encoding="utf-8")
    (finding,) = find_private(tmp_path)
    assert (finding.file, finding.line, finding.what) == ("README.md", 2, what)
    assert text not in str(finding) and len(finding.excerpt) <= 11


@pytest.mark.parametrize(
    "text",
    [
        "https://example.com/home/page and https://example.com/root/x",
        "/homework/x, /rooted, a/data/b, ../data/b, and/or",
        "hf_tinybert, hf_tinybert.modeling_tinybert, hf_short",
        "from .configuration_tinybert import TinyBertConfig",
        "risk-taking-is-a-word-with-many-hyphens-in-it",
        "dev.tsv, 新/旧, ##home",
    ],
)
def test_harmless_text_is_left_alone(tmp_path, text):
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    assert found(tmp_path) == []


def test_the_place_of_the_folder_itself_is_private_wherever_it_lies(tmp_path):
    folder = tmp_path / "结果 of 'me'" / "model"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"_name_or_path": str(folder)}), encoding="utf-8")
    (folder / "onnx" / "model.onnx").write_bytes(b"\x00\xff" + os.fsencode(folder / "x.py") + b"\x00")
    (folder / ".hidden").write_text(f"{folder.parent}2", encoding="utf-8")  # another folder, which begins alike
    places = [place[:2] for place in found(folder) if place[0] != ".hidden"]
    assert {file for file, _ in places} == {"config.json", "onnx/model.onnx"}


def test_no_folder_is_not_a_clean_folder(tmp_path):
    with pytest.raises(NotADirectoryError):
        find_private(tmp_path / "none")


def test_of_safetensors_the_header_is_read_and_the_numbers_are_not(tmp_path):
    for name, header, numbers in (("a", b'{"x": "/home/anna"}', b""), ("b", b"{}", b" /home/anna ")):
        content = len(header).to_bytes(8, "little") + header + numbers
        (tmp_path / f"{name}.safetensors").write_bytes(content)
    assert found(tmp_path) == [("a.safetensors", 1, "absolute path")]
