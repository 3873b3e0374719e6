import json
import os
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, pipeline

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM, TinyBertModel, TinyBertTokenizer
from tests.training.conftest import make_sentences
from training.__main__ import main
from training.errors import UserError
from training.tokenizer import SPECIAL_TOKENS, load_masking_tokenizer, train_tokenizer, unknown_share


def mixed_lines(number: int) -> list[str]:
    """Lines of Chinese, English, digits, full-width forms, emoji, rare ideographs and long runs, mixed."""
    generator = np.random.default_rng(0)
    chunks = [
        "我爱读书", "这家酒店很好，", "全角ＡＢＣ１２３！", "龘𠀀𪚥", "The quick brown fox's", "café naïve",
        "2008年10月 3.14", "😀👍🏽", "한국어 カタカナ", "[MASK]", "iPhone6s", "\t　\u00a0", "(a+b)/c=d; e:f",
        "。。。……——", "a" * 120, "\u2028x\x85y", "ﬁ①㈱㎏", "Привет мир", "مرحبا", "\u200b\ufeff", "é",
        "#hashtag @user www.example.com/a?b=c",
    ]  # fmt: skip
    return [
        "".join(generator.choice(chunks, size=generator.integers(1, 6))) + (" " if i % 3 else "")
        for i in range(number)
    ]


@pytest.fixture(scope="module")
def trained():
    return train_tokenizer([*make_sentences(300), *mixed_lines(500)])


@pytest.fixture
def saved(trained, tmp_path):
    trained.save_pretrained(tmp_path / "one")
    return tmp_path / "one"


def ids(tokenizer, text):
    return tokenizer(text)["input_ids"]


def test_ids_are_those_of_the_raw_tokenizer_before_and_after_a_second_save(saved, tmp_path):
    lines = mixed_lines(10_000)
    raw = [encoding.ids for encoding in Tokenizer.from_file(str(saved / "tokenizer.json")).encode_batch(lines)]
    assert len({tuple(row) for row in raw}) > 5_000
    once = AutoTokenizer.from_pretrained(saved)
    once.save_pretrained(tmp_path / "two")
    twice = AutoTokenizer.from_pretrained(tmp_path / "two")
    for tokenizer in (once, twice):
        assert isinstance(tokenizer, TinyBertTokenizer)
        assert tokenizer(lines, truncation=False)["input_ids"] == raw
        assert tokenizer.model_max_length == 512


def test_ids_are_the_same_where_the_package_is_neither_imported_nor_trusted(saved, tmp_path):
    TinyBertModel(TinyBertConfig(vocab_size=5000)).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(saved).save_pretrained(tmp_path / "model")
    lines = mixed_lines(50)
    code = (
        "import json, sys; sys.modules['hf_tinybert'] = None\n"
        "from transformers import AutoTokenizer\n"
        "lines = json.load(sys.stdin)\n"
        "for folder, trust in ((sys.argv[1], None), (sys.argv[2], True)):\n"
        "    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)\n"
        "    print(json.dumps(tokenizer(lines)['input_ids']), tokenizer.model_max_length)\n"
    )
    import json

    result = subprocess.run(
        [sys.executable, "-c", code, str(saved), str(tmp_path / "model")],
        input=json.dumps(lines), capture_output=True, encoding="utf-8", check=True, cwd=tmp_path,
        env={**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "LC_ALL": "C"},
    )  # fmt: skip
    expected = f"{json.dumps(AutoTokenizer.from_pretrained(saved)(lines)['input_ids'])} 512"
    assert result.stdout.splitlines() == [expected, expected]
    assert result.stderr == ""


def test_the_vocabulary_is_the_same_in_every_process(tmp_path):
    code = (
        "from tests.training.conftest import make_sentences\n"
        "from training.tokenizer import train_tokenizer\n"
        "print(sorted(train_tokenizer(make_sentences(300), 120).get_vocab().items()))"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True,
                       env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert outputs[0] == outputs[1] != ""


def test_special_tokens_come_first(trained):
    assert trained.convert_ids_to_tokens(range(5)) == list(SPECIAL_TOKENS)
    assert sorted(trained.all_special_ids) == [0, 1, 2, 3, 4]


def test_text_is_normalised_by_the_stated_rules(trained):
    for written, same in (
        ("ＡＢＣ１２３", "abc123"), ("IPHONE", "iphone"), ("好，书！", "好,书!"), ("好\t 　书", "好 书"),
        ("好\u200b书", "好 书"), ("ﬁ", "fi"), ("e\u0301", "é"),
    ):  # fmt: skip
        assert ids(trained, written) == ids(trained, same), written
    assert ids(trained, "café") != ids(trained, "cafe")


def test_an_unknown_character_is_one_unk_and_swallows_nothing(trained):
    unk = trained.unk_token_id
    assert "龖" not in trained.get_vocab() and "ž" not in trained.get_vocab()
    assert ids(trained, "我龖爱读龖龖书")[1:-1].count(unk) == 3
    for text in ("我爱读书", " quick"):
        known = ids(trained, text)[1:-1]
        assert unk not in known
        assert ids(trained, f"龖{text}龖")[1:-1] == [unk, *known, unk]
    middle = ids(trained, "quižck")[1:-1]
    assert middle.count(unk) == 1 and len(middle) >= 3


@pytest.mark.parametrize("char", ["a", "好", "1", "。", "龖"])
def test_a_long_run_is_cut_up_in_time_that_grows_with_its_length(trained, char):
    started = time.monotonic()
    tokens = trained(char * 100_000, truncation=False)["input_ids"]
    assert time.monotonic() - started < 3
    assert (trained.unk_token_id in tokens) == (char == "龖")


def test_two_texts_and_padding_make_what_the_model_takes(trained):
    batch = trained(["我爱读书", "好"], ["读书", "这家酒店很好"], padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    first = trained.convert_ids_to_tokens(batch["input_ids"][0])
    assert first[:9] == ["[CLS]", "我", "爱", "读", "书", "[SEP]", "读", "书", "[SEP]"]
    model = TinyBertModel(TinyBertConfig(vocab_size=len(trained)))
    assert model(**batch).last_hidden_state.shape[:2] == batch["input_ids"].shape


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("我爱读书，很好！", "我爱读书,很好!"),
        ("The quick brown fox's 3.14", "the quick brown fox's 3.14"),
        ("我爱 the fox 读书", "我爱 the fox读书"),
        ("2008年10月 5 6", "2008年10月 5 6"),
        ("brown , fox. (quick) a/b=c", "brown, fox. (quick) a/b=c"),
        ("好 书 。 quick", "好书。 quick"),
    ],
)
def test_decoding_gives_back_the_spaces_of_words_and_none_between_chinese(trained, text, decoded):
    assert trained.unk_token_id not in ids(trained, text)
    assert trained.decode(ids(trained, text), skip_special_tokens=True) == decoded


def test_fill_mask_puts_no_spaces_between_chinese(trained):
    model = TinyBertForMaskedLM(TinyBertConfig(vocab_size=len(trained)))
    for answer in pipeline("fill-mask", model=model, tokenizer=trained)("我爱[MASK]书，很好！"):
        word = trained.decode([answer["token"]])
        assert answer["sequence"].replace(word, "", 1).replace(" ", "") == "我爱书,很好!"
        assert not re.search(r"[\u4e00-\u9fff,!] +[\u4e00-\u9fff,!]", answer["sequence"])


def test_ideographs_are_tokens_by_themselves_or_in_frequent_words():
    texts = [*make_sentences(300), "酒店服务态度很好"] * 3
    assert train_tokenizer(texts).tokenize("这本书") == ["这", "本", "书"]
    words = train_tokenizer(texts, chinese_tokens="words")
    assert words.tokenize("这本书") == ["这本书"]
    assert words.decode(words("我看过这本书")["input_ids"], skip_special_tokens=True) == "我看过这本书"


def test_long_texts_are_cut_unless_told_otherwise(trained):
    assert len(ids(trained, "好" * 2000)) == 512
    assert len(trained("好" * 2000, truncation=False)["input_ids"]) == 2002
    assert len(trained("好" * 2000, "书" * 2000)["input_ids"]) == 512


def test_vocab_size_is_met_exactly_or_refused():
    sentences = make_sentences(300)
    assert len(train_tokenizer(sentences, 120)) == 120
    with pytest.raises(
        UserError, match=r"--vocab_size 50000 is larger than the text supports: ask for (\d+)"
    ) as error:
        train_tokenizer(sentences, 50_000)
    most = int(str(error.value).split("ask for ")[1].split()[0])
    assert len(train_tokenizer(sentences, most)) == most
    with pytest.raises(UserError, match="--vocab_size 50 is too small"):
        train_tokenizer(sentences, 50)
    with pytest.raises(UserError, match="--vocab_size 0 is too small"):
        train_tokenizer(sentences, 0)


def test_frequent_words_become_one_token():
    tokenizer = train_tokenizer(["wonderful hotel 好"] * 20 + make_sentences(50))
    assert tokenizer.tokenize("Wonderful hotel") == ["▁wonderful", "▁hotel"]


def test_unknown_characters_are_counted_by_script(trained):
    shares = unknown_share(["我龖爱 quick", "😀🦥1。"], trained)
    assert shares["Han"] == {"characters": 3, "unknown": 1}
    assert shares["Latin"] == {"characters": 5, "unknown": 0}
    assert shares["other"] == {"characters": 2, "unknown": 1}
    assert shares["digits"] == shares["punctuation"] == {"characters": 1, "unknown": 0}
    assert unknown_share(["[UNK]"], trained) == {
        "Latin": {"characters": 3, "unknown": 0},
        "punctuation": {"characters": 2, "unknown": 0},
    }


def test_the_verb_writes_a_folder_that_loads(tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(make_sentences(100)), encoding="utf-8")
    argv = ["tokenizer", "--train_files", str(path), "--vocab_size", "150", "--output_dir", str(tmp_path / "tok")]
    assert main(argv) == 0
    assert len(AutoTokenizer.from_pretrained(tmp_path / "tok")) == 150
    out = capsys.readouterr().out
    for fact in ("100 documents", "150 tokens", "unknown to the tokenizer: Han 0.00%", "for example"):
        assert fact in out
    assert main(argv) == 2
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "is no folder"),
        ("nothing", "has no tokenizer.json"),
        ("broken", "cannot be read"),
        ("bare", "mask_token"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_one_line(tmp_path, trained, content, line):
    folder = tmp_path / "tok"
    if content:
        folder.mkdir()
    if content == "broken":
        (folder / "tokenizer.json").write_text("{", encoding="utf-8")
    if content == "bare":
        trained.backend_tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(UserError, match=line) as error:
        load_masking_tokenizer(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda backend: backend.update(post_processor=None), r"does not put \[CLS\] and \[SEP\] around a text"),
        (lambda backend: backend["model"]["vocab"].update({"a": 9999}), "leaves ids out: .* the last of id 9999"),
    ],
)
def test_a_tokenizer_that_does_not_fit_masked_language_modelling_is_refused(saved, change, line):
    backend = json.loads((saved / "tokenizer.json").read_text(encoding="utf-8"))
    change(backend)
    (saved / "tokenizer.json").write_text(json.dumps(backend), encoding="utf-8")
    with pytest.raises(UserError, match=line):
        load_masking_tokenizer(saved)
