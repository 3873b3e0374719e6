"""What answers a question without having learnt anything: word overlap, as in the baseline of the SQuAD paper."""

import re
from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from training.answer_scores import HAN
from training.squad import Question


UNITS = re.compile(rf"[{HAN}]|[^\W{HAN}]+")
SENTENCES = re.compile(r"[^。！？；!?;\n]+?(?:[。！？；!?;\n]|\.(?=\s)|$)", re.MULTILINE)
BREAKS = re.compile(r"[^\w\s]")


def overlap_answers(questions: Sequence[Question]) -> list[str]:
    """For each question a piece of its context, found by the words that both have.

    In the sentence that is most like the question (TF-IDF over characters and pairs of them, of other scripts words),
    the longest run between punctuation marks of what the question does not say. The SQuAD paper (Rajpurkar et al.
    2016, arXiv 1606.05250, section 5) chooses among the constituents of a parse in the same spirit: F1 20.

    Returns:
        An answer each; empty where the context is blank.
    """
    sentences = [[match[0] for match in SENTENCES.finditer(question.context)] for question in questions]
    everything = [sentence for group in sentences for sentence in group] + [
        question.question for question in questions
    ]
    if not any(map(UNITS.search, everything)):
        return [""] * len(questions)
    vectorizer = TfidfVectorizer(tokenizer=_units, token_pattern=None, ngram_range=(1, 2), sublinear_tf=True)
    vectorizer.fit(everything)
    return [
        _longest_new_run(_most_alike(vectorizer, question.question, group), question.question) if group else ""
        for question, group in zip(questions, sentences, strict=True)
    ]


def _units(text: str) -> list[str]:
    return UNITS.findall(text.lower())


def _most_alike(vectorizer: TfidfVectorizer, question: str, sentences: list[str]) -> str:
    alike = (vectorizer.transform(sentences) @ vectorizer.transform([question]).T).toarray()[:, 0]
    return sentences[int(np.argmax(alike))]


def _longest_new_run(sentence: str, question: str) -> str:
    """The longest stretch of a sentence without punctuation and without units of the question."""
    known, runs, start = set(_units(question)), [], None
    end = 0
    for unit in UNITS.finditer(sentence):
        broken = start is None or BREAKS.search(sentence, end, unit.start()) is not None
        if unit[0].lower() in known:
            start = None
            continue
        if broken:
            start = unit.start()
        end = unit.end()
        runs.append((start, end))
    if not runs:
        return sentence.strip()
    start, end = max(runs, key=lambda run: run[1] - run[0])
    return sentence[start:end]
