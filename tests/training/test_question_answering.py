import json
import re

import pytest
import torch
from transformers import AutoTokenizer, pipeline

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM
from tests.training import facts
from training.__main__ import main
from training.tokenizer import train_tokenizer


SETTINGS = {
    "task": "question-answering",
    "epochs": 6,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "dropout": 0,
    "token_masking": 0,
    "max_length": 48,
}


def run(verb, **options):
    return main([verb, *(str(word) for name, value in options.items() for word in (f"--{name}", value))])


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """An untrained masked-LM of the reference shape whose tokenizer holds words of several characters."""
    folder = tmp_path_factory.mktemp("pretrained")
    rows = facts.make_rows(160, impossible=4)
    tokenizer = train_tokenizer([row["context"] + row["question"] for row in rows], None, "words")
    torch.manual_seed(0)
    TinyBertForMaskedLM(TinyBertConfig(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Rows of the Hub's format to train on, nested JSON held out; a quarter of the questions has no answer."""
    folder = tmp_path_factory.mktemp("data")
    facts.write_jsonl(folder / "train.jsonl", facts.make_rows(160, impossible=4))
    held_out = json.dumps(facts.nest(facts.make_rows(80, seed=1, impossible=4)), ensure_ascii=False)
    (folder / "dev.json").write_text(held_out, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pretrained, data):
    """A finished run; tests only read it."""
    folder = tmp_path_factory.mktemp("runs") / "model"
    given = {"model": pretrained, "train_file": data / "train.jsonl", "validation_file": data / "dev.json"}
    assert run("finetune", **given, **SETTINGS, output_dir=folder) == 0
    return folder


def results(folder):
    return json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))


def test_held_out_questions_are_answered_exactly_far_above_word_overlap(finished):
    found = results(finished)
    scores = found["scores"]["dev.json"]
    assert (scores["rows"], scores["impossible"]) == (80, 20)
    assert scores["model"]["exact_match"] >= 0.9
    assert scores["no_answer"] == {"exact_match": 0.25, "f1": 0.25}
    assert scores["overlap"]["f1"] < 0.5
    assert found["rows"]["impossible"] == 40
    assert found["rows"]["answers_inside_tokens"] == 0


def test_chinese_is_taken_by_characters_whatever_the_tokenizer_of_the_model(finished, pretrained):
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (pretrained, finished))
    assert len(before.tokenize("王芳出生于北京")) < len(after.tokenize("王芳出生于北京")) == 7


def test_predictions_slice_their_context_in_the_order_of_the_file(finished, data, tmp_path):
    rows = facts.make_rows(80, seed=1, impossible=4)
    output = tmp_path / "answers.jsonl"
    assert run("predict", model=finished, input=data / "dev.json", output=output) == 0
    answers = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [(answer["id"], answer["question"]) for answer in answers] == [(row["id"], row["question"]) for row in rows]
    right = none = 0
    for row, answer in zip(rows, answers, strict=True):
        assert set(answer) == {"id", "question", "answer", "start", "end", "score"} and 0 <= answer["score"] <= 1
        if answer["answer"]:
            assert row["context"][answer["start"] : answer["end"]] == answer["answer"]
        else:
            assert answer["start"] is answer["end"] is None
            none += 1
        right += answer["answer"] == "".join(row["answers"]["text"])
    assert right / len(rows) == pytest.approx(results(finished)["scores"]["dev.json"]["model"]["exact_match"])
    assert none >= 15


def test_an_answer_far_behind_in_a_long_context_is_found_where_it_stands(finished, tmp_path):
    filler = "王芳是一名医生，工作的地方是学校。" * 8
    context = f"{filler}李明出生于哈尔滨，是一名教师。{filler}"
    row = {"id": "1", "question": "李明是哪里人？", "context": context}
    output = tmp_path / "answers.jsonl"
    assert run("predict", model=finished, input=facts.write_jsonl(tmp_path / "a.jsonl", [row]), output=output) == 0
    answer = json.loads(output.read_text(encoding="utf-8"))
    start = context.index("哈尔滨")
    assert (answer["answer"], answer["start"], answer["end"]) == ("哈尔滨", start, start + 3)
    assert start > 2 * SETTINGS["max_length"]


def test_evaluate_gives_the_scores_of_the_run_and_writes_those_of_another_file(finished, data, tmp_path, capsys):
    output = tmp_path / "scores.json"
    assert run("evaluate", model=finished, test_file=data / "dev.json", output_file=output) == 0
    again = json.loads(output.read_text(encoding="utf-8"))["scores"]["dev.json"]
    before = results(finished)["scores"]["dev.json"]
    assert again == {name: value for name, value in before.items() if name != "also_in_training"}
    printed = capsys.readouterr().out
    assert "scores on dev.json: 80 rows, 20 without an answer" in printed
    assert "the model beats TF-IDF sentence + overlap: f1" in printed
    assert "no longer there" not in printed


def test_the_code_in_the_card_answers_as_predict_does(finished, capsys):
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: question-answering" in card and "pipeline(" not in card
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
    code = code.replace('"OWNER/NAME", trust_remote_code=True', repr(str(finished)))
    (row,) = facts.make_rows(1, seed=1)
    code = code.replace(
        'question, context = "...", "..."', f"question, context = {row['question']!r}, {row['context']!r}"
    )
    exec(compile(code, "card", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1] == row["answers"]["text"][0]


def test_transformers_has_no_pipeline_to_be_named_in_card_and_hint(finished):
    with pytest.raises(KeyError, match="question-answering has been removed"):
        pipeline("question-answering", model=str(finished))


def test_without_a_validation_file_whole_contexts_are_held_out(pretrained, data, tmp_path, capsys):
    given = {"model": pretrained, "train_file": data / "train.jsonl", "output_dir": tmp_path / "model"}
    assert run("finetune", **given, **SETTINGS | {"epochs": 1}) == 0
    printed = capsys.readouterr().out
    (source,) = results(tmp_path / "model")["scores"]
    assert source == "train.jsonl (a tenth of its contexts, held out)"
    assert "training questions have no answer" in printed and "very text of a training row" not in printed
    assert "AutoModelForQuestionAnswering.from_pretrained" in printed


def test_a_model_that_never_saw_a_question_without_answer_always_answers(pretrained, tmp_path):
    train, test = tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    facts.write_jsonl(train, facts.make_rows(24))
    facts.write_jsonl(test, facts.make_rows(12, seed=1, impossible=1))
    given = {"model": pretrained, "train_file": train, "validation_file": test, "output_dir": tmp_path / "model"}
    assert run("finetune", **given, **SETTINGS | {"epochs": 1}) == 0
    assert run("predict", model=tmp_path / "model", input=test, output=tmp_path / "answers.jsonl") == 0
    lines = (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(json.loads(line)["answer"] for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"text_column": "context"},
            "--text_column: of no use to question-answering, which reads SQuAD's nested JSON",
        ),
        ({"problem_type": "regression", "label_column": "a"}, "--label_column, --problem_type: of no use"),
        ({"max_length": 8}, "--max_length 8 is too short for a question and its context"),
        ({"validation_file": "none.json"}, "no such file: none.json"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(pretrained, data, tmp_path, capsys, options, message):
    given = {"model": pretrained, "train_file": data / "train.jsonl", "output_dir": tmp_path / "model"}
    assert run("finetune", **{**given, **SETTINGS, **options}) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
