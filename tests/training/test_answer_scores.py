import random

import pytest

from training.answer_scores import SPACED, UNSPACED, rules_for, score_answer, score_answers, unspaced_units


@pytest.mark.parametrize(
    ("answer", "right", "exact", "f1"),
    [
        ("The Eiffel Tower!", ["eiffel  tower"], 1, 1),  # case, article, punctuation and spaces do not count
        ("in the Eiffel Tower", ["Eiffel Tower, Paris"], 0, 2 * 2 / (3 + 3)),  # in eiffel tower / eiffel tower paris
        ("tower tower", ["tower"], 0, 2 * 1 / (2 + 1)),  # each word counts as often as it stands there
        ("Paris", ["London", "Paris, France"], 0, 2 * 1 / (1 + 2)),  # the better of the right answers
        ("Paris", ["London"], 0, 0),
        ("", [], 1, 1),
        ("Paris", [], 0, 0),
        ("", ["Paris"], 0, 0),
    ],
)
def test_words_are_scored_as_by_hand(answer, right, exact, f1):
    assert score_answer(answer, right, SPACED) == (exact, pytest.approx(f1))


@pytest.mark.parametrize(
    ("answer", "right", "exact", "f1"),
    [
        ("《红楼梦》。", ["红楼梦"], 1, 1),
        ("北京的大学", ["北京大学"], 0, 2 * 2 / (5 + 4)),  # the longest run in common: 北京 (or 大学)
        ("在北京", ["北京市"], 0, 2 * 2 / (3 + 3)),
        ("iPhone 4S手机", ["iphone 4S"], 0, 2 * 2 / (4 + 2)),  # iphone 4s 手 机
        ("3.5亿", ["35亿"], 0, 2 * 1 / (2 + 2)),  # 3.5 亿 / 35 亿
        ("上海", ["广州", "上海市"], 0, 2 * 2 / (2 + 3)),
        ("", [], 1, 1),
        ("。", ["上海"], 0, 0),
    ],
)
def test_characters_are_scored_as_by_hand(answer, right, exact, f1):
    assert score_answer(answer, right, UNSPACED) == (exact, pytest.approx(f1))


def test_the_f1_of_characters_counts_the_longest_common_run():
    rng = random.Random(0)
    for _ in range(200):
        left, right = ("".join(rng.choices("甲乙丙", k=rng.randint(1, 8))) for _ in range(2))
        pieces = {left[i:j] for i in range(len(left)) for j in range(i + 1, len(left) + 1)}
        longest = max((len(piece) for piece in pieces if piece in right), default=0)
        assert score_answer(left, [right], UNSPACED)[1] == pytest.approx(2 * longest / (len(left) + len(right)))


def test_units_of_mixed_text():
    assert unspaced_units("在iOS 9.2里：don't、（甲）") == ["在", "ios", "9.2", "里", "don't", "甲"]


def test_scores_are_means_over_the_questions():
    scores = score_answers(["甲乙", "丙", ""], [["甲乙"], ["丁"], []], UNSPACED)
    assert scores == {"exact_match": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}


def test_the_script_of_the_contexts_chooses_the_rules():
    assert rules_for(["北京 is 首都之一"]) is UNSPACED
    assert rules_for(["Peking (北京) is the capital"]) is SPACED
