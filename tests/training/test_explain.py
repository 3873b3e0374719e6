import json
import math

import numpy as np
import pytest
import torch

from tests.training import toy
from tests.training.pictures import assert_publishable
from training.__main__ import main
from training.attribution import attribute
from training.explain import PADDING_SHOWN, attend
from training.predict import FineTuned, Task
from training.readable_tokens import read_text


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return toy.save_pretrained(tmp_path_factory.mktemp("encoder"))


def classifier(encoder, problem_type, num_labels=3, task="sequence-classification", pair=None, auto_class=None):
    """An untrained one: what is explained need not be wise."""
    import transformers

    auto_class = auto_class or "AutoModelForSequenceClassification"
    torch.manual_seed(1)
    model = getattr(transformers, auto_class).from_pretrained(
        encoder, num_labels=num_labels, problem_type=problem_type, initializer_range=1.0
    )
    with torch.no_grad():  # one that is not indifferent
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    tokenizer = toy.make_tokenizer()
    names = [f"标签{index}" for index in range(num_labels)] if problem_type != "regression" else None
    return FineTuned(
        model.eval(),
        tokenizer,
        Task(
            task=task, problem_type=problem_type, text_column="text", text_pair_column=pair, label_column="stars",
            max_length=16, label_names=names,
        ),
    )  # fmt: skip


def save(finetuned, folder):
    import dataclasses

    finetuned.model.save_pretrained(folder)
    finetuned.tokenizer.save_pretrained(folder)
    task = json.dumps(dataclasses.asdict(finetuned.task))
    (folder / "task.json").write_text(task, encoding="utf-8")
    return folder


def run(model, output_dir, text="房间喜欢书", *more):
    return main(["explain", "--model", str(model), "--text", text, "--output_dir", str(output_dir), *more])


def logits_of(finetuned, ids, hidden=None):
    """One text alone, without padding, a token of it hidden."""
    seen = torch.tensor([[int(place != hidden) for place in range(len(ids))]])
    with torch.no_grad():
        return finetuned.model(torch.tensor([ids]), attention_mask=seen).logits[0].double()


def log_odds(logits, answer):
    probability = logits.softmax(dim=-1)[answer].item()
    return math.log(probability / (1 - probability))


def test_a_token_adds_the_log_odds_that_go_when_it_is_hidden(encoder):
    finetuned = classifier(encoder, "single_label_classification")
    found = attribute(finetuned, "房间喜欢书")
    ids = finetuned.tokenizer("房间喜欢书")["input_ids"]
    whole = logits_of(finetuned, ids)
    answer = int(whole.argmax())
    assert found.label == f"标签{answer}"
    assert found.probability == pytest.approx(whole.softmax(dim=-1)[answer].item(), abs=1e-5)
    assert found.evidence == pytest.approx(log_odds(whole, answer), abs=1e-4)
    assert found.tokens == ["[CLS]", *"房间喜欢书", "[SEP]"] and found.positions == [1, 2, 3, 4, 5]
    for at in found.positions:
        expected = log_odds(whole, answer) - log_odds(logits_of(finetuned, ids, hidden=at), answer)
        assert found.scores[at] == pytest.approx(expected, abs=1e-4)
    assert max(map(abs, found.scores)) > 0.01 and found.scores[0] == found.scores[-1] == 0


def test_of_several_labels_the_likeliest_is_explained_by_itself(encoder):
    finetuned = classifier(encoder, "multi_label_classification")
    found = attribute(finetuned, "服务讨厌")
    ids = finetuned.tokenizer("服务讨厌")["input_ids"]
    whole = logits_of(finetuned, ids)
    answer = int(whole.argmax())
    assert found.probability == pytest.approx(whole.sigmoid()[answer].item(), abs=1e-5)
    expected = (whole - logits_of(finetuned, ids, hidden=2))[answer].item()
    assert found.scores[2] == pytest.approx(expected, abs=1e-4)


def test_of_a_number_what_it_loses_is_explained(encoder):
    finetuned = classifier(encoder, "regression", num_labels=1)
    found = attribute(finetuned, "服务讨厌")
    ids = finetuned.tokenizer("服务讨厌")["input_ids"]
    assert (found.label, found.probability) == ("stars", None)
    expected = (logits_of(finetuned, ids) - logits_of(finetuned, ids, hidden=1)).item()
    assert found.scores[1] == pytest.approx(expected, abs=1e-4)


def test_tokens_that_the_model_does_not_look_at_add_nothing(encoder):
    finetuned = classifier(encoder, "single_label_classification")
    finetuned.model.config.classifier_pooling = "cls"
    with torch.no_grad():
        for layer in finetuned.model.tinybert.layers:
            layer.attention.out_proj.weight.zero_()
    assert attribute(finetuned, "书房间").scores == pytest.approx([0.0] * 5, abs=1e-5)


def test_what_the_model_sees_is_what_changes_its_output(encoder):
    """Every token changes the state of every token; padding changes none."""
    finetuned = classifier(encoder, "single_label_classification")
    reading = read_text(finetuned.tokenizer, "房间喜欢", None, 16)
    attention = attend(finetuned.model, finetuned.tokenizer, reading)
    n = len(reading.tokens)
    ids = torch.tensor([reading.inputs["input_ids"] + [0] * PADDING_SHOWN])
    mask = torch.tensor([[1] * n + [0] * PADDING_SHOWN])

    def states(ids):
        with torch.no_grad():
            return finetuned.model.base_model(ids, attention_mask=mask).last_hidden_state[0]

    changes = np.zeros((n, n + PADDING_SHOWN), dtype=bool)
    for column in range(n + PADDING_SHOWN):
        other = ids.clone()
        other[0, column] = 7 if ids[0, column] != 7 else 8
        changes[:, column] = ((states(ids) - states(other)).abs().amax(dim=-1) > 0)[:n].numpy()
    assert (changes == attention.seen[:n]).all()
    assert attention.seen[:n, :n].all() and not attention.seen[:, n:].any() and not attention.seen[n:].any()


def test_attention_weights_are_shares_of_each_layer_and_head(encoder):
    finetuned = classifier(encoder, "single_label_classification")
    reading = read_text(finetuned.tokenizer, "房间喜欢", None, 16)
    weights = attend(finetuned.model, finetuned.tokenizer, reading).weights
    config = finetuned.model.config
    assert weights.shape == (config.num_hidden_layers, config.num_attention_heads, 6, 6)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)


def test_a_classifier_is_explained_in_pictures_and_words(encoder, tmp_path, capsys):
    model = save(classifier(encoder, "single_label_classification"), tmp_path / "model")
    before = sorted(path.name for path in model.iterdir())
    assert run(model, tmp_path / "out", "房间喜欢书" * 4, "--picture_language", "zh") == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "attention.png", "visibility.png", "explanation.png",
    }  # fmt: skip
    for path in (tmp_path / "out").iterdir():
        assert_publishable(path)
    out = capsys.readouterr().out
    assert "the text is longer than the 16 tokens that the model reads; the rest is cut" in out
    assert "layer 2, head 1: [CLS]>" in out
    assert f"  {'#' * 16}...    causal: #{'.' * 18}  [CLS]" in out
    assert f"  {'.' * 19}    causal: {'.' * 19}  (padding)" in out
    assert "answer: 标签" in out and "by hiding it:" in out
    assert str(tmp_path / "out" / "explanation.png") in out
    assert sorted(path.name for path in model.iterdir()) == before


def test_an_encoder_has_attention_but_no_answer(encoder, tmp_path, capsys):
    assert run(encoder, tmp_path / "out") == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"attention.png", "visibility.png"}
    assert "no explanation of an answer: the model does not classify texts" in capsys.readouterr().out


def test_a_mistake_is_told_before_anything_is_drawn(encoder, tmp_path, capsys):
    pairs = save(classifier(encoder, "single_label_classification", pair="second"), tmp_path / "pairs")
    single = save(classifier(encoder, "single_label_classification"), tmp_path / "single")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for model, output_dir, text, more, told in (
        (encoder, "full", "书", [], "is not empty"),
        (encoder, "out", "\u3000 ", [], "is empty or holds a NUL character"),
        (tmp_path / "none", "out", "书", [], "is no folder"),
        (pairs, "out", "书", [], "takes two texts; give the second with --text_pair"),
        (single, "out", "书", ["--text_pair", "店"], "takes one text; leave --text_pair out"),
    ):
        assert run(model, tmp_path / output_dir, text, *more) == 2
        assert told in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
    assert run(pairs, tmp_path / "out", "书店", "--text_pair", "房间") == 0
    assert "tokens (7): [CLS] 书 店 [SEP] 房 间 [SEP]" in capsys.readouterr().out
