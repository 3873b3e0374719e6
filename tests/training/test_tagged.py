import json

import pytest

from training import labelled
from training.errors import UserError
from training.tagged import begin_entities, join, load_tagged, split


@pytest.fixture
def load(tmp_path):
    def load(name, content, **settings):
        path = tmp_path / name
        if not isinstance(content, str):
            content = "\n".join(json.dumps(row, ensure_ascii=False) for row in content)
        path.write_text(content, encoding="utf-8")
        return load_tagged(path, "text", "label", None, **settings)

    return load


def test_characters_and_tags_are_read_from_cells_with_spaces(load):
    data = load("a.tsv", "text\tlabel\n我 在 北 京\tO O B-LOC I-LOC\n你 好\tO O\n")
    assert data.tokens == [["我", "在", "北", "京"], ["你", "好"]]
    assert data.labels == [["O", "O", "B-LOC", "I-LOC"], ["O", "O"]]
    assert data.label_names == ["O", "B-LOC", "I-LOC"]
    assert (data.blank, data.begun, len(data)) == (0, 0, 2)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_lists_of_words_and_tags_are_read_and_may_hold_spaces(tmp_path, suffix):
    rows = {"text": [["New York", "wins", "\u3000"]], "label": [["B-ORG", "O", "O"]]}
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        from datasets import Dataset

        Dataset.from_dict(rows).to_parquet(path)
    else:
        path.write_text(json.dumps({name: cells[0] for name, cells in rows.items()}), encoding="utf-8")
    data = load_tagged(path, "text", "label", None)
    assert (data.tokens, data.labels) == (rows["text"], rows["label"])


def test_an_ideographic_space_between_spaces_is_a_token(load):
    assert load("a.tsv", "text\tlabel\n王 \u3000 好\tB-PER O O\n").tokens == [["王", "\u3000", "好"]]


@pytest.mark.parametrize(
    ("tags", "mended", "begun"),
    [
        ("O I-A I-A O", "O B-A I-A O", 1),
        ("B-A I-B I-B", "B-A B-B I-B", 1),
        ("I-A O I-A", "B-A O B-A", 2),
        ("B-A B-A I-A", "B-A B-A I-A", 0),
    ],
)
def test_an_entity_that_begins_with_i_begins_with_b_and_is_counted(tags, mended, begun):
    assert begin_entities(tags.split()) == (mended.split(), begun)


def test_blank_rows_are_left_out_and_counted(load):
    data = load("a.tsv", "text\tlabel\n \t\n北\tB-LOC\n\t \n")
    assert (data.blank, data.tokens) == (2, [["北"]])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "text\tlabel\n北 京\tB-LOC\n", r"a\.tsv, line 2: 2 tokens, but 1 tags"),
        ("a.tsv", "text\tlabel\n北\tB-LOC\n\tO\n", r"a\.tsv, line 3: 0 tokens, but 1 tags"),
        (
            "a.tsv",
            "text\tlabel\n北 京\tB-LOC E-LOC\n",
            r"line 2: the tag 'E-LOC' of token 2 \('京'\) is not BIO.*as I-",
        ),
        (
            "a.tsv",
            "text\tlabel\n北\tLOC\n",
            r"line 2: the tag 'LOC' of token 1 .* is not BIO \(O, B-TYPE or I-TYPE\)$",
        ),
        ("a.tsv", "text\tlabel\n北\tB-\n", r"the tag 'B-' of token 1"),
        ("a.tsv", "text\ttags\n北\tO\n", r"a\.tsv has no column 'label'; it has 'text', 'tags'"),
        ("a.tsv", "text\tlabel\n北\tO\n", r"a\.tsv has no entity"),
        ("a.tsv", "text\tlabel\n \t\n", r"a\.tsv has no row with a token"),
        (
            "a.jsonl",
            [{"text": ["a", 1], "label": ["O", "O"]}],
            r"line 1: item 2 of the list in column 'text' is 1, not",
        ),
        ("a.jsonl", [{"text": ["a", ""], "label": ["O", "O"]}], r"item 2 of the list in column 'text' is empty"),
        ("a.jsonl", [{"text": ["a"], "label": [3]}], r"item 1 of the list in column 'label' is 3"),
        ("a.jsonl", [{"text": {}, "label": []}], r"line 1: column 'text' holds a dict"),
    ],
)
def test_bad_tables_are_refused_with_file_and_line(load, name, content, message):
    with pytest.raises(UserError, match=message) as caught:
        load(name, content)
    assert "\n" not in str(caught.value)


def test_types_that_training_does_not_have_are_named_with_their_first_line(load):
    with pytest.raises(UserError, match=r"'GPE' \(line 3\).*known are LOC;"):
        load("a.tsv", "text\tlabel\n北\tB-LOC\n京\tI-GPE\n", label_names=["O", "B-LOC", "I-LOC"])


@pytest.mark.parametrize(
    ("tokens", "text", "starts"),
    [
        (list("我爱WTO20年。"), "我爱WTO20年。", list(range(9))),
        (["German", "call", "is", "good", "."], "German call is good .", [0, 7, 12, 15, 20]),
        (["我", "爱", "iPhone", "plus", "手机"], "我爱iPhone plus手机", [0, 1, 2, 9, 13]),
        (["😀", "北", "京"], "😀北京", [0, 1, 2]),
        ([], "", []),
    ],
)
def test_words_are_joined_by_spaces_and_characters_by_none(tokens, text, starts):
    assert join(tokens) == (text, starts)


def test_the_held_out_tenth_shares_no_text_and_every_type_stays_in_training(load):
    rows = [{"text": [f"t{i % 45}"], "label": ["B-RARE" if i % 45 == 7 else ["O", "B-A"][i % 2]]} for i in range(90)]
    data = load("a.jsonl", rows)
    training, validation = split(data, seed=1)
    assert len(training) + len(validation) == 90 and len(validation) >= 4
    assert labelled.count_shared(training, validation) == 0
    assert ["B-RARE"] in training.labels and ["B-RARE"] not in validation.labels
    assert split(data, seed=1)[1].tokens == validation.tokens != split(data, seed=2)[1].tokens


def test_other_tags_of_the_same_text_are_another_fingerprint(load):
    one = load("a.tsv", "text\tlabel\n北 京\tB-LOC I-LOC\n")
    other = load("b.tsv", "text\tlabel\n北 京\tB-LOC B-LOC\n")
    assert labelled.fingerprint(one) != labelled.fingerprint(other)
    assert labelled.fingerprint(one) == labelled.fingerprint(
        load("c.jsonl", [{"text": "北 京", "label": ["B-LOC", "I-LOC"]}])
    )
