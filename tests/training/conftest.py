import numpy as np
import pytest

from training.tokenizer import train_tokenizer


# Words that follow one another by rule, so that a model that uses context predicts better than one that counts.
SUBJECTS = ["我", "你", "他", "我们", "孩子"]
VERBS = ["喜欢", "讨厌", "看过", "买了", "读完"]
OBJECTS = ["这本书", "这家酒店", "那部电影", "新手机", "早餐"]


def make_sentences(number: int, seed: int = 0) -> list[str]:
    """`number` different sentences of Chinese with some English and digits."""
    generator = np.random.default_rng(seed)
    sentences = []
    for i in range(number):
        subject, verb, what = (generator.choice(words) for words in (SUBJECTS, VERBS, OBJECTS))
        sentences.append(f"{subject}{verb}{what}，no {i} ok。")
    return sentences


@pytest.fixture(scope="session")
def sentences():
    return make_sentences(400)


@pytest.fixture(scope="session")
def tokenizer(sentences):
    return train_tokenizer([*sentences, "我爱读书好"] * 2)
