import json
from collections import Counter

import numpy as np
import pytest

from training import planning, pretrain
from training.__main__ import main
from training.tokenizer import PIECE_FACTOR, often_enough, train_tokenizer


# Characters of Chinese in so many bytes of UTF-8, and tokens, of 1.64 characters each as reviews have.
CHARACTERS = {"100 kB": 33_000, "1 MB": 333_000, "10 MB": 3_330_000, "1 GB": 333_000_000}
TOKENS = {size: round(characters / 1.64) for size, characters in CHARACTERS.items()}


def test_the_learning_rate_is_the_measured_one_and_falls_beyond_the_measured_width():
    rates = {size: planning.learning_rate(shape.get("hidden_size", 64)) for size, shape in pretrain.SIZES.items()}
    assert rates == {"reference": 2e-3, "tiny": 2e-3, "mini": 2e-3, "small": 1e-3, "medium": 1e-3}


def test_little_text_is_warned_of_in_one_line_and_enough_is_not():
    warned = {size: planning.warn_of_little_text(tokens) for size, tokens in TOKENS.items()}
    assert warned["100 kB"].startswith("warning: 20,") and "\n" not in warned["100 kB"]
    assert warned["10 MB"] is warned["1 GB"] is None


def test_how_often_a_token_must_be_seen_grows_with_the_text():
    assert [often_enough(characters) for characters in CHARACTERS.values()] == [2, 2, 3, 168]


def zipfian(characters: int) -> list[str]:
    """Text whose characters are as unevenly frequent as those of Chinese, in documents of 100."""
    random = np.random.default_rng(0)
    shares = 1 / (np.arange(4_000) + 2.7)
    ids = random.choice(4_000, size=(characters // 100, 100), p=shares / shares.sum())
    return ["".join(chr(0x4E00 + each) for each in row) for row in ids]


@pytest.mark.parametrize("size", ["100 kB", "1 MB", pytest.param("10 MB", marks=pytest.mark.slow)])
def test_the_vocabulary_holds_what_is_seen_often_enough(size):
    texts = zipfian(CHARACTERS[size])
    tokens = train_tokenizer(texts, chinese_tokens="words").get_vocab()
    whole = "\n".join(texts)
    often = often_enough(CHARACTERS[size])
    chinese = [token for token in tokens if ord(token[0]) >= 0x4E00]
    counts = Counter(whole.replace("\n", ""))
    assert {token for token in chinese if len(token) == 1} == {char for char in counts if counts[char] >= often}
    pieces = [token for token in chinese if len(set(token)) > 1]
    assert 0 < len(pieces) < 20_000
    assert min(whole.count(piece) for piece in pieces[:300]) >= PIECE_FACTOR * often


def test_a_run_on_little_text_says_so_once_and_tells_the_rate_it_chose(tmp_path, sentences, capsys):
    (tmp_path / "reviews.txt").write_text("\n".join(sentences), encoding="utf-8")
    run = ["pretrain", "--train_files", str(tmp_path / "reviews.txt"), "--size", "reference", "--max_steps", "1"]
    assert main([*run, "--output_dir", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.count("are little text") == 1
    results = json.loads((tmp_path / "run" / "eval_results.json").read_text(encoding="utf-8"))
    assert results["settings"]["learning_rate"] == 2e-3
    # A model that is continued has learnt from other text.
    assert (
        main(
            [
                "pretrain",
                *run[1:3],
                "--max_steps",
                "1",
                "--model",
                str(tmp_path / "run"),
                "--output_dir",
                str(tmp_path / "more"),
            ]
        )
        == 0
    )
    assert "little text" not in capsys.readouterr().out
