import json
import random

import pytest
import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM
from training import tagging
from training.__main__ import main
from training.tagged import join
from training.tagging import Piece
from training.tokenizer import train_tokenizer


PLACES = ["北京", "上海", "呼和浩特"]
PEOPLE = ["王小明", "李雷"]
FILLERS = "书店房间早餐很好也"
MIXED = ["王小明 W8 在北京", "  李雷 W了😀2008年在 上海😀", "ＡＢＣ公司在上海㎏", "", " "]


def make_row(rng):
    """Characters and tags: somebody, a few characters, a place."""
    person, place = rng.choice(PEOPLE), rng.choice(PLACES)
    middle = rng.choices([*FILLERS, "W", "8"], k=rng.randint(1, 5))
    tags = ["B-PER"] + ["I-PER"] * (len(person) - 1) + ["O"] * (len(middle) + 1)
    tags += ["B-LOC"] + ["I-LOC"] * (len(place) - 1)
    return [*person, *middle, "在", *place], tags


def write_rows(path, rows):
    lines = ["text\tlabel", *("\t".join(map(" ".join, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def rows():
    rng = random.Random(0)
    return [make_row(rng) for _ in range(120)]


@pytest.fixture(scope="module")
def words_tokenizer(rows):
    """A tokenizer that has the very names as pieces, and Latin words with and without a space before them."""
    texts = [join(tokens)[0] for tokens, _ in rows] + [
        "the German call is good",
        "好WTO 2008 iPhone 的公司会议买了年",
    ] * 20
    tokenizer = train_tokenizer(texts, chinese_tokens="words")
    assert {"北京", "王小明", "▁german"} <= set(tokenizer.get_vocab())
    return tokenizer


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, words_tokenizer):
    folder = tmp_path_factory.mktemp("pretrained")
    torch.manual_seed(0)
    TinyBertForMaskedLM(TinyBertConfig(vocab_size=len(words_tokenizer))).save_pretrained(folder)
    words_tokenizer.save_pretrained(folder)
    return folder


def finetune(model, train_file, output_dir, *more):
    words = [
        "--task",
        "token-classification",
        "--model",
        model,
        "--train_file",
        train_file,
        "--output_dir",
        output_dir,
    ]
    words += ["--batch_size", "8", "--learning_rate", "3e-3", "--max_length", "20", *more]
    return main(["finetune", *map(str, words)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pretrained, rows):
    """A finished run; tests only read it."""
    folder = tmp_path_factory.mktemp("run")
    long = ([token for tokens, _ in rows[:4] for token in tokens], [tag for _, tags in rows[:4] for tag in tags])
    train_file = write_rows(folder / "train.tsv", [*rows[:100], long, ([], [])])
    dev_file = write_rows(folder / "dev.tsv", rows[100:])
    assert finetune(pretrained, train_file, folder / "model", "--validation_file", dev_file, "--epochs", "6") == 0
    return folder / "model"


def read_results(folder):
    return json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))


def find(finished, **settings):
    return pipeline("token-classification", model=str(finished), aggregation_strategy="simple", **settings)


def test_entities_are_learnt_and_scored_beside_a_crf(finished):
    results = read_results(finished)
    scores = results["scores"]["dev.tsv"]
    assert (scores["rows"], scores["entities"], scores["also_in_training"]) == (20, 40, 0)
    assert scores["model"]["f1"] > 0.9 and scores["crf"]["f1"] > 0.9
    assert scores["model"]["types"]["PER"]["entities"] == 20
    assert results["rows"] | {"fingerprint": None, "lengths": None} == {
        "training": 101,
        "blank_dropped": 1,
        "in_windows": 1,
        "tags_lost": 0,
        "fingerprint": None,
        "lengths": None,
    }


def test_the_pipeline_and_predict_draw_the_same_spans_of_mixed_text(finished, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(MIXED), encoding="utf-8")
    words = ["--model", finished, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.jsonl"]
    assert main(["predict", *map(str, words)]) == 0
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [answer["text"] for answer in answers] == MIXED
    for answer, theirs in zip(answers[:3], find(finished)(MIXED[:3]), strict=True):
        spans = [(entity["type"], entity["start"], entity["end"]) for entity in answer["entities"]]
        assert spans == [(entity["entity_group"], entity["start"], entity["end"]) for entity in theirs]
        scores = [entity["score"] for entity in answer["entities"]]
        assert scores == pytest.approx([float(entity["score"]) for entity in theirs], abs=1e-5)
    assert answers[3]["entities"] == answers[4]["entities"] == []
    found = [(entity["type"], entity["text"]) for answer in answers for entity in answer["entities"]]
    assert {("PER", "王小明"), ("LOC", "北京")} <= set(found)
    for answer in answers:
        for entity in answer["entities"]:
            assert entity["text"] == answer["text"][entity["start"] : entity["end"]] == entity["text"].strip()


def test_the_saved_tokenizer_takes_chinese_by_characters_each_with_its_own_offsets(finished, words_tokenizer):
    text = "王小明在 WTO 的北京😀2008年"
    saved = AutoTokenizer.from_pretrained(finished)
    encoding = saved(text, add_special_tokens=False, return_offsets_mapping=True)
    slices = [text[start:end] for start, end in encoding["offset_mapping"]]
    assert [part for part in slices if "\u4e00" <= part[0] <= "\u9fff"] == list("王小明在的北京年")
    assert "".join(slices) == text.replace(" ", "")
    assert saved.unk_token_id not in [i for i, part in zip(encoding["input_ids"], slices, strict=True) if part != "😀"]
    assert "北京" in words_tokenizer.tokenize(text)  # the one it was made from does not
    assert saved.get_vocab() == words_tokenizer.get_vocab()


def test_training_encodes_rows_as_the_saved_tokenizer_encodes_their_text(finished, rows):
    saved = AutoTokenizer.from_pretrained(finished)
    texts = [join(tokens)[0] for tokens, _ in rows]
    assert tagging.encode(saved, texts, 20).columns["input_ids"] == saved(texts)["input_ids"]


def test_a_tagger_that_is_finetuned_again_keeps_its_tokenizer(finished, rows, tmp_path):
    train_file = write_rows(tmp_path / "train.tsv", rows[:20])
    assert finetune(finished, train_file, tmp_path / "again", "--epochs", "0.5") == 0
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (finished / "tokenizer.json").read_bytes()


def test_every_token_of_a_long_row_gets_the_tag_of_its_window(finished, rows):
    from training.predict import load_finetuned

    loaded = load_finetuned(finished)
    row = [token for tokens, _ in rows[:6] for token in tokens]
    (pieces,), long = tagging.tag_texts(loaded, [join(row)[0]])
    tags = tagging.tag_tokens(row, pieces)
    assert long == 1 and len(tags) == len(row) > 40
    # by hand: 18 tokens at a time between [CLS] and [SEP]; of 5 that two windows share, 3 are left to the second
    model = AutoModelForTokenClassification.from_pretrained(finished)
    ids = loaded.tokenizer(join(row)[0], add_special_tokens=False, truncation=False)["input_ids"]
    expected = []
    for start in range(0, len(ids) - 5, 13):
        window = [loaded.tokenizer.cls_token_id, *ids[start : start + 18], loaded.tokenizer.sep_token_id]
        with torch.no_grad():
            best = model(torch.tensor([window])).logits[0, 1:-1].argmax(dim=-1).tolist()
        is_last = start + 18 >= len(ids)
        expected += best[2 if start else 0 : len(best) if is_last else 15]
    assert [piece.tag for piece in pieces] == [model.config.id2label[i] for i in expected]


@pytest.mark.parametrize("max_length", [3, 4, 5, 8, 20])
def test_windows_of_any_length_leave_out_no_character_and_none_comes_twice(finished, rows, max_length):
    text = join([token for tokens, _ in rows[:3] for token in tokens])[0]
    windows = tagging.encode(AutoTokenizer.from_pretrained(finished), [text, "好"], max_length)
    spans = [
        span for window, row in zip(windows.spans, windows.rows, strict=True) for span in window if span and not row
    ]
    assert "".join(text[start:end] for start, end in spans) == text
    assert windows.long == 1


def test_the_pipeline_reads_long_texts_in_windows_with_a_stride(finished):
    text = "很好" * 300 + "王小明在北京"
    assert {entity["word"].replace(" ", "") for entity in find(finished, stride=32)(text)} >= {"王小明", "北京"}


def test_evaluate_refits_the_crf_and_the_card_shows_both(finished, capsys):
    dev_file = finished.parent / "dev.tsv"
    before = read_results(finished)["scores"]["dev.tsv"]
    assert main(["evaluate", "--model", str(finished), "--test_file", str(dev_file)]) == 0
    out = capsys.readouterr().out
    after = read_results(finished)["scores"]["dev.tsv"]
    assert (after["model"], after["crf"]) == (before["model"], before["crf"])
    assert "scores on dev.tsv: 20 rows, 40 entities" in out
    assert "a CRF: entity F1" in out
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert f"| dev.tsv | entity f1 | {after['model']['f1']:.4f} | {after['crf']['f1']:.4f} |" in card
    assert 'pipeline("token-classification", model="OWNER/NAME", aggregation_strategy="simple", trust' in card
    assert "stride=32" in card and "pipeline_tag: token-classification" in card


def test_words_of_a_list_are_found_whole_whatever_pieces_they_fall_into(pretrained, tmp_path, capsys):
    rng = random.Random(0)
    lines = []
    for index in range(80):
        name = rng.choice([["Germany"], ["New", "Zealand"]])
        tokens = [*rng.choices(["the", "call", "is", "good"], k=rng.randint(1, 4)), "in", *name, "."]
        tags = ["O"] * (len(tokens) - len(name) - 1) + ["B-LOC", "I-LOC"][: len(name)] + ["O"]
        tags[-len(name) - 1] = "I-LOC" if index == 0 else "B-LOC"
        lines.append(json.dumps({"tokens": tokens, "tags": tags}))
    train_file = tmp_path / "train.jsonl"
    train_file.write_text("\n".join(lines), encoding="utf-8")
    columns = ["--text_column", "tokens", "--label_column", "tags"]
    assert finetune(pretrained, train_file, tmp_path / "model", *columns, "--epochs", "6") == 0
    out = capsys.readouterr().out
    assert "1 entities begin with I-, taken as B- of train.jsonl" in out
    assert 'find = pipeline("token-classification", model=' in out and 'aggregation_strategy="simple")' in out
    rows = ["\n".join(lines[:1]), json.dumps({"tokens": "the good call in New Zealand."})]
    (tmp_path / "in.jsonl").write_text("\n".join(rows), encoding="utf-8")
    words = ["--model", tmp_path / "model", "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.jsonl"]
    assert main(["predict", *map(str, words)]) == 0
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    (entity,) = answers[1]["entities"]
    assert (entity["type"], entity["text"], entity["start"], entity["end"]) == ("LOC", "New Zealand", 17, 28)
    assert answers[0]["text"] == " ".join(json.loads(lines[0])["tokens"])


def test_a_piece_takes_the_tag_of_its_first_character_and_a_token_that_of_its_first_piece():
    row, tags = ["Mc", "Donald", "的"], ["B-PER", "I-PER", "O"]
    assert join(row)[0] == "Mc Donald的"
    spans = [None, (0, 1), (1, 2), (3, 6), (6, 9), (9, 10), None]
    assert tagging.label_pieces(row, tags, spans) == [None, "B-PER", "I-PER", "I-PER", "I-PER", "O", None]
    pieces = [Piece(0, 1, "B-PER"), Piece(1, 2, "O"), Piece(3, 9, "I-PER"), Piece(9, 10, "O")]
    assert tagging.tag_tokens(row, pieces) == tags


def test_a_piece_over_several_tokens_goes_on_and_white_space_is_outside():
    row = ["2", "0", "0", "8", "\u3000", "年"]
    pieces = [Piece(0, 4, "B-DATE"), Piece(5, 6, "I-DATE")]
    assert tagging.tag_tokens(row, pieces) == ["B-DATE", "I-DATE", "I-DATE", "I-DATE", "O", "I-DATE"]


def test_entities_begin_with_b_or_where_the_type_changes():
    text = "王明李雷 上海"
    tags = ["B-PER", "I-PER", "B-PER", "I-LOC", "O", "I-LOC"]
    spans = [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6), (6, 7)]
    pieces = [Piece(*span, tag, score) for span, tag, score in zip(spans, tags, [1, 0.5, 1, 1, 1, 0.2], strict=True)]
    assert [(entity["type"], entity["text"], entity["score"]) for entity in tagging.find_entities(text, pieces)] == [
        ("PER", "王明", 0.75),
        ("PER", "李", 1),
        ("LOC", "雷", 1),
        ("LOC", "海", 0.2),
    ]


def test_scores_match_a_count_by_hand():
    labels = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "I-LOC", "O"]]
    predictions = [["B-PER", "I-PER", "O", "O"], ["B-LOC", "O", "B-PER"]]
    scores = tagging.score(predictions, labels)
    # found 3, of which 1 is right in type and both ends; there are 3
    assert [scores[metric] for metric in ("precision", "recall", "f1")] == pytest.approx([1 / 3] * 3)
    assert scores["types"]["PER"] == pytest.approx({"precision": 1 / 2, "recall": 1, "f1": 2 / 3, "entities": 1})
    assert scores["types"]["LOC"] == pytest.approx({"precision": 0, "recall": 0, "f1": 0, "entities": 2})
    assert tagging.score([["O"]], [["O"]])["f1"] == 0


@pytest.mark.parametrize(
    ("ours", "words"), [(0.8, "beats a CRF: entity F1 80.00 > 70.00"), (0.7, "does NOT beat a CRF")]
)
def test_the_verdict_says_plainly_who_wins(ours, words):
    (line,) = tagging.verdict({"model": {"f1": ours}, "crf": {"f1": 0.7}}, None)
    assert words in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--problem_type", "regression"], "--problem_type is of no use to --task token-classification"),
        (["--text_pair_column", "text"], "--text_pair_column is of no use"),
        (["--label_column", "tags"], "has no column 'tags'"),
        (["--validation_file", "{tmp}/new.tsv"], "'GPE' (line 2)"),
        (["--validation_file", "{tmp}/short.tsv"], "short.tsv, line 2: 2 tokens, but 1 tags"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_folder(pretrained, rows, tmp_path, capsys, words, message):
    train_file = write_rows(tmp_path / "train.tsv", rows[:20])
    write_rows(tmp_path / "new.tsv", [("北", ["B-GPE"])])
    write_rows(tmp_path / "short.tsv", [("北京", ["B-LOC"])])
    before = sorted(tmp_path.rglob("*"))
    words = [word.format(tmp=tmp_path) for word in words]
    assert finetune(pretrained, train_file, tmp_path / "model", *words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
