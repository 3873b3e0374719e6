import random

from training.crf import features, fit_crf


def test_features_see_two_tokens_on_either_side_and_the_ends():
    first, second = features(["北", "京"])
    assert {"0:北", "+1:京", "-1:\t", "+2:\t", "0+1:北\t京"} <= set(first)
    assert {"0:京", "-1:北", "-2:\t", "-1+0:北\t京"} <= set(second)
    assert not set(first) & {"0:京"}


def test_words_have_a_shape_and_ends():
    (word,) = features(["McDonald5"])
    assert {"shape:XxXxxxxx0", "start:mcd", "end:ld5"} <= set(word)


def test_an_entity_that_only_its_neighbours_tell_is_found():
    rng = random.Random(0)
    rows, labels = [], []
    for _ in range(100):
        row, at = rng.choices("甲乙丙丁", k=6), rng.randrange(5)
        row[at] = "在"
        rows.append(row)
        labels.append(["B-LOC" if index == at + 1 else "O" for index in range(6)])
    assert fit_crf(rows, labels).predict([["丁", "在", "丙", "乙"]]) == [["O", "O", "B-LOC", "O"]]


def test_the_same_rows_give_the_same_crf_every_time():
    rng = random.Random(1)
    rows = [rng.choices("甲乙丙丁戊", k=8) for _ in range(60)]
    labels = [rng.choices(["O", "B-LOC"], k=8) for _ in rows]
    weights = [fit_crf(rows, labels).model.state_features_ for _ in range(2)]
    assert weights[0] == weights[1]
