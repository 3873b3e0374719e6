import copy

import numpy as np
import pytest
import torch

from hf_tinybert import TinyBertConfig, TinyBertForQuestionAnswering
from tests.training import facts, toy
from training import predict
from training.answer_spans import (
    Candidate,
    answer_questions,
    best_in_window,
    check_tokenizer,
    choose_answer,
    covering_tokens,
    make_windows,
    question_room,
    training_windows,
)
from training.errors import UserError
from training.squad import Question
from training.tokenizer import train_tokenizer


NOWHERE = -np.inf


def ask(context, answer=None, question="北京在哪里？", number=1):
    if answer is None:
        return Question(str(number), question, context, (), None)
    start = context.index(answer)
    return Question(str(number), question, context, (answer,), (start, start + len(answer)))


def make(chinese_tokens):
    texts = [row["context"] + row["question"] for row in facts.make_rows(60)]
    return train_tokenizer(
        [*texts, "北京在哪里？ Where is it? It is in the north (of China)."] * 3, None, chinese_tokens
    )


@pytest.fixture(scope="module")
def characters():
    return make("characters")


@pytest.fixture(scope="module")
def words():
    return make("words")


def context_tokens(tokenizer, windows, index):
    return [
        token
        for token, (start, _) in zip(windows.inputs["input_ids"][index], windows.offsets[index].tolist(), strict=True)
        if start >= 0
    ]


def test_a_short_context_is_one_window_as_the_tokenizer_makes_it(characters):
    question = ask("王芳出生于北京，是一名教师。")
    windows = make_windows(characters, [question], 64)
    assert windows.inputs["input_ids"] == characters([question.question], [question.context])["input_ids"]
    assert windows.question == [0] and windows.cut == []
    spelled = [question.context[start:end] for start, end in windows.offsets[0].tolist() if start >= 0]
    assert spelled == list(question.context)


def test_windows_share_a_quarter_and_together_hold_the_context_behind_its_question(characters):
    question = ask("".join(row["context"] for row in facts.make_rows(5)))
    whole = characters(question.context, add_special_tokens=False, truncation=False)["input_ids"]
    front = characters(question.question)["input_ids"]
    windows = make_windows(characters, [ask("北京。"), question], 32)
    assert windows.question[0] == 0 and set(windows.question[1:]) == {1} and len(windows.question) > 5
    seen = []
    for index in range(1, len(windows.question)):
        ids = windows.inputs["input_ids"][index]
        assert len(ids) <= 32 and ids[: len(front)] == front
        tokens = context_tokens(characters, windows, index)
        shared = 0 if index == 1 else 8
        assert seen[len(seen) - shared :] == tokens[:shared]
        seen += tokens[shared:]
    assert seen == whole


def test_a_question_that_leaves_less_than_half_of_a_window_is_cut_and_counted(characters):
    fits, long = ask("北京。", question="北" * 14), ask("北京。", question="北" * 15)
    windows = make_windows(characters, [fits, long], 32)
    assert question_room(characters, 32) == 14 and windows.cut == [1]
    assert windows.inputs["input_ids"][0] == windows.inputs["input_ids"][1]


def test_what_a_model_takes_besides_is_kept(tiny_tokenizer):
    bert = copy.deepcopy(tiny_tokenizer)
    bert.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    windows = make_windows(bert, [ask("我爱北京", question="你好")], 16)
    assert windows.inputs["token_type_ids"] == [[0] * 4 + [1] * 5]


def test_the_answer_of_each_training_window_is_at_its_positions_or_at_cls(characters):
    rows = facts.make_rows(40, impossible=5)
    questions = [
        ask(row["context"] * 3, row["answers"]["text"][0] if row["answers"]["text"] else None, row["question"])
        for row in rows
    ]
    columns, coverage = training_windows(characters, questions, 40)
    windows = make_windows(characters, questions, 40)
    assert columns["input_ids"] == windows.inputs["input_ids"] and coverage.windows == len(windows.question) > 80
    held = 0
    for index, owner in enumerate(windows.question):
        start, end, question = columns["start_positions"][index], columns["end_positions"][index], questions[owner]
        if start == end == 0:
            continue
        held += 1
        offsets = windows.offsets[index]
        assert question.context[offsets[start][0] : offsets[end][1]] == question.answers[0]
    assert held >= 32 and coverage.empty == coverage.windows - held
    assert (coverage.answers, coverage.inexact, coverage.too_long) == (32, 0, 0)
    assert coverage.ceiling == {"exact_match": 1, "f1": 1}
    assert coverage.answer_length == max(len(question.answers[0]) for question in questions if question.answers)


def test_answers_inside_a_token_are_counted_with_what_they_cost(words):
    context = "王芳出生于北京，是一名教师。"
    ids = words(context, add_special_tokens=False)["input_ids"]
    pieces = [words.convert_ids_to_tokens(token) for token in ids]
    assert "出生于北京" in pieces and "一名教师" not in pieces
    inside, exact = ask(context, "北京"), ask(context, "出生于北京", number=2)
    columns, coverage = training_windows(words, [inside, exact], 32)
    assert columns["start_positions"][0] == columns["end_positions"][0] == columns["start_positions"][1]
    assert (coverage.answers, coverage.inexact) == (2, 1)
    assert coverage.ceiling == {"exact_match": 0.5, "f1": pytest.approx((2 * 2 / (5 + 2) + 1) / 2)}
    (line,) = [line for line in coverage.notes(32) if "inside a token" in line]
    assert line.startswith("1 of 2 training answers") and "exact match 50.00, F1 78.57" in line


def test_a_question_whose_answer_no_window_holds_whole_is_not_trained_on(characters):
    long = ask("王" * 5 + "李" * 40, "李" * 40)
    columns, coverage = training_windows(characters, [long, ask("在北京。", "北京")], 32)
    assert coverage.too_long == 1 and coverage.windows == len(columns["input_ids"]) == 1
    with pytest.raises(UserError, match=r"no window of 32 tokens holds an answer whole; give a larger --max_length"):
        training_windows(characters, [long], 32)


def test_spaces_beside_an_answer_belong_to_it_and_to_its_token_alike(characters):
    context = "It is  in the north (of China)."
    _, coverage = training_windows(
        characters, [ask(context, " in the"), ask(context, "of China"), ask(context, "(")], 64
    )
    assert (coverage.answers, coverage.inexact) == (3, 0)


def test_covering_tokens_by_hand():
    offsets = np.array([(-1, -1), (0, 2), (2, 3), (4, 7), (-1, -1)])
    assert covering_tokens(offsets, 0, 2) == (1, 1)
    assert covering_tokens(offsets, 1, 5) == (1, 3)
    assert covering_tokens(offsets, 3, 4) is None  # a space: no token
    assert covering_tokens(offsets, 5, 8) is None  # goes on after the window
    assert covering_tokens(offsets[2:], 1, 3) is None  # began before it
    assert covering_tokens(offsets[:1], 0, 1) is None


def brute_force(start, end, offsets, cls, answer_length):
    inside = [token for token, (begin, _) in enumerate(offsets) if begin >= 0]
    log_start, log_end = (
        {
            token: logits[token] - np.log(sum(np.exp(logits[other]) for other in [cls, *inside]))
            for token in [cls, *inside]
        }
        for logits in (start, end)
    )
    pairs = [(i, j) for i in inside for j in inside if i <= j < i + answer_length]
    first, last = max(pairs, key=lambda pair: log_start[pair[0]] + log_end[pair[1]])
    return (offsets[first][0], offsets[last][1]), log_start[first] + log_end[last], log_start[cls] + log_end[cls]


def test_the_best_pair_is_that_of_trying_all():
    rng = np.random.default_rng(0)
    offsets = np.array(
        [(-1, -1)] * 4 + [(i, i + 1) for i in range(6)] + [(-1, -1)] + [(i, i + 2) for i in range(7, 12)]
    )
    places = set()
    for answer_length in (1, 3, 20):
        for _ in range(20):
            start, end = rng.normal(scale=3, size=(2, len(offsets)))
            best = best_in_window(start, end, offsets, 0, answer_length)
            place, score, no_answer = brute_force(start, end, offsets, 0, answer_length)
            assert best.place == place
            assert (best.score, best.no_answer) == (pytest.approx(score), pytest.approx(no_answer))
            places.add(place)
    assert len(places) > 20


def test_a_window_without_context_has_no_answer():
    best = best_in_window(np.zeros(3), np.zeros(3), np.full((3, 2), -1), 0, 5)
    assert best == Candidate(None, NOWHERE, 0)


def test_the_best_answer_over_all_windows_is_chosen_and_none_only_if_every_window_says_so():
    question = ask("在 北京 和上海")
    candidates = [Candidate((1, 5), -2.0, -0.5), Candidate((6, 8), -0.7, -1.0), Candidate((0, 1), -4.0, -0.1)]
    answer = choose_answer(question, candidates, may_be_none=True)
    assert (answer.text, answer.start, answer.end, answer.score) == ("上海", 6, 8, pytest.approx(np.exp(-0.7)))
    spaced = choose_answer(question, candidates[:1], may_be_none=False)
    assert (spaced.text, spaced.start, spaced.end) == ("北京", 2, 4)
    none = choose_answer(question, candidates[:1] + candidates[2:], may_be_none=True)
    assert (none.text, none.start, none.end, none.score) == ("", None, None, pytest.approx(np.exp(-0.5)))


def test_answers_are_those_of_each_question_alone_in_the_order_given(characters, monkeypatch):
    monkeypatch.setattr(predict, "BATCH_TOKENS", {"cpu": 96, "other": 96})  # three at most
    torch.manual_seed(0)
    model = TinyBertForQuestionAnswering(TinyBertConfig(vocab_size=len(characters), initializer_range=0.5))
    contexts = [row["context"] * (1 + index % 3) for index, row in enumerate(facts.make_rows(7))]
    questions = [ask(context, number=index) for index, context in enumerate([*contexts, " "])]
    together, cut = answer_questions(model, characters, questions, 32, 5, may_be_none=False)
    alone = [answer_questions(model, characters, [question], 32, 5, may_be_none=False)[0][0] for question in questions]
    assert cut == 0 and [answer.text for answer in together] == [answer.text for answer in alone]
    assert [answer.score for answer in together] == pytest.approx([answer.score for answer in alone], rel=1e-4)
    assert len({answer.text for answer in together}) > 4 and together[-1].text == ""
    for question, answer in zip(questions[:-1], together, strict=False):
        assert question.context[answer.start : answer.end] == answer.text != ""


def test_unfit_tokenizers_and_windows_without_room_are_one_line(characters):
    without = toy.make_tokenizer()
    without.backend_tokenizer.post_processor = None
    with pytest.raises(UserError, match=r"puts \[CLS\] before a text"):
        check_tokenizer(without)
    check_tokenizer(toy.make_tokenizer())
    with pytest.raises(UserError, match="leaves no room for a question and its context"):
        question_room(characters, 6)
