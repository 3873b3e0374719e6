import json
from collections import Counter

import pytest

from training.errors import UserError
from training.labelled import (
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    count_shared,
    label_name,
    load_labelled,
    sort_labels,
    split,
)


@pytest.fixture
def load(tmp_path):
    def load(name, content, problem_type=SINGLE_LABEL, pair=None, **settings):
        path = tmp_path / name
        if not isinstance(content, str):
            content = "\n".join(json.dumps(row, ensure_ascii=False) for row in content)
        path.write_text(content, encoding="utf-8")
        return load_labelled(path, "text", pair, "label", problem_type, None, **settings)

    return load


def test_text_and_class_ids_follow_the_order_of_the_file(load):
    data = load("a.tsv", "text\tlabel\n很好\tpos\n很差\tneg\n不错\tpos\n")
    assert data.texts == ["很好", "很差", "不错"]
    assert data.label_names == ["neg", "pos"]
    assert data.labels == [1, 0, 1]
    assert data.source == "a.tsv"
    assert data.pairs is None


def test_second_texts_are_read_from_their_column(load):
    data = load("a.csv", "text,other,label\na,b,0\nc,d,1\n", pair="other")
    assert data.pairs == ["b", "d"]


@pytest.mark.parametrize(
    ("value", "name"), [("1", "1"), ("1.0", "1.0"), (1, "1"), (1.0, "1"), (1.5, "1.5"), (True, "true"), (" a ", "a")]
)
def test_labels_keep_the_writing_of_the_user(value, name):
    assert label_name(value) == name


@pytest.mark.parametrize(
    ("names", "ordered"),
    [
        ({"10", "9", "-1"}, ["-1", "9", "10"]),
        ({"b", "a", "10"}, ["10", "a", "b"]),
        ({"nan", "2", "10"}, ["10", "2", "nan"]),
    ],
)
def test_labels_are_sorted_by_number_only_where_all_are_numbers(names, ordered):
    assert sort_labels(names) == ordered


def test_whole_numbers_of_json_are_labels_without_a_point(load):
    data = load("a.jsonl", [{"text": "a", "label": 1}, {"text": "b", "label": 0}])
    assert data.label_names == ["0", "1"]


def test_several_labels_become_zeros_and_ones(load):
    assert load("a.tsv", "text\tlabel\nx\tb|a\ny\tc\nz\t\n", MULTI_LABEL).labels == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    rows = [{"text": "x", "label": ["b", "a"]}, {"text": "y", "label": []}]
    assert load("a.jsonl", rows, MULTI_LABEL).labels == [[1, 1], [0, 0]]


def test_regression_labels_are_numbers(load):
    data = load("a.tsv", "text\tlabel\nx\t1.5\ny\t-2\n", REGRESSION)
    assert data.labels == [1.5, -2.0]
    assert data.label_names is None


def test_blank_texts_are_counted_and_kept_or_dropped(load):
    content = "text\tlabel\n \t1\nx\t0\ny\t1\n"
    assert (load("a.tsv", content).blank, len(load("a.tsv", content).dataset)) == (1, 3)
    dropped = load("a.tsv", content, keep_blank=False)
    assert (dropped.blank, dropped.texts) == (1, ["x", "y"])


def test_given_label_names_set_the_ids(load):
    assert load("a.tsv", "text\tlabel\nx\tb\n", label_names=["b", "a"]).labels == [0]


@pytest.mark.parametrize(
    ("name", "content", "problem_type", "message"),
    [
        (
            "a.tsv",
            "label\ttext_a\n1\tx\n",
            SINGLE_LABEL,
            r"a\.tsv has no column 'text'.*mean 'text_a'.*'label', 'text_a'",
        ),
        ("a.tsv", "text\tlabel\nx\t1\ny\t\n", SINGLE_LABEL, r"a\.tsv, line 3: no label in column 'label'"),
        ("a.jsonl", [{"text": "x", "label": None}], SINGLE_LABEL, r"a\.jsonl, line 1: no label"),
        ("a.jsonl", [{"text": "x", "label": None}], MULTI_LABEL, r"a\.jsonl, line 1: no label"),
        ("a.jsonl", [{"text": "x", "label": ["a", "b"]}], SINGLE_LABEL, r"line 1: .*multi_label_classification"),
        (
            "a.json",
            '[\n {"text": "x",\n  "label": 1},\n {"text": "y"}\n]',
            SINGLE_LABEL,
            r"a\.json:4 has no column 'label'",
        ),
        ("a.jsonl", [{"text": ["x"], "label": 1}], SINGLE_LABEL, r"line 1: column 'text' holds a list"),
        ("a.tsv", "text\tlabel\nx\t1\ny\t1\n", SINGLE_LABEL, r"a\.tsv holds one class only \(1\)"),
        ("a.tsv", "text\tlabel\nx\t1\ny\tgut\n", REGRESSION, r"a\.tsv, line 3: the label 'gut'.* not a number"),
        ("a.tsv", "text\tlabel\nx\tinf\n", REGRESSION, r"line 2: the label 'inf'"),
    ],
)
def test_bad_tables_are_refused_with_file_and_line(load, name, content, problem_type, message):
    with pytest.raises(UserError, match=message) as caught:
        load(name, content, problem_type)
    assert "\n" not in str(caught.value)


def test_unknown_labels_are_named_with_their_first_line(load):
    with pytest.raises(UserError, match=r"'c' \(line 3\), 'd' \(line 5\).*known are a, b"):
        load("a.tsv", "text\tlabel\nx\ta\ny\tc\nz\tc\nu\td\n", label_names=["a", "b"])


def test_the_held_out_tenth_is_seeded_stratified_and_shares_no_text(load):
    rows = [{"text": f"text {index % 90}", "label": "rare" if index % 90 < 30 else "common"} for index in range(100)]
    data = load("a.jsonl", rows)
    training, validation = split(data, SINGLE_LABEL, seed=1)
    assert len(training.dataset) + len(validation.dataset) == 100
    assert count_shared(training, validation) == 0
    unique = dict(zip(validation.texts, validation.labels, strict=True))
    assert Counter(unique.values()) == {data.label_names.index("rare"): 3, data.label_names.index("common"): 6}
    assert split(data, SINGLE_LABEL, seed=1)[1].texts == validation.texts
    assert split(data, SINGLE_LABEL, seed=2)[1].texts != validation.texts


def test_a_class_of_one_row_stays_in_training(load):
    rows = [{"text": f"t{index}", "label": "lone" if index == 7 else "other"} for index in range(12)]
    for seed in range(12):
        assert "t7" in split(load("a.jsonl", rows), SINGLE_LABEL, seed)[0].texts


def test_validation_rows_that_stand_in_training_are_counted(load):
    training = load("a.tsv", "text\tlabel\nx\t0\ny\t1\n")
    validation = load("b.tsv", "text\tlabel\ny\t1\nz\t1\ny\t0\n", label_names=["0", "1"])
    assert count_shared(training, validation) == 2
