"""docs/by_hand.md, followed to the letter: from a hand-written model to one that AutoModel loads."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import torch

from tests.training.conftest import make_sentences
from training.__main__ import main


ROOT = Path(__file__).parents[1]
STORY = (ROOT / "docs" / "by_hand.md").read_text(encoding="utf-8")


def follow(argv, monkeypatch):
    """Carry out a command line of the story."""
    if argv[:3] == ["python", "-m", "training"]:
        assert main(argv[3:]) == 0, argv
    else:
        assert argv[0] == "python" and argv[1] == "docs/bert_by_hand.py"
        monkeypatch.setattr("sys.argv", [*argv[1:], "40"])  # steps
        runpy.run_path(str(ROOT / argv[1]), run_name="__main__")


def test_the_story_holds_from_the_first_command_to_the_last(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sentences = make_sentences(200)
    Path("reviews.txt").write_text("\n".join(sentences), encoding="utf-8")
    rows = [f"{text}\t{'差' if '讨厌' in text else '好'}" for text in sentences]
    for name, part in (("train.tsv", rows[:150]), ("dev.tsv", rows[150:])):
        Path(name).write_text("\n".join(["text\tlabel", *part]), encoding="utf-8")
    blocks = re.findall(r"```(bash|python)\n(.*?)```", STORY, flags=re.S)
    assert [language for language, _ in blocks] == ["bash", "bash", "python", "bash"]
    for language, block in blocks:
        if language == "python":
            names: dict = {"__name__": "story"}
            capsys.readouterr()
            exec(compile(block, "by_hand.md", "exec"), names)
            difference = (names["logits"] - names["expected"])[names["seen"]].abs().max()
            assert 0 <= difference < 1e-4 and "tensor(" in capsys.readouterr().out
            assert names["expected"].std() > 0.1  # the weights are trained ones, not zeros
        else:
            for line in block.splitlines():
                argv = shlex.split(line)
                follow([*argv, "--epochs", "1"] if argv[3] == "finetune" else argv, monkeypatch)
    assert Path("runs/by-hand-labels/model.safetensors").is_file()


def test_the_hand_written_model_learns_and_says_so(tmp_path, monkeypatch, capsys, tokenizer_dir):
    monkeypatch.setattr("random.seed", lambda _: None)
    by_hand = runpy.run_path(str(ROOT / "docs" / "bert_by_hand.py"))
    (tmp_path / "text.txt").write_text("我爱北京。\n你喜欢天气。\n他不喜欢北京。\n", encoding="utf-8")
    by_hand["main"](tmp_path / "text.txt", tokenizer_dir, tmp_path / "model.pt", steps=60)
    losses = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(losses) == 10 and sum(losses[-3:]) < 0.8 * sum(losses[:3])
    assert torch.load(tmp_path / "model.pt", weights_only=True).keys() == by_hand["Bert"]().state_dict().keys()


def test_the_names_in_the_table_are_those_of_the_model():
    told = [name for cell in re.findall(r"^\| (`.*?) \|", STORY, flags=re.M) for name in re.findall(r"`(.*?)`", cell)]
    patterns = [re.escape(name).replace("N", r"\d+").replace(r"\*", ".*") for name in told]
    keys = runpy.run_path(str(ROOT / "docs" / "bert_by_hand.py"))["Bert"]().state_dict().keys()
    for key in keys:
        assert any(re.fullmatch(pattern, key) for pattern in patterns), key
    for pattern in patterns:
        assert any(re.fullmatch(pattern, key) for key in keys), pattern


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)#]+)\)", STORY))
def test_linked_files_exist(link):
    assert (ROOT / "docs" / link).is_file()
