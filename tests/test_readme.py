"""The READMEs are run: every Python snippet as it stands, every command with its budget cut short."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.reference_model import make_reference_model
from tests.training.conftest import make_sentences
from training.__main__ import main
from training.stranger import Check


ROOT = Path(__file__).parents[1]
READMES = ("README.md", "README_zh.md")
MAKE_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))


def blocks(language: str) -> list:
    found = []
    for name in READMES:
        text = (ROOT / name).read_text(encoding="utf-8")
        for number, block in enumerate(re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)):
            found.append(pytest.param(block, id=f"{name}-{number}"))
    return found


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder in which the READMEs' files lie: texts, tables, and what `make demo` leaves behind, only smaller."""
    folder = tmp_path_factory.mktemp("readme")
    sentences = make_sentences(300)
    (folder / "reviews.txt").write_text("\n".join(sentences), encoding="utf-8")
    rows = [f"{text}\t{'差' if '讨厌' in text else '好'}" for text in sentences]
    for name, part in (("train.tsv", rows[:200]), ("dev.tsv", rows[200:])):
        (folder / name).write_text("\n".join(["text\tlabel", *part]), encoding="utf-8")
    places = [("张三", place) for place in ("北京", "上海", "广州", "南京", "天津", "西安")]
    tagged = [
        "text\ttags",
        *(f"{' '.join(a + '在' + b)} {n}\tB-PER I-PER O B-LOC I-LOC O" for a, b in places for n in range(9)),
    ]
    (folder / "entities.tsv").write_text("\n".join(tagged), encoding="utf-8")
    questions = []
    for name in ("张三", "李四", "王五", "赵六"):
        for place in ("北京", "上海", "广州"):
            answers = [{"text": place, "answer_start": 4}]
            asked = {"id": name + place, "question": f"{name}住在哪里？", "answers": answers}
            questions.append({"context": f"{name}住在{place}。", "qas": [asked]})
    (folder / "questions.json").write_text(json.dumps({"data": [{"paragraphs": questions}]}), encoding="utf-8")
    demo = f"{folder}/runs/demo"
    text = ["--train_files", f"{folder}/reviews.txt"]
    assert main(["tokenizer", *text, "--output_dir", f"{demo}/tokenizer"]) == 0
    encoder = ["--tokenizer", f"{demo}/tokenizer", "--size", "tiny", "--max_steps", "2"]
    assert main(["pretrain", *text, *encoder, "--output_dir", f"{demo}/encoder"]) == 0
    table = ["--train_file", f"{folder}/train.tsv", "--epochs", "1", "--output_dir", f"{demo}/sentiment"]
    assert main(["finetune", "--model", f"{demo}/encoder", *table]) == 0
    assert main(["export", "--model", f"{demo}/sentiment"]) == 0
    import torch
    from transformers import AutoTokenizer

    vocab_size = len(AutoTokenizer.from_pretrained(f"{demo}/tokenizer"))
    torch.save(make_reference_model(vocab_size=vocab_size).state_dict(), folder / "model.pt")
    return folder


@pytest.mark.parametrize("snippet", blocks("python"))
def test_python_snippets_run_as_they_stand(snippet, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    exec(compile(snippet, "README", "exec"), {"__name__": "readme"})


@pytest.mark.parametrize("block", blocks("bash"))
def test_commands_run(block, workplace, monkeypatch):
    monkeypatch.chdir(workplace)
    monkeypatch.setattr("training.pretrain.SAVING_SECONDS", 2.0)
    # The checks themselves are those of test_validate; here they would start a process a command.
    monkeypatch.setattr("training.validate.check_folder", lambda folder: [Check("all", True, "looked at elsewhere")])
    for line in block.splitlines():
        words = shlex.split(line)
        if words[0] == "make":
            assert words[1] in MAKE_TARGETS
            continue
        assert words[:3] == ["python", "-m", "training"], line
        argv = ["12s" if word.endswith("m") and word[:-1].isdigit() else word for word in words[3:]]
        if "--output_dir" in argv:
            shutil.rmtree(argv[argv.index("--output_dir") + 1], ignore_errors=True)
        assert main(argv) == 0, line


@pytest.mark.parametrize("name", READMES)
def test_files_that_a_readme_names_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    linked = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    inline = re.findall(r"`((?:hf_tinybert|training|tests|model_cards)/[\w./-]*)`", text)
    assert linked and inline
    assert "<!--" not in text  # a placeholder
    for path in [*linked, *inline]:
        assert (ROOT / path).exists(), path


def test_both_readmes_show_the_same_commands_and_code():
    assert [p.values for p in blocks("bash") if p.id.startswith("README.md")] == [
        p.values for p in blocks("bash") if p.id.startswith("README_zh.md")
    ]
    code = {
        name: [re.sub(r"#.*", "", p.values[0]) for p in blocks("python") if p.id.startswith(f"{name}-")]
        for name in READMES
    }
    assert code["README.md"] == code["README_zh.md"]
