import json
from copy import deepcopy

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training import facts
from training import labelled
from training.errors import UserError
from training.squad import load_questions, split


CONTEXT = "北京是首都，上海不是首都。"


def row(identity="1", context=CONTEXT, question="哪里是首都？", texts=("北京",), starts=(0,), **more):
    answers = {"text": list(texts), "answer_start": list(starts)}
    return {"id": identity, "question": question, "context": context, "answers": answers, **more}


@pytest.fixture
def load(tmp_path):
    def load(rows, **settings):
        return load_questions(facts.write_jsonl(tmp_path / "a.jsonl", rows), **settings)

    return load


@pytest.mark.parametrize("indent", [None, 2])
def test_the_nested_json_of_squad_reads_like_the_rows_of_the_hub(tmp_path, indent):
    rows = facts.make_rows(6, impossible=3)
    nested, array, table = tmp_path / "nested.json", tmp_path / "array.json", tmp_path / "rows.parquet"
    nested.write_text(json.dumps(facts.nest(rows), ensure_ascii=False, indent=indent), encoding="utf-8")
    array.write_text(json.dumps(rows, indent=indent), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), table)
    expected = load_questions(facts.write_jsonl(tmp_path / "rows.jsonl", rows)).questions
    assert [question.id for question in expected] == [f"q{index}" for index in range(6)]
    assert [question.is_impossible for question in expected] == [True, False, False] * 2
    for question in expected:
        assert question.is_impossible or question.context[slice(*question.span)] == question.answers[0]
    for path in (nested, array, table):
        assert load_questions(path).questions == expected


def test_an_answer_at_a_wrong_offset_is_found_where_it_stands_once_and_both_kinds_are_counted(load):
    rows = [
        row("right"),
        row("moved", texts=["上海"], starts=[3]),
        row("twice", texts=["首都"], starts=[0]),
        row("absent", texts=["广州"], starts=[0]),
        row("minus one", texts=["北京"], starts=[-1]),
        row("second", texts=["首都", "是首都"], starts=[0, 2]),
    ]
    data = load(rows, for_training=True)
    assert {question.id: question.span for question in data.questions} == {
        "right": (0, 2),
        "moved": (6, 8),
        "minus one": (0, 2),
        "second": (2, 5),
    }
    assert list(data.dropped.values()) == [2, 3, 2]
    assert "2 answers stand elsewhere than their answer_start says" in data.notes()[0]
    assert "2 questions none of whose answers stands in the context: dropped" in data.notes()[2]


def test_offsets_counted_in_utf_16_are_put_right(load):
    context = "🙂🙂北京是首都"  # 北京 at 4 for whoever counts an emoji twice
    (question,) = load([row(context=context, starts=[4])]).questions
    assert question.span == (2, 4)


def test_scoring_keeps_every_right_answer_wherever_it_stands(load):
    data = load([row("1", texts=["广州", "首都"], starts=[0, 0]), row("2", context=" ")])
    assert [question.answers for question in data.questions] == [("广州", "首都"), ("北京",)]
    assert data.questions[0].span is None
    assert data.blank == 1


def test_blank_contexts_and_questions_are_dropped_from_training_and_counted(load):
    data = load([row("1"), row("2", context=" \n"), row("3", question="")], for_training=True)
    assert [question.id for question in data.questions] == ["1"]
    assert (data.blank, data.dropped) == (2, {})


def test_numbers_are_ids_too(load):
    assert [question.id for question in load([row(7), row(8)]).questions] == ["7", "8"]


def test_answers_are_not_looked_at_where_none_are_needed(load):
    questions = load([{"id": "1", "question": "a", "context": "b"}, row("2", texts=[""])], answered=False).questions
    assert [question.answers for question in questions] == [None, None]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("1"), row("2"), row("1")], r"a\.jsonl:3: the id '1' is that of .*a\.jsonl:1; give each its own"),
        ([row(), {"id": "2", "question": "a"}], r"a\.jsonl:2 has no key 'context'; it has 'id', 'question'"),
        ([{"id": "2", "question": "a", "context": "b"}], r"a\.jsonl:1 has no key 'answers'"),
        ([row(), row("2", question=None)], r"a\.jsonl:2: 'question' must be a text, not NoneType"),
        ([row(None)], r"a\.jsonl:1: 'id' must be a text or a whole number, not NoneType"),
        ([row(starts=[])], r"a\.jsonl:1\.answers: 1 of 'text' but 0 of 'answer_start'"),
        ([row(starts=["0"])], r"a\.jsonl:1\.answers\[0\]: 'answer_start' must be a whole number, not str"),
        ([row(texts=[" "])], r"a\.jsonl:1\.answers\[0\] is blank; leave the list of answers empty"),
        ([row(is_impossible=True)], r"a\.jsonl:1: is_impossible, but it has answers"),
        ([{**row(), "answers": "北京"}], r"a\.jsonl:1: 'answers' must be a list or an object of lists, not str"),
        ([{"data": [{"paragraphs": [{"context": "a", "qas": []}]}]}], r"a\.jsonl holds no question"),
        ([{"data": {}}], r"a\.jsonl: 'data' must be a list, not dict"),
    ],
)
def test_a_mistake_is_told_with_its_place(load, rows, message):
    with pytest.raises(UserError, match=message) as error:
        load(rows)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("data", 1), [], r"data\[1\] must be a JSON object, not list"),
        (("data", 0, "paragraphs"), None, r"data\[0\]: 'paragraphs' must be a list, not NoneType"),
        (("data", 1, "paragraphs", 0, "context"), 5, r"data\[1\]\.paragraphs\[0\]: 'context' must be a text, not int"),
        (
            ("data", 0, "paragraphs", 0, "qas", 0),
            {"id": "x"},
            r"data\[0\]\.paragraphs\[0\]\.qas\[0\] has no key 'quest",
        ),
        (
            ("data", 1, "paragraphs", 0, "qas", 0, "id"),
            "q0",
            r"data\[1\]\.paragraphs\[0\]\.qas\[0\]: the id 'q0' is that of .*data\[0\]\.paragraphs\[0\]\.qas\[0\]",
        ),
        (
            ("data", 0, "paragraphs", 0, "qas", 0, "answers", 0, "answer_start"),
            None,
            r"data\[0\]\.paragraphs\[0\]\.qas\[0\]\.answers\[0\]: 'answer_start' must be a whole number",
        ),
    ],
)
def test_a_mistake_in_nested_json_is_told_with_its_path(tmp_path, path, value, message):
    article = facts.nest(facts.make_rows(1))["data"][0]
    nested = {"data": [article, deepcopy(article)]}
    nested["data"][1]["paragraphs"][0]["qas"][0]["id"] = "q1"
    *way, last = path
    inner = nested
    for step in way:
        inner = inner[step]
    inner[last] = value
    file = tmp_path / "a.json"
    file.write_text(json.dumps(nested), encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.json: " + message):
        load_questions(file)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"data": [\n{"paragraphs": [}]}', r"a\.json:2: not valid JSON"),
        ("a.jsonl", json.dumps(row()) + '\n{"id": \n', r"a\.jsonl:2: not valid JSON"),
        ("a.json", "[]", r"a\.json has no rows"),
        ("a.txt", "text", r"a\.txt is no table"),
    ],
)
def test_broken_files_are_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_questions(tmp_path / name)


def test_training_without_any_answer_in_its_context_is_refused(load):
    with pytest.raises(UserError, match=r"holds no answer that stands in its context, of 2 questions"):
        load([row("1", texts=[], starts=[]), row("2", texts=["广州"])], for_training=True)


def test_a_tenth_of_the_contexts_is_held_out_with_all_their_questions(load):
    rows = [row(f"{i}-{j}", context=f"北京是首都{i}") for i in range(20) for j in range(3)]
    data = load(rows, for_training=True)
    training, validation = split(data, seed=0)
    assert (len(training), len(validation)) == (54, 6)
    assert labelled.count_shared(training, validation) == 0
    assert labelled.count_shared(data, validation) == 6
    assert split(data, seed=1)[1].questions != validation.questions
    assert labelled.fingerprint(training) != labelled.fingerprint(data)
    with pytest.raises(UserError, match="too few contexts"):
        split(load([row("1"), row("2")], for_training=True), seed=0)
