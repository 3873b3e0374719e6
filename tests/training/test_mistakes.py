import csv

import numpy as np
from scipy.special import softmax
from sklearn.metrics import confusion_matrix

from training.mistakes import MOST_LABELS, judge, write_mistakes


NAMES = ["a", "b", "c"]


def test_the_confusion_matrix_is_that_of_sklearn():
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(200, 3)), generator.integers(0, 3, 200)
    expected = confusion_matrix(labels, logits.argmax(axis=-1))
    assert judge(logits, labels, NAMES)["confusion"] == expected.tolist()


def test_the_surest_mistakes_come_first_and_right_answers_not_at_all():
    generator = np.random.default_rng(1)
    logits, labels = generator.normal(size=(50, 3)) * 3, generator.integers(0, 3, 50)
    wrong = []
    for row, (scores, label) in enumerate(zip(logits, labels, strict=True), start=1):
        shares = softmax(scores)
        if shares.argmax() != label:
            wrong.append((-shares.max(), row, NAMES[label], NAMES[shares.argmax()]))
    found = judge(logits, labels, NAMES)["mistakes"]
    assert len(wrong) > 10 and len(found) == 10
    for one, (probability, row, label, answer) in zip(found, sorted(wrong), strict=False):
        assert one == {"row": row, "label": label, "answer": answer, "probability": round(-probability, 4)}


def test_no_mistake_is_no_list_and_many_labels_have_no_matrix():
    logits = np.eye(MOST_LABELS + 1)
    judged = judge(logits, np.arange(MOST_LABELS + 1), [str(index) for index in range(MOST_LABELS + 1)])
    assert judged == {"mistakes": []}


def test_the_table_for_the_user_has_the_texts_whatever_is_in_them(tmp_path):
    texts = ["fine", 'tab\t, "quote"\nand line', "很好"]
    judged = judge(np.array([[1.0, 0], [1, 0], [1, 0]]), np.array([0, 1, 1]), ["x", "y"])
    write_mistakes(tmp_path / "mistakes.tsv", judged["mistakes"], texts, None)
    with (tmp_path / "mistakes.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [(row["row"], row["label"], row["answer"], row["text"]) for row in rows] == [
        ("2", "y", "x", texts[1]),
        ("3", "y", "x", texts[2]),
    ]
