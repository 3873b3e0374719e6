import ast
import inspect
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert import BertConfig, BertModel

import hf_tinybert
from hf_tinybert import (
    TinyBertConfig,
    TinyBertForMaskedLM,
    TinyBertForMultipleChoice,
    TinyBertForQuestionAnswering,
    TinyBertForSequenceClassification,
    TinyBertForTokenClassification,
    TinyBertModel,
)
from hf_tinybert.configuration_tinybert import AUTO_MAP
from hf_tinybert.modeling_tinybert import _LinearCrossEntropy, eager_attention_forward
from tests.reference_model import make_reference_model
from training.import_reference import import_state_dict


HEADS = [
    (TinyBertModel, AutoModel),
    (TinyBertForMaskedLM, AutoModelForMaskedLM),
    (TinyBertForSequenceClassification, AutoModelForSequenceClassification),
    (TinyBertForTokenClassification, AutoModelForTokenClassification),
    (TinyBertForQuestionAnswering, AutoModelForQuestionAnswering),
    (TinyBertForMultipleChoice, AutoModelForMultipleChoice),
]
ALL_CLASSES = [model_class for model_class, _ in HEADS]
OF_TEXTS = [TinyBertForSequenceClassification, TinyBertForMultipleChoice]  # one answer a text, not one a token
# Pooling matters to classifiers of texts alone.
CLASSES_AND_POOLINGS = [*((each, "cls") for each in ALL_CLASSES), *((each, "mean") for each in OF_TEXTS)]
VARIANTS = [
    {"norm_placement": norm, "position_embedding_type": position}
    for norm in ("post", "pre")
    for position in ("learned", "rotary")
]


def make_batch(batch_size=3, sequence_length=12, vocab_size=50):
    """Ids without the padding id, and a mask that pads the second row on the right and the third on the left."""
    input_ids = torch.randint(1, vocab_size, (batch_size, sequence_length))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[1, 7:] = 0
    attention_mask[2:, :4] = 0
    return input_ids, attention_mask


def inputs_for(model_class, input_ids, **others):
    """Inputs of a class as keywords: multiple choice gets each text beside another of the same length, (B, 2, S)."""
    if model_class is not TinyBertForMultipleChoice:
        return {"input_ids": input_ids, **others}
    others = {name: None if value is None else torch.stack((value, value), 1) for name, value in others.items()}
    return {"input_ids": torch.stack((input_ids, input_ids % 49 + 1), 1), **others}


def labels_for(model_class, batch_size=3, sequence_length=12):
    """Random labels as keywords; some of a class that labels tokens are -100, and some answers end too late."""

    def classes(count, *shape):
        return torch.randint(count, shape, generator=torch.Generator().manual_seed(5))

    if model_class is TinyBertForQuestionAnswering:
        positions = classes(sequence_length, 2, batch_size)
        positions[1, 0] = sequence_length + 3
        return {"start_positions": positions[0], "end_positions": positions[1]}
    if model_class in OF_TEXTS:
        return {"labels": classes(2, batch_size)}
    labels = classes(2, batch_size, sequence_length)
    labels[0, ::2] = labels[1, 3:] = -100
    return {"labels": labels}


def first_output(model, *args, **kwargs):
    with torch.no_grad():
        return model(*args, **kwargs)[0]


def answer(model, input_ids, **others):
    """What a model of any class says about texts: one row a text, or one (B, S, ...) a token."""
    with torch.no_grad():
        outputs = model(**inputs_for(type(model), input_ids, **others))
    if isinstance(model, TinyBertForQuestionAnswering):
        return torch.stack((outputs.start_logits, outputs.end_logits), dim=-1)
    return outputs[0]


def assert_close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


# ---------------------------------------------------------------------------------------------------------------------
# The reference model
# ---------------------------------------------------------------------------------------------------------------------

SHAPES = [
    {},
    {"num_layers": 1, "nhead": 1},
    {"num_layers": 3, "nhead": 8, "vocab_size": 333, "max_len": 20, "num_labels": 5},
    {"d_model": 36, "nhead": 3, "vocab_size": 90, "max_len": 17, "num_labels": 1},
]


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True], ids=["unpadded", "padded"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_imported_reference_weights_give_the_reference_numbers(shape, padded, attn_implementation):
    reference = make_reference_model(**shape)
    num_heads, max_len = shape.get("nhead", 4), shape.get("max_len", 64)
    input_ids = torch.randint(1, shape.get("vocab_size", 1000), (4, max_len))
    mask = torch.ones_like(input_ids)
    if padded:
        for row, length in enumerate((max_len, max_len // 2, 3, 1)):
            mask[row, length:] = 0
    models = [import_state_dict(reference.state_dict(), num_heads, head) for head in ("masked-lm", "classification")]
    for model in models:
        model.set_attn_implementation(attn_implementation)

    with torch.no_grad():
        hidden, mlm_logits, class_logits = reference(input_ids, mask if padded else None)
        masked_lm, classifier = (model(input_ids, attention_mask=mask if padded else None) for model in models)
        ours = models[0].tinybert(input_ids, attention_mask=mask).last_hidden_state

    assert hidden.std() > 0.5 and class_logits.abs().max() > 0.1  # the numbers are worth comparing
    real = mask.bool()
    assert_close(ours[real], hidden[real])
    assert_close(masked_lm.logits[real], mlm_logits[real])
    assert_close(classifier.logits, class_logits)


def test_default_config_is_the_shape_of_the_default_reference():
    theirs = make_reference_model()
    ours = TinyBertForMaskedLM(TinyBertConfig())

    imported = import_state_dict(theirs.state_dict(), 4, "masked-lm")

    assert {name: tensor.shape for name, tensor in ours.state_dict().items()} == {
        name: tensor.shape for name, tensor in imported.state_dict().items()
    }
    default, made = TinyBertConfig().to_dict(), imported.config.to_dict()
    assert {key for key in default if default[key] != made[key]} <= {"architectures", "dtype"}


def test_training_gradients_equal_those_of_the_reference():
    reference = make_reference_model(dropout=0.0)
    model = import_state_dict(reference.state_dict(), 4, "masked-lm")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    input_ids, mask = make_batch(2, 12, 1000)
    labels = torch.where(torch.rand(input_ids.shape) < 0.4, input_ids, -100).masked_fill(mask == 0, -100)

    _, logits, _ = reference.train()(input_ids, mask)
    F.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    model.train()(input_ids, attention_mask=mask, labels=labels).loss.backward()

    gradients = {
        name: parameter.grad for name, parameter in reference.named_parameters() if parameter.grad is not None
    }
    ours = import_state_dict(gradients | {"cls_head.weight": torch.zeros(2, 64)}, 4, "masked-lm")
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, ours.get_parameter(name).data, 1e-6)


def test_dropout_acts_in_train_mode_only(tiny_model):
    model = tiny_model(TinyBertModel, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0)
    input_ids, _ = make_batch()

    assert torch.equal(first_output(model, input_ids), first_output(model, input_ids))
    model.train()
    assert not torch.equal(first_output(model, input_ids), first_output(model, input_ids))


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_attention_dropout_acts_in_train_mode_only(tiny_model, attn_implementation):
    model = tiny_model(
        TinyBertModel,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.5,
        attn_implementation=attn_implementation,
    )
    input_ids, _ = make_batch()

    assert torch.equal(first_output(model, input_ids), first_output(model, input_ids))
    model.train()
    assert not torch.equal(first_output(model, input_ids), first_output(model, input_ids))


def test_pre_norm_equals_torchs_norm_first(tiny_model):
    model = tiny_model(TinyBertModel, norm_placement="pre", num_hidden_layers=1)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 64, batch_first=True, activation="gelu", norm_first=True).eval()
    ours = model.layers[0]
    pairs = {
        "self_attn.in_proj_": ours.attention.qkv_proj,
        "self_attn.out_proj.": ours.attention.out_proj,
        "linear1.": ours.mlp.up_proj,
        "linear2.": ours.mlp.down_proj,
        "norm1.": ours.attention_norm,
        "norm2.": ours.mlp_norm,
    }
    layer.load_state_dict(
        {f"{name}{kind}": getattr(module, kind) for name, module in pairs.items() for kind in ("weight", "bias")}
    )
    states = torch.randn(2, 5, 16)

    with torch.no_grad():
        assert_close(ours(states), layer(states))


# ---------------------------------------------------------------------------------------------------------------------
# Attention, masks, positions
# ---------------------------------------------------------------------------------------------------------------------


def worked_example():
    """我 = [1,0], 爱 = [0,1], 你 = [1,1], each attending to all by softmax(q k / sqrt 2), by hand in Python."""
    vectors = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    weights, outputs = [], []
    for query in vectors:
        powers = [math.exp((query[0] * key[0] + query[1] * key[1]) / math.sqrt(2)) for key in vectors]
        row = [power / sum(powers) for power in powers]
        weights.append(row)
        outputs.append([sum(weight * vector[i] for weight, vector in zip(row, vectors, strict=True)) for i in (0, 1)])
    return torch.tensor(vectors), torch.tensor(weights), torch.tensor(outputs)


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_attention_gives_the_worked_example(attn_implementation):
    vectors, expected_weights, expected_output = worked_example()
    states = vectors[None, None]  # (B, N, S, D)
    attention = ALL_ATTENTION_FUNCTIONS.get_interface(attn_implementation, eager_attention_forward)
    module = torch.nn.Module().eval()
    module.is_causal = False

    output, weights = attention(module, states, states, states, None, scaling=2**-0.5, dropout=0.0)

    assert_close(output[0, :, 0], expected_output, 1e-6)
    assert [round(value, 2) for value in output[0, 1, 0].tolist()] == [0.60, 0.80]
    if attn_implementation == "eager":
        assert_close(weights[0, 0], expected_weights, 1e-6)
        assert [round(value, 2) for value in weights[0, 0, 1].tolist()] == [0.20, 0.40, 0.40]


def test_eager_attention_adds_the_mask_to_the_scores():
    vectors, _, _ = worked_example()
    states = vectors[None, None]
    mask = torch.tensor([0.0, 0.0, torch.finfo(torch.float32).min]).expand(1, 1, 3, 3)

    output, weights = eager_attention_forward(torch.nn.Module().eval(), states, states, states, mask, scaling=1.0)

    seen = math.exp(1.0) / (1 + math.exp(1.0))  # of 我 and 爱, what 我 gives to itself
    assert_close(weights[0, 0, 0], torch.tensor([seen, 1 - seen, 0.0]), 1e-6)
    assert_close(output[0, 0, 0], torch.tensor([seen, 1 - seen]), 1e-6)


def block_mask(lengths, sequence_length):
    """(1, 1, S, S): True where two tokens belong to one document. What follows the last document sees nothing."""
    mask = torch.zeros(1, 1, sequence_length, sequence_length, dtype=torch.bool)
    start = 0
    for length in lengths:
        mask[..., start : start + length, start : start + length] = True
        start += length
    return mask


def masks_by_name():
    _, padding = make_batch()
    packed = block_mask([5, 7], 12).expand(3, 1, 12, 12)
    additive = torch.zeros(packed.shape).masked_fill(~packed, torch.finfo(torch.float32).min)
    return {"none": None, "2-D": padding, "4-D bool": packed, "4-D additive": additive}


@pytest.mark.parametrize("mask_name", ["none", "2-D", "4-D bool", "4-D additive"])
@pytest.mark.parametrize("model_class, pooling", CLASSES_AND_POOLINGS)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(variant.values()))
def test_eager_and_sdpa_agree(tiny_model, variant, model_class, pooling, mask_name):
    model = tiny_model(model_class, classifier_pooling=pooling, **variant)
    input_ids, padding = make_batch()
    mask = masks_by_name()[mask_name]
    real = padding.bool() if mask_name == "2-D" and model_class not in OF_TEXTS else ...
    results = {}
    for name in ("eager", "sdpa"):
        model.set_attn_implementation(name)
        results[name] = answer(model, input_ids, attention_mask=mask)

    assert_close(results["eager"][real], results["sdpa"][real])
    if mask is not None:
        assert not torch.allclose(results["sdpa"], answer(model, input_ids), atol=1e-3)


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_additive_and_bool_masks_of_pairs_agree(tiny_model, attn_implementation):
    model = tiny_model(TinyBertModel, attn_implementation=attn_implementation)
    input_ids, _ = make_batch()
    masks = masks_by_name()

    as_bool = first_output(model, input_ids, attention_mask=masks["4-D bool"])
    as_additive = first_output(model, input_ids, attention_mask=masks["4-D additive"])

    assert_close(as_bool, as_additive)


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_additive_mask_may_be_of_another_precision_than_the_model(tiny_model, attn_implementation):
    model = tiny_model(TinyBertModel, attn_implementation=attn_implementation).to(torch.bfloat16)
    input_ids, _ = make_batch()
    masks = masks_by_name()
    masks["4-D additive"][:, :, 0] = torch.finfo(torch.float32).min  # a token that sees nothing
    masks["4-D bool"] = masks["4-D bool"].clone()
    masks["4-D bool"][:, :, 0] = False

    outputs = first_output(model, input_ids, attention_mask=masks["4-D additive"])

    assert outputs.dtype == torch.bfloat16 and outputs.isfinite().all()
    assert torch.equal(outputs, first_output(model, input_ids, attention_mask=masks["4-D bool"]))


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_mask_of_pairs_made_of_integers_is_refused(tiny_model, attn_implementation):
    model = tiny_model(TinyBertModel, attn_implementation=attn_implementation)
    input_ids, _ = make_batch()

    with pytest.raises(ValueError, match=r"int64.*bool"):
        model(input_ids, attention_mask=masks_by_name()["4-D bool"].long())


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_mask_of_the_wrong_shape_is_refused(tiny_model, attn_implementation):
    model = tiny_model(TinyBertModel, attn_implementation=attn_implementation)
    input_ids, mask = make_batch()

    with pytest.raises(ValueError, match=r"\(3, 11\).*\(3, 12\)"):
        model(input_ids, attention_mask=mask[:, 1:])
    with pytest.raises(ValueError, match=r"\(3, 12, 12\)"):
        model(input_ids, attention_mask=torch.ones(3, 12, 12))


@pytest.mark.slow
def test_flex_attention_agrees_with_eager(tiny_model, tmp_path):
    model = tiny_model(TinyBertModel)
    model.save_pretrained(tmp_path)
    input_ids, mask = make_batch()
    expected = first_output(model, input_ids, attention_mask=mask)
    model = TinyBertModel.from_pretrained(tmp_path, attn_implementation="flex_attention")

    assert_close(first_output(model, input_ids, attention_mask=mask)[mask.bool()], expected[mask.bool()])
    torch.compiler.reset()  # a second compilation fails on CPU (torch 2.13): cur_kvSplitSize5 undeclared
    packed = block_mask([5, 7], 12)
    model.set_attn_implementation("eager")
    expected = first_output(model, input_ids, attention_mask=packed)
    model.set_attn_implementation("flex_attention")
    assert_close(first_output(model, input_ids, attention_mask=packed), expected)
    with pytest.raises(ValueError, match=r"flex_attention takes no 4-D.*float32.*sdpa"):
        model(input_ids, attention_mask=packed.float())


def test_recorded_attention_weights_are_a_distribution_over_attended_tokens(tiny_model):
    model = tiny_model(TinyBertForMaskedLM, attn_implementation="eager")
    input_ids, mask = make_batch()

    attentions = model(input_ids, attention_mask=mask, output_attentions=True).attentions

    assert len(attentions) == 2
    for weights in attentions:
        assert weights.shape == (3, 2, 12, 12)
        assert_close(weights.sum(-1), torch.ones(3, 2, 12))
        assert (weights * (mask == 0)[:, None, None, :]).abs().max() == 0


@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_hidden_states_are_layers_plus_one_and_end_with_the_last(tiny_model, norm_placement):
    """As with BertModel: the embedding comes first, `last_hidden_state` (ours: after the final norm) last."""
    model = tiny_model(TinyBertModel, norm_placement=norm_placement)
    bert = BertModel(BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)).eval()
    input_ids, _ = make_batch()

    ours, theirs = (each(input_ids, output_hidden_states=True) for each in (model, bert))

    assert len(ours.hidden_states) == len(theirs.hidden_states) == 3
    assert torch.equal(theirs.hidden_states[-1], theirs.last_hidden_state)
    assert torch.equal(ours.hidden_states[-1], ours.last_hidden_state)
    embedded = model.embeddings.token_embeddings(input_ids) + model.embeddings.position_embeddings.weight[:12]
    assert_close(ours.hidden_states[0], embedded, 1e-6)
    assert_close(ours.hidden_states[1], model.layers[0](embedded), 1e-6)


@pytest.mark.parametrize("model_class", ALL_CLASSES)
@pytest.mark.parametrize("where", ["argument", "config"])
def test_return_dict_false_gives_a_tuple_of_the_same(tiny_model, model_class, where):
    model = tiny_model(model_class)
    inputs = inputs_for(model_class, make_batch()[0])
    expected = [value for value in model(**inputs).to_tuple() if value is not None]

    if where == "config":
        model.config.return_dict = False
        outputs = model(**inputs, output_hidden_states=True)
    else:
        outputs = model(**inputs, output_hidden_states=True, return_dict=False)

    assert type(outputs) is tuple and len(outputs) == len(expected) + 1
    assert all(torch.equal(*pair) for pair in zip(outputs, expected, strict=False))
    assert len(outputs[-1]) == 3


@pytest.mark.parametrize("model_class", ALL_CLASSES)
@pytest.mark.parametrize("embedding_size", [None, 6])
@pytest.mark.parametrize("position_embedding_type", ["learned", "rotary"])
def test_embeddings_in_place_of_ids_and_explicit_positions_change_nothing(
    tiny_model, model_class, position_embedding_type, embedding_size
):
    model = tiny_model(model_class, position_embedding_type=position_embedding_type, embedding_size=embedding_size)
    input_ids, mask = make_batch()
    expected = answer(model, input_ids, attention_mask=mask)
    counted = torch.stack([torch.arange(12), torch.arange(12), (torch.arange(12) - 4).clamp(min=0)])

    inputs = inputs_for(model_class, input_ids, attention_mask=mask)
    inputs["inputs_embeds"] = model.get_input_embeddings()(inputs.pop("input_ids"))
    first = expected[..., 0] if model_class is TinyBertForQuestionAnswering else expected
    assert torch.equal(first_output(model, **inputs), first)
    assert torch.equal(answer(model, input_ids, attention_mask=mask, position_ids=counted), expected)
    other = answer(model, input_ids, attention_mask=mask, position_ids=counted * 2)
    assert not torch.allclose(other, expected, atol=1e-4)


def test_rotary_attention_sees_distances_only(tiny_model):
    model = tiny_model(TinyBertModel, position_embedding_type="rotary")
    input_ids, _ = make_batch()
    positions = torch.arange(12)[None]

    assert_close(first_output(model, input_ids, position_ids=positions + 9), first_output(model, input_ids))


@pytest.mark.parametrize("model_class", ALL_CLASSES)
def test_ids_and_embeddings_together_or_neither_are_refused(tiny_model, model_class):
    model = tiny_model(model_class)
    ids = torch.ones(1, 2, 3, dtype=torch.long)
    ids = ids if model_class is TinyBertForMultipleChoice else ids[0]
    with pytest.raises(ValueError, match="exactly one"):
        model()
    with pytest.raises(ValueError, match="exactly one"):
        model(ids, inputs_embeds=torch.zeros(*ids.shape, 16))


@pytest.mark.parametrize("given", ["input_ids", "inputs_embeds"])
def test_texts_without_a_dimension_of_choices_are_refused_by_their_shape(tiny_model, given):
    model = tiny_model(TinyBertForMultipleChoice)
    input_ids, _ = make_batch()
    inputs = input_ids if given == "input_ids" else model.get_input_embeddings()(input_ids)

    with pytest.raises(ValueError, match=r"\(3, 12.*num_choices"):
        model(**{given: inputs})


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("model_class, pooling", CLASSES_AND_POOLINGS)
def test_no_mask_equals_ones_of_any_type(tiny_model, model_class, pooling, attn_implementation):
    model = tiny_model(model_class, classifier_pooling=pooling, attn_implementation=attn_implementation)
    input_ids, mask = make_batch()
    without = answer(model, input_ids)
    padded = answer(model, input_ids, attention_mask=mask)

    assert not torch.allclose(without[1:], padded[1:], atol=1e-3)
    for dtype in (torch.bool, torch.int32, torch.int64, torch.float32):
        assert_close(answer(model, input_ids, attention_mask=torch.ones_like(mask, dtype=dtype)), without, 1e-6)
        assert torch.equal(answer(model, input_ids, attention_mask=mask.to(dtype)), padded)


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("model_class, pooling", CLASSES_AND_POOLINGS)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(variant.values()))
def test_padding_changes_nothing(tiny_model, variant, model_class, pooling, attn_implementation):
    model = tiny_model(
        model_class, classifier_pooling=pooling, attn_implementation=attn_implementation, **variant
    )  # fmt: skip
    text = torch.randint(1, 50, (1, 8))
    expected = answer(model, text)

    for left in (0, 3, 5):
        # padded to the same length on both sides, with ids other than the padding id: only the mask may count
        input_ids = torch.randint(1, 50, (1, 13))
        input_ids[:, left : left + 8] = text
        mask = torch.zeros_like(input_ids)
        mask[:, left : left + 8] = 1
        padded = answer(model, input_ids, attention_mask=mask)
        assert_close(padded if model_class in OF_TEXTS else padded[:, left : left + 8], expected)


def test_left_padding_may_fill_a_row_to_the_longest_length(tiny_model):
    model = tiny_model(TinyBertModel)
    input_ids = torch.randint(1, 50, (1, 24))
    mask = torch.zeros_like(input_ids)
    mask[:, -2:] = 1

    assert_close(first_output(model, input_ids, attention_mask=mask)[:, -2:], first_output(model, input_ids[:, -2:]))


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("model_class, pooling", CLASSES_AND_POOLINGS)
@pytest.mark.parametrize("mask_kind", ["2-D", "4-D bool", "4-D additive", "4-D additive, infinite"])
@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_row_of_padding_is_finite_with_its_gradients(
    tiny_model, norm_placement, mask_kind, model_class, pooling, attn_implementation
):
    model = tiny_model(
        model_class,
        classifier_pooling=pooling,
        attn_implementation=attn_implementation,
        norm_placement=norm_placement,
    )
    input_ids = torch.randint(1, 50, (2, 6))
    mask = torch.ones_like(input_ids)
    mask[1] = 0
    if mask_kind != "2-D":
        mask = mask.bool()[:, None, None, :].expand(2, 1, 6, 6)
    if "additive" in mask_kind:
        lowest = -torch.inf if "infinite" in mask_kind else torch.finfo(torch.float32).min
        mask = torch.zeros(mask.shape).masked_fill(~mask, lowest)

    outputs = model(**inputs_for(model_class, input_ids, attention_mask=mask), output_hidden_states=True)
    sum(value.sum() for value in outputs.to_tuple() if isinstance(value, torch.Tensor)).backward()

    values = [value for value in outputs.to_tuple() if isinstance(value, torch.Tensor)]
    assert all(states.isfinite().all() for states in (*values, *outputs.hidden_states))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert gradients[next(name for name in gradients if "token_embeddings" in name)].abs().sum() > 0
    assert_close(answer(model, input_ids, attention_mask=mask)[:1], answer(model, input_ids[:1]))


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("model_class, pooling", CLASSES_AND_POOLINGS)
def test_single_row_equals_its_row_in_a_batch(tiny_model, model_class, pooling, attn_implementation):
    model = tiny_model(model_class, classifier_pooling=pooling, attn_implementation=attn_implementation)
    input_ids, mask = make_batch()
    batch = answer(model, input_ids, attention_mask=mask)

    for row in range(3):
        alone = answer(model, input_ids[row : row + 1], attention_mask=mask[row : row + 1])
        real = ... if model_class in OF_TEXTS else mask[row].bool()
        assert_close(batch[row][real], alone[0][real])


def test_multiple_choice_scores_each_choice_as_a_text_by_itself(tiny_model):
    model = tiny_model(TinyBertForMultipleChoice)
    input_ids = torch.randint(1, 50, (2, 3, 7))

    scores = first_output(model, input_ids)

    assert scores.shape == (2, 3)
    for row in range(2):
        for choice in range(3):
            assert_close(first_output(model, input_ids[row : row + 1, choice : choice + 1])[0, 0], scores[row, choice])


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("position_embedding_type", ["learned", "rotary"])
def test_documents_in_one_block_do_not_see_each_other(tiny_model, position_embedding_type, attn_implementation):
    model = tiny_model(
        TinyBertForMaskedLM,
        position_embedding_type=position_embedding_type,
        attn_implementation=attn_implementation,
    )
    packed = torch.randint(1, 50, (1, 12))
    other = packed.clone()
    other[:, :5] = (other[:, :5] % 49) + 1
    settings = {
        "attention_mask": block_mask([5, 7], 12),
        "position_ids": torch.cat((torch.arange(5), torch.arange(7)))[None],
    }

    before, after = first_output(model, packed, **settings), first_output(model, other, **settings)

    assert not torch.equal(before[:, :5], after[:, :5])
    assert torch.equal(before[:, 5:], after[:, 5:])  # to the bit
    assert_close(before[:, 5:], first_output(model, packed[:, 5:]))


@pytest.mark.parametrize("model_class", ALL_CLASSES)
def test_model_takes_what_the_tokenizer_gives_for_a_pair(tiny_model, tiny_tokenizer, model_class):
    model = tiny_model(model_class)
    texts = (["我爱你", "good"], ["他不喜欢北京", "bad"])
    encoded = tiny_tokenizer(*texts, return_tensors="pt", padding=True)
    with_segments = tiny_tokenizer(*texts, return_tensors="pt", padding=True, return_token_type_ids=True)

    outputs = answer(model, **encoded)

    assert encoded["input_ids"].shape[0] == 2 and encoded["attention_mask"].min() == 0
    assert outputs.shape[0] == 2 and outputs.isfinite().all()
    assert with_segments["token_type_ids"].max() == 1  # BERT's third input, which this model does without
    assert torch.equal(answer(model, **with_segments), outputs)


# ---------------------------------------------------------------------------------------------------------------------
# Wrong input
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", ALL_CLASSES)
@pytest.mark.parametrize("wrong_id", [50, 999, -1])
def test_token_id_out_of_range_is_named_with_the_limit(tiny_model, model_class, wrong_id):
    with pytest.raises(ValueError, match=rf"`input_ids` holds {wrong_id}\b.*`vocab_size` is 50"):
        ids = torch.tensor([[1, wrong_id, 2]])
        tiny_model(model_class)(ids[None] if model_class is TinyBertForMultipleChoice else ids)


@pytest.mark.parametrize("position_embedding_type", ["learned", "rotary"])
@pytest.mark.parametrize("given", ["input_ids", "inputs_embeds"])
def test_text_that_is_too_long_is_named_with_the_limit(tiny_model, position_embedding_type, given):
    model = tiny_model(TinyBertModel, position_embedding_type=position_embedding_type)
    inputs = torch.ones(1, 25, dtype=torch.long) if given == "input_ids" else torch.ones(1, 25, 16)

    with pytest.raises(ValueError, match=r"25 tokens.*24.*max_position_embeddings.*truncation=True"):
        model(**{given: inputs})


def test_text_of_no_tokens_is_named_with_the_limit(tiny_model):
    with pytest.raises(ValueError, match=r"0 tokens.*1\.\.24.*max_position_embeddings"):
        tiny_model(TinyBertModel)(torch.zeros(2, 0, dtype=torch.long))


@pytest.mark.parametrize("position_embedding_type", ["learned", "rotary"])
@pytest.mark.parametrize("wrong_position", [24, -1])
def test_position_out_of_range_is_named_with_the_limit(tiny_model, position_embedding_type, wrong_position):
    model = tiny_model(TinyBertModel, position_embedding_type=position_embedding_type)

    with pytest.raises(ValueError, match=rf"`position_ids` holds {wrong_position}\b.*`max_position_embeddings` is 24"):
        model(torch.tensor([[1, 2]]), position_ids=torch.tensor([[0, wrong_position]]))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("wrong_label", [50, -1])
def test_masked_lm_label_out_of_range_is_named_with_the_limit(tiny_model, wrong_label, training):
    with pytest.raises(ValueError, match=rf"`labels` holds {wrong_label}\b.*`vocab_size` is 50"):
        tiny_model(TinyBertForMaskedLM).train(training)(
            torch.tensor([[1, 2]]), labels=torch.tensor([[-100, wrong_label]])
        )


@pytest.mark.parametrize("wrong_label", [2, -1])
@pytest.mark.parametrize(
    "model_class, limit_name",
    [
        (TinyBertForSequenceClassification, "num_labels"),
        (TinyBertForTokenClassification, "num_labels"),
        (TinyBertForMultipleChoice, "num_choices"),
    ],
)
def test_class_label_out_of_range_is_named_with_the_limit(tiny_model, model_class, limit_name, wrong_label):
    labels = torch.tensor([[wrong_label, -100]] if model_class is TinyBertForTokenClassification else [wrong_label])
    with pytest.raises(ValueError, match=rf"`labels` holds {wrong_label}\b.*`{limit_name}` is 2"):
        tiny_model(model_class)(**inputs_for(model_class, torch.tensor([[1, 2]])), labels=labels)


@pytest.mark.parametrize("name", ["start_positions", "end_positions"])
def test_negative_position_of_an_answer_is_named(tiny_model, name):
    positions = {"start_positions": torch.tensor([0]), "end_positions": torch.tensor([0]), name: torch.tensor([-1])}
    with pytest.raises(ValueError, match=rf"`{name}` holds -1\b.*`sequence_length` is 2"):
        tiny_model(TinyBertForQuestionAnswering)(torch.tensor([[1, 2]]), **positions)


# ---------------------------------------------------------------------------------------------------------------------
# Losses of every head
# ---------------------------------------------------------------------------------------------------------------------

WITH_LOSS = ALL_CLASSES[1:]


def expected_loss(model_class, outputs, labels, reduction="mean", mask=None):
    """By torch's own cross entropy, from what the model says and the labels."""
    if model_class is TinyBertForQuestionAnswering:
        mask = torch.ones_like(outputs.start_logits) if mask is None else mask
        losses = {name: [] for name in labels}
        for name, logits in (("start_positions", outputs.start_logits), ("end_positions", outputs.end_logits)):
            for row, position in enumerate(labels[name].tolist()):
                tokens = mask[row].nonzero().flatten().tolist()  # the text without its padding
                if position in tokens:
                    target = torch.tensor(tokens.index(position))
                    losses[name].append(F.cross_entropy(logits[row][tokens], target))
            assert 0 < len(losses[name]) <= len(mask)
        start, end = (torch.stack(of_rows) for of_rows in losses.values())
        return (start.mean() + end.mean()) / 2 if reduction == "mean" else (start.sum() + end.sum()) / 2
    logits, labels = outputs.logits.flatten(0, -2), labels["labels"].flatten()
    return F.cross_entropy(logits[labels != -100], labels[labels != -100], reduction=reduction)


@pytest.mark.parametrize("model_class", WITH_LOSS)
def test_loss_is_cross_entropy_over_what_is_labelled(tiny_model, model_class):
    model = tiny_model(model_class)
    input_ids, mask = make_batch()
    labels = labels_for(model_class)

    outputs = model(**inputs_for(model_class, input_ids, attention_mask=mask), **labels)

    assert_close(outputs.loss, expected_loss(model_class, outputs, labels, mask=mask), 1e-6)
    assert outputs.loss > 0.1


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", [int, torch.tensor])
@pytest.mark.parametrize("model_class", WITH_LOSS)
def test_sum_of_losses_is_divided_by_num_items_in_batch(tiny_model, model_class, kind, training):
    model = without_dropout(model_class, tiny_model).train(training)
    inputs, labels = inputs_for(model_class, make_batch()[0]), labels_for(model_class)
    outputs = model.eval()(**inputs)

    loss = model.train(training)(**inputs, **labels, num_items_in_batch=kind(7)).loss

    assert_close(loss, expected_loss(model_class, outputs, labels, "sum") / 7)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("num_items_in_batch", [None, 7])
@pytest.mark.parametrize("model_class", WITH_LOSS)
def test_batch_without_labels_gives_loss_zero_and_zero_gradients(
    tiny_model, model_class, num_items_in_batch, training
):
    model = tiny_model(model_class).train(training)
    labels = {name: torch.full_like(values, -100) for name, values in labels_for(model_class).items()}

    loss = model(
        **inputs_for(model_class, make_batch()[0]), **labels, num_items_in_batch=num_items_in_batch
    ).loss  # fmt: skip

    assert loss.item() == 0
    assert all((gradient == 0).all() for gradient in gradients(model, loss).values())


@pytest.mark.parametrize("model_class", WITH_LOSS)
def test_accumulated_gradients_equal_those_of_one_batch(tiny_model, model_class):
    model = without_dropout(model_class, tiny_model).train()
    inputs, labels = inputs_for(model_class, make_batch()[0]), labels_for(model_class)
    if model_class is TinyBertForQuestionAnswering:
        labels["end_positions"] = labels["start_positions"]  # one number of items cannot be that of two kinds
    whole = gradients(model, model(**inputs, **labels).loss)
    num_items = int((next(iter(labels.values())) != -100).sum())

    parts = [
        gradients(
            model,
            model(
                **{name: values[rows] for name, values in (inputs | labels).items()}, num_items_in_batch=num_items
            ).loss,
        )
        for rows in (slice(0, 1), slice(1, 3))
    ]

    for name, gradient in whole.items():
        assert_close(parts[0][name] + parts[1][name], gradient, 1e-6)


@pytest.mark.parametrize("model_class", WITH_LOSS)
def test_loss_is_a_number_under_bfloat16_autocast(tiny_model, model_class):
    model = without_dropout(model_class, tiny_model).train()
    inputs = inputs_for(model_class, make_batch()[0]) | labels_for(model_class)
    exact = model(**inputs).loss

    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**inputs).loss

    assert loss.dtype == torch.float32
    assert_close(loss, exact, 0.1)


@pytest.mark.parametrize("outside", [12, 99, -100])
def test_end_of_an_answer_outside_the_sequence_leaves_its_start(tiny_model, outside):
    model = tiny_model(TinyBertForQuestionAnswering)
    input_ids, _ = make_batch(batch_size=2)
    starts, ends = torch.tensor([3, 5]), torch.tensor([4, outside])

    outputs = model(input_ids, start_positions=starts, end_positions=ends)

    of_start = F.cross_entropy(outputs.start_logits, starts)
    of_end = F.cross_entropy(outputs.end_logits[:1], ends[:1])
    assert_close(outputs.loss, (of_start + of_end) / 2, 1e-6)


@pytest.mark.parametrize("left", [0, 4])
def test_padding_changes_no_loss_of_answers_and_an_answer_in_padding_is_ignored(tiny_model, left):
    model = tiny_model(TinyBertForQuestionAnswering)
    text = torch.randint(1, 50, (1, 8))
    expected = model(text, start_positions=torch.tensor([2]), end_positions=torch.tensor([5])).loss
    input_ids = torch.randint(1, 50, (2, 14))
    mask = torch.zeros_like(input_ids)
    input_ids[0, left : left + 8] = text
    mask[:, left : left + 8] = 1
    starts, ends = torch.tensor([left + 2, 12]), torch.tensor([left + 5, 13])

    assert_close(model(input_ids, attention_mask=mask, start_positions=starts, end_positions=ends).loss, expected)


def test_positions_with_a_dimension_to_spare_give_the_same_loss(tiny_model):
    """As torch's DataParallel hands them on."""
    model = tiny_model(TinyBertForQuestionAnswering)
    input_ids, _ = make_batch()
    labels = labels_for(TinyBertForQuestionAnswering)
    with_dimension = {name: positions[:, None] for name, positions in labels.items()}

    assert torch.equal(model(input_ids, **with_dimension).loss, model(input_ids, **labels).loss)


# ---------------------------------------------------------------------------------------------------------------------
# Masked-LM loss
# ---------------------------------------------------------------------------------------------------------------------


def masked_lm_batch():
    input_ids, mask = make_batch()
    labels = torch.where(torch.rand(input_ids.shape) < 0.3, input_ids, -100).masked_fill(mask == 0, -100)
    assert 3 < (labels != -100).sum() < 20
    return input_ids, mask, labels


def without_dropout(model_class, tiny_model, **overrides):
    return tiny_model(model_class, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **overrides)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_masked_lm_loss_equals_the_dense_loss_with_its_gradients(tiny_model, training, tied):
    model = without_dropout(TinyBertForMaskedLM, tiny_model, tie_word_embeddings=tied).train(training)
    input_ids, mask, labels = masked_lm_batch()

    outputs = model(input_ids, attention_mask=mask, labels=labels)
    dense_logits = model(input_ids, attention_mask=mask).logits
    dense = F.cross_entropy(dense_logits.flatten(0, 1), labels.flatten(), ignore_index=-100)

    assert_close(outputs.loss, dense, 1e-6)
    ours, theirs = gradients(model, outputs.loss), gradients(model, dense)
    for name in theirs:
        assert_close(ours[name], theirs[name], 1e-6)


@pytest.mark.parametrize("norm_placement", ["pre", "post"])
def test_last_layer_for_some_tokens_equals_that_for_all_with_its_gradients(tiny_model, norm_placement):
    model = without_dropout(TinyBertModel, tiny_model, norm_placement=norm_placement)
    input_ids, mask, _ = masked_lm_batch()
    rows = torch.tensor([0, 5, 5, 30])

    some = model(input_ids, attention_mask=mask, rows=rows).last_hidden_state
    all_of_them = model(input_ids, attention_mask=mask).last_hidden_state.flatten(0, 1)[rows]

    assert_close(some, all_of_them, 1e-6)
    ours, theirs = (gradients(model, states.square().sum()) for states in (some, all_of_them))
    for name in theirs:
        assert_close(ours[name], theirs[name], 1e-5)


@pytest.mark.parametrize(("at_a_time", "in_cache"), [(1, 1), (30, 30), (1000, 30), (1000, 1000)])
def test_chunked_cross_entropy_has_the_gradient_of_finite_differences(monkeypatch, at_a_time, in_cache):
    monkeypatch.setattr("hf_tinybert.modeling_tinybert.LOGITS_AT_A_TIME", at_a_time)
    monkeypatch.setattr("hf_tinybert.modeling_tinybert.LOGITS_IN_CACHE", in_cache)
    hidden, weight, bias = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((7, 5), (11, 5), (11,))
    )
    targets = torch.tensor([0, 10, 3, 3, 7, 0, 5])

    def total(*inputs):
        return _LinearCrossEntropy.apply(*inputs, targets)

    expected = F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum")
    assert abs(total(hidden, weight, bias) - expected) < 1e-12
    assert torch.autograd.gradcheck(total, (hidden, weight, bias))


def test_masked_lm_loss_is_the_same_with_hidden_states(tiny_model):
    model = without_dropout(TinyBertForMaskedLM, tiny_model).train()
    input_ids, mask, labels = masked_lm_batch()

    asked = model(input_ids, attention_mask=mask, labels=labels, output_hidden_states=True)
    plain = model(input_ids, attention_mask=mask, labels=labels)

    assert asked.hidden_states[-1].shape == (3, 12, 16) and plain.hidden_states is None
    assert_close(asked.loss, plain.loss, 1e-6)


@pytest.mark.parametrize("at_a_time", [22, 1000])
def test_chunked_cross_entropy_leaves_rows_behind_the_targets_out(monkeypatch, at_a_time):
    monkeypatch.setattr("hf_tinybert.modeling_tinybert.LOGITS_AT_A_TIME", at_a_time)
    hidden, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((7, 5), (11, 5), (11,)))
    targets = torch.tensor([0, 10, 3])

    loss = _LinearCrossEntropy.apply(hidden, weight, bias, targets)
    ours = torch.autograd.grad(loss, (hidden, weight, bias))

    expected = F.cross_entropy(F.linear(hidden[:3], weight, bias), targets, reduction="sum")
    assert_close(loss, expected, 1e-6)
    for actual, exact in zip(ours, torch.autograd.grad(expected, (hidden, weight, bias)), strict=True):
        assert_close(actual, exact, 1e-6)
    assert not ours[0][3:].any()


def test_training_with_few_labels_more_or_less_meets_the_same_shapes(tiny_model):
    """Each new shape costs a kernel that oneDNN makes and keeps."""
    model = tiny_model(TinyBertForMaskedLM).train()
    shapes = []
    model.mlm_head.dense.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    input_ids = torch.randint(4, 50, (3, 12))
    for number in (1, 20, 32, 33):
        labels = torch.where(torch.arange(36).view(3, 12) < number, input_ids, -100)
        model(input_ids, labels=labels).loss.backward()

    assert shapes == [(32, 16), (32, 16), (32, 16), (64, 16)]


def test_chunked_cross_entropy_of_large_logits_is_finite_and_exact():
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    weight, bias = torch.tensor([[1.0], [-1.0]], requires_grad=True), torch.zeros(2, requires_grad=True)

    loss = _LinearCrossEntropy.apply(hidden, weight, bias, torch.tensor([0, 0]))
    loss.backward()

    assert loss == 2e4  # nothing for the right one, the distance of the logits for the wrong one
    assert torch.equal(hidden.grad, torch.tensor([[0.0], [-2.0]]))


def test_chunked_cross_entropy_in_bfloat16_is_near_that_in_float32(monkeypatch):
    monkeypatch.setattr("hf_tinybert.modeling_tinybert.LOGITS_AT_A_TIME", 1000)
    hidden, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((64, 16), (100, 16), (100,)))
    targets = torch.randint(100, (64,))
    expected = torch.autograd.grad(
        F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum"), (hidden, weight, bias)
    )

    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = _LinearCrossEntropy.apply(hidden, weight, bias, targets)
    actual = torch.autograd.grad(loss, (hidden, weight, bias))

    assert loss.dtype == torch.float32
    for ours, exact in zip(actual, expected, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - exact).norm() < 0.01 * exact.norm()


def test_masked_lm_loss_goes_through_a_decoder_that_was_replaced(tiny_model):
    class Doubled(torch.nn.Linear):
        def forward(self, hidden_states):
            return 2 * super().forward(hidden_states)

    model = without_dropout(TinyBertForMaskedLM, tiny_model).train()
    model.mlm_head.decoder = Doubled(16, 50)
    input_ids, mask, labels = masked_lm_batch()

    loss = model(input_ids, attention_mask=mask, labels=labels).loss

    logits = model(input_ids, attention_mask=mask).logits
    assert_close(loss, F.cross_entropy(logits.flatten(0, 1), labels.flatten()), 1e-6)


def test_masked_lm_logits_are_left_out_only_in_train_mode_with_labels(tiny_model):
    model = tiny_model(TinyBertForMaskedLM)
    input_ids, _, labels = masked_lm_batch()

    assert model.train()(input_ids, labels=labels).logits is None
    assert model.train()(input_ids).logits.shape == (3, 12, 50)
    assert model.eval()(input_ids, labels=labels).logits.shape == (3, 12, 50)
    assert model.eval()(input_ids).logits.shape == (3, 12, 50)


# ---------------------------------------------------------------------------------------------------------------------
# Sequence classification loss
# ---------------------------------------------------------------------------------------------------------------------

LABELS = {
    "single_label_classification": (3, torch.tensor([2, 0, 1, 1])),
    "multi_label_classification": (3, torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])),
    "regression": (1, torch.tensor([0.5, -2.0, 3.0, 1.0])),
    "regression of three": (3, torch.randn(4, 3, generator=torch.Generator().manual_seed(1))),
}


def plain_loss(kind, logits, labels, reduction="mean"):
    if kind == "single_label_classification":
        log_probabilities = logits - logits.exp().sum(-1, keepdim=True).log()
        each = -log_probabilities[range(len(labels)), labels]
    elif kind == "multi_label_classification":
        probabilities = 1 / (1 + (-logits).exp())
        each = -(labels * probabilities.log() + (1 - labels) * (1 - probabilities).log())
    else:
        each = (logits - labels.view(logits.shape)) ** 2
    return each.mean() if reduction == "mean" else each.sum()


# Several numbers per text are taken for multi-label, as elsewhere in transformers, unless the config says otherwise.
@pytest.mark.parametrize(
    "kind, named",
    [(kind, True) for kind in LABELS] + [(kind, False) for kind in LABELS if kind != "regression of three"],
)
def test_classification_loss_equals_the_formula_and_leaves_the_config_alone(tiny_model, kind, named):
    num_labels, labels = LABELS[kind]
    problem_type = kind.split()[0] if named else None
    model = tiny_model(TinyBertForSequenceClassification, num_labels=num_labels, problem_type=problem_type)
    input_ids = torch.randint(1, 50, (4, 6))

    outputs = model(input_ids, labels=labels)

    assert outputs.logits.shape == (4, num_labels)
    assert_close(outputs.loss, plain_loss(kind, outputs.logits, labels), 1e-6)
    assert model.config.problem_type == problem_type


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_class_labels_may_be_of_either_integer_type(tiny_model, dtype):
    model = tiny_model(TinyBertForSequenceClassification, num_labels=3)
    input_ids = torch.randint(1, 50, (4, 6))
    labels = LABELS["single_label_classification"][1]

    assert_close(model(input_ids, labels=labels.to(dtype)).loss, model(input_ids, labels=labels).loss, 0)


def test_multi_labels_may_be_integers_where_the_config_says_so(tiny_model):
    model = tiny_model(
        TinyBertForSequenceClassification, num_labels=3, problem_type="multi_label_classification"
    )  # fmt: skip
    labels = LABELS["multi_label_classification"][1]
    input_ids = torch.randint(1, 50, (4, 6))

    assert_close(model(input_ids, labels=labels.long()).loss, model(input_ids, labels=labels).loss, 0)


@pytest.mark.parametrize("number", [int, torch.tensor])
@pytest.mark.parametrize("kind", LABELS)
def test_accumulated_classification_gradients_equal_those_of_one_batch(tiny_model, kind, number):
    num_labels, labels = LABELS[kind]
    model = tiny_model(TinyBertForSequenceClassification, num_labels=num_labels, problem_type=kind.split()[0])
    input_ids = torch.randint(1, 50, (4, 6))
    whole = gradients(model, model(input_ids, labels=labels).loss)

    num_items = number(labels.numel())  # as Trainer counts
    parts = [
        gradients(model, model(input_ids[rows], labels=labels[rows], num_items_in_batch=num_items).loss)
        for rows in (slice(0, 1), slice(1, 4))
    ]

    for name, gradient in whole.items():
        assert_close(parts[0][name] + parts[1][name], gradient, 1e-6)


def test_mean_pooling_is_the_mean_over_attended_tokens(tiny_model):
    model = tiny_model(TinyBertForSequenceClassification, classifier_pooling="mean")
    input_ids, mask = make_batch()
    hidden = first_output(model.tinybert, input_ids, attention_mask=mask)

    means = torch.stack([hidden[0].mean(0), hidden[1, :7].mean(0), hidden[2, 4:].mean(0)])
    assert_close(first_output(model, input_ids, attention_mask=mask), model.classifier(means).detach())


# ---------------------------------------------------------------------------------------------------------------------
# Gradient checkpointing, resizing
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(variant.values()))
def test_gradient_checkpointing_changes_no_gradient(tiny_model, variant):
    model = without_dropout(TinyBertForMaskedLM, tiny_model, **variant).train()
    input_ids, mask, labels = masked_lm_batch()
    expected = gradients(model, model(input_ids, attention_mask=mask, labels=labels).loss)
    calls = []
    model.tinybert.layers[0].attention.register_forward_pre_hook(lambda *_: calls.append(1))

    # renamed on the way from the oldest to the newest version of transformers supported
    (getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable)()
    actual = gradients(model, model(input_ids, attention_mask=mask, labels=labels).loss)

    assert len(calls) == 2  # forward, and again in backward: checkpointing was on
    for name, gradient in expected.items():
        assert torch.equal(actual[name], gradient)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("new_size", [57, 41])
def test_resizing_keeps_old_tokens_and_the_head_in_step(tiny_model, new_size, tied, tmp_path):
    model = without_dropout(TinyBertForMaskedLM, tiny_model, tie_word_embeddings=tied)
    input_ids = torch.randint(1, 41, (2, 8))
    before = first_output(model, input_ids)
    kept = min(new_size, 50)

    model.resize_token_embeddings(new_size)

    after = first_output(model, input_ids)
    assert after.shape == (2, 8, new_size)
    assert_close(after[..., :kept], before[..., :kept])
    assert model.config.vocab_size == new_size
    assert model.mlm_head.decoder.bias.shape == (new_size,)
    assert model.mlm_head.decoder.out_features == new_size
    embedding = model.get_input_embeddings().weight
    assert (model.get_output_embeddings().weight.data_ptr() == embedding.data_ptr()) is tied
    model.train()(torch.full((1, 2), new_size - 1), labels=torch.full((1, 2), new_size - 1)).loss.backward()
    assert embedding.grad[new_size - 1].abs().sum() > 0
    model.eval().save_pretrained(tmp_path)
    assert torch.equal(first_output(TinyBertForMaskedLM.from_pretrained(tmp_path), input_ids), after)


def test_tied_decoder_is_one_tensor_with_the_embedding(tiny_model):
    tied = tiny_model(TinyBertForMaskedLM, tie_word_embeddings=True)
    untied = tiny_model(TinyBertForMaskedLM)

    assert tied.mlm_head.decoder.weight is tied.tinybert.embeddings.token_embeddings.weight
    assert untied.num_parameters() - tied.num_parameters() == 50 * 16


@pytest.mark.parametrize("tied", [False, True])
def test_factorised_embedding_equals_the_wide_one_that_it_factorises(tiny_model, tied):
    narrow = tiny_model(TinyBertForMaskedLM, embedding_size=6, tie_word_embeddings=tied)
    wide = tiny_model(TinyBertForMaskedLM)
    embeddings = narrow.tinybert.embeddings
    state = {name: tensor for name, tensor in narrow.tinybert.state_dict().items() if "projection" not in name}
    state["embeddings.token_embeddings.weight"] = embeddings.projection(embeddings.token_embeddings.weight)
    wide.tinybert.load_state_dict(state)
    input_ids, mask = make_batch()

    assert embeddings.token_embeddings.weight.shape == (50, 6)
    assert narrow.mlm_head.decoder.weight.shape == (50, 6)
    assert (narrow.mlm_head.decoder.weight is embeddings.token_embeddings.weight) is tied
    assert_close(
        first_output(narrow.tinybert, input_ids, attention_mask=mask),
        first_output(wide.tinybert, input_ids, attention_mask=mask),
    )


def test_initial_weights_have_the_configured_spread():
    model = TinyBertForMaskedLM(TinyBertConfig(vocab_size=2000, initializer_range=0.05))

    for weight in (
        model.tinybert.embeddings.token_embeddings.weight[1:],
        model.tinybert.layers[0].attention.qkv_proj.weight,
        model.mlm_head.decoder.weight,
    ):
        assert_close(weight.std(), torch.tensor(0.05), 0.002)
    assert (model.tinybert.embeddings.token_embeddings.weight[0] == 0).all()
    assert (model.tinybert.final_norm.weight == 1).all() and (model.mlm_head.decoder.bias == 0).all()


# ---------------------------------------------------------------------------------------------------------------------
# Saving and loading
# ---------------------------------------------------------------------------------------------------------------------


def package_files():
    folder = Path(hf_tinybert.__file__).parent
    return {name: (folder / name).read_bytes() for name in ("configuration_tinybert.py", "modeling_tinybert.py")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("model_class, auto_class", HEADS)
def test_reload_is_equal_to_the_bit_and_silent(
    tiny_model, tmp_path, log, recwarn, capfd, model_class, auto_class, tied, dtype
):
    model = tiny_model(model_class, tie_word_embeddings=tied).to(dtype)
    input_ids, mask = make_batch()
    expected = answer(model, input_ids, attention_mask=mask)
    model.save_pretrained(tmp_path)
    capfd.readouterr()

    for loader in (model_class, auto_class):
        loaded = loader.from_pretrained(tmp_path)
        assert type(loaded) is model_class
        assert loaded.dtype == dtype and not loaded.training
        weights = loaded.state_dict()
        outputs = answer(loaded, input_ids, attention_mask=mask)
        # The last bit of a single score depends on where in memory its weights lie (torch 2.13 on CPU).
        assert_close(outputs, expected, 1e-6 if model_class is TinyBertForMultipleChoice else 0)
        assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    assert log.text == "" and not recwarn.list
    assert "warn" not in capfd.readouterr().err.lower()


@pytest.mark.parametrize("model_class, auto_class", HEADS)
def test_saved_folder_names_every_head_and_holds_the_code(tiny_model, tmp_path, model_class, auto_class):
    tiny_model(model_class).save_pretrained(tmp_path)

    assert TinyBertConfig.from_pretrained(tmp_path).auto_map == AUTO_MAP
    assert {name: (tmp_path / name).read_bytes() for name in package_files()} == package_files()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "configuration_tinybert.py",
        "model.safetensors",
        "modeling_tinybert.py",
    ]


def test_every_auto_class_of_the_auto_map_leads_to_its_class(tiny_config):
    assert {name.rpartition(".")[2] for name in AUTO_MAP.values()} == {
        "TinyBertConfig",
        *(model_class.__name__ for model_class in ALL_CLASSES),
    }
    for model_class, auto_class in HEADS:
        assert AUTO_MAP[auto_class.__name__] == f"modeling_tinybert.{model_class.__name__}"
        assert type(auto_class.from_config(tiny_config())) is model_class


def test_masked_lm_folder_becomes_a_classifier_folder_with_every_head_named(tiny_model, tmp_path):
    model = tiny_model(TinyBertForMaskedLM)
    model.save_pretrained(tmp_path / "mlm")

    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path / "mlm", num_labels=3)
    classifier.save_pretrained(tmp_path / "classifier")

    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classifier")
    assert again.config.auto_map == AUTO_MAP
    assert again.config.architectures == ["TinyBertForSequenceClassification"]
    assert again.classifier.out_features == 3
    input_ids, _ = make_batch()
    assert torch.equal(first_output(again.tinybert, input_ids), first_output(model.tinybert, input_ids))
    assert torch.equal(first_output(again, input_ids), first_output(classifier, input_ids))


def test_bare_encoder_loads_from_a_head_and_a_head_from_the_bare_encoder(tiny_model, tmp_path):
    model = tiny_model(TinyBertForMaskedLM)
    input_ids, _ = make_batch()
    expected = first_output(model.tinybert, input_ids)
    model.save_pretrained(tmp_path / "head")

    bare = AutoModel.from_pretrained(tmp_path / "head")
    bare.save_pretrained(tmp_path / "bare")

    assert torch.equal(first_output(bare, input_ids), expected)
    with_head = AutoModelForMaskedLM.from_pretrained(tmp_path / "bare")
    assert torch.equal(first_output(with_head.tinybert, input_ids), expected)


@pytest.mark.parametrize("saved_class", ALL_CLASSES)
def test_bare_encoder_leaves_the_head_of_a_folder_behind_without_a_warning(tiny_model, tmp_path, log, saved_class):
    tiny_model(saved_class).save_pretrained(tmp_path)

    AutoModel.from_pretrained(tmp_path)

    assert log.text == ""


def test_weights_that_no_class_knows_are_still_reported(tiny_model, tmp_path, log):
    model = tiny_model(TinyBertForMaskedLM)
    model.save_pretrained(tmp_path, state_dict={**model.state_dict(), "mlm_head.extra.weight": torch.zeros(2)})

    AutoModel.from_pretrained(tmp_path)

    assert "mlm_head.extra.weight" in log.text


HEAD_NAMES = {
    TinyBertModel: None,
    TinyBertForMaskedLM: "mlm_head",
    TinyBertForSequenceClassification: "classifier",
    TinyBertForTokenClassification: "classifier",
    TinyBertForQuestionAnswering: "qa_outputs",
    TinyBertForMultipleChoice: "classifier",
}


@pytest.mark.parametrize("saved_class", ALL_CLASSES)
@pytest.mark.parametrize("model_class", WITH_LOSS)
def test_loading_from_another_heads_folder_reports_the_new_head_alone(
    tiny_model, tmp_path, log, saved_class, model_class
):
    if saved_class is not model_class and HEAD_NAMES[saved_class] == HEAD_NAMES[model_class]:
        pytest.skip("heads of one name, as in BERT: the other's weights are taken where their shape fits")
    saved = tiny_model(saved_class)
    saved.save_pretrained(tmp_path)

    loaded = model_class.from_pretrained(tmp_path)

    heads = {name.partition(".")[0] for name, _ in loaded.named_parameters()} - {"tinybert"}
    told = {head for head in {"mlm_head", "classifier", "qa_outputs"} if head in log.text}
    assert told == (set() if saved_class is model_class else heads == {HEAD_NAMES[model_class]} and heads)
    encoder = saved if saved_class is TinyBertModel else saved.tinybert
    assert all(
        torch.equal(tensor, loaded.tinybert.state_dict()[name]) for name, tensor in encoder.state_dict().items()
    )


@pytest.mark.parametrize("saved_class", [TinyBertForSequenceClassification, TinyBertForTokenClassification])
def test_classifier_of_another_shape_is_refused_by_name(tiny_model, tmp_path, log, saved_class):
    tiny_model(saved_class).save_pretrained(tmp_path)

    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        TinyBertForMultipleChoice.from_pretrained(tmp_path)

    assert "classifier.weight" in log.text
    assert (
        TinyBertForMultipleChoice.from_pretrained(tmp_path, ignore_mismatched_sizes=True).classifier.out_features == 1
    )


REMOTE_CODE_SCRIPT = """
import json, sys
from pathlib import Path

sys.modules["hf_tinybert"] = None  # the package cannot be imported, wherever it is installed
import torch
import transformers
from transformers import AutoConfig

assert sys.modules["hf_tinybert"] is None
start = Path(sys.argv[1])
inputs = torch.load(start / "inputs.pt", weights_only=True)
for name, batch in inputs["batches"].items():
    auto_class = getattr(transformers, name)
    folders = [start / name, start / f"{name} again", start / f"{name} third"]
    for folder, following in zip(folders, [*folders[1:], None]):
        assert type(AutoConfig.from_pretrained(folder, trust_remote_code=True)).__name__ == "TinyBertConfig"
        model = auto_class.from_pretrained(folder, trust_remote_code=True)
        assert type(model).__module__.startswith("transformers_modules."), type(model).__module__
        with torch.no_grad():
            outputs = model(**batch)[0]
        tolerance = 1e-6 if name == "AutoModelForMultipleChoice" else 0
        assert (outputs - inputs[name]).abs().max() <= tolerance, f"{folder}: other numbers"
        if following:
            model.save_pretrained(following)
# one folder, every Auto class
for name in ("AutoModel", "AutoModelForMaskedLM"):
    getattr(transformers, name).from_pretrained(start / "AutoModelForMaskedLM third", trust_remote_code=True)
print("all equal")
"""


def test_clean_process_without_the_package_loads_saves_and_loads_again(tiny_model, tmp_path):
    input_ids, mask = make_batch()
    inputs = {"batches": {}}
    for model_class, auto_class in HEADS:
        model = tiny_model(model_class, position_embedding_type="rotary", norm_placement="pre")
        model.save_pretrained(tmp_path / auto_class.__name__)
        batch = inputs_for(model_class, input_ids, attention_mask=mask)
        inputs["batches"][auto_class.__name__] = batch
        inputs[auto_class.__name__] = first_output(model, **batch)
    torch.save(inputs, tmp_path / "inputs.pt")
    (tmp_path / "script.py").write_text(REMOTE_CODE_SCRIPT, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"HF_HOME": str(tmp_path / "hf_home"), "HF_HUB_OFFLINE": "1"}
    # Python's own encoding and bytecode settings are the default ones here, as on a stranger's machine.

    result = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "script.py"), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "all equal"
    assert "warn" not in result.stderr.lower(), result.stderr
    for auto_class in inputs["batches"]:
        for folder in (f"{auto_class} again", f"{auto_class} third"):
            assert TinyBertConfig.from_pretrained(tmp_path / folder).auto_map == AUTO_MAP
            assert {name: (tmp_path / folder / name).read_bytes() for name in package_files()} == package_files()


@pytest.mark.parametrize("file", ["configuration_tinybert.py", "modeling_tinybert.py"])
def test_shipped_files_import_only_what_a_stranger_has(file):
    allowed = {*sys.stdlib_module_names, "torch", "transformers"}
    siblings = []
    for node in ast.walk(ast.parse(package_files()[file])):
        if isinstance(node, ast.ImportFrom) and node.level:
            siblings.append(node.module)
        elif isinstance(node, ast.ImportFrom):
            assert node.module.partition(".")[0] in allowed
        elif isinstance(node, ast.Import):
            assert all(alias.name.partition(".")[0] in allowed for alias in node.names)
    assert set(siblings) <= {"configuration_tinybert"}


# What reaches files, processes or the network, or runs text as code; torch.load unpickles. `os` is a module of these.
OUTSIDE_MODULES = {
    *("asyncio", "builtins", "ctypes", "ftplib", "glob", "http", "hub", "importlib", "io", "multiprocessing", "os"),
    *("pathlib", "pickle", "requests", "runpy", "shutil", "smtplib", "socket", "ssl", "subprocess", "sys", "tempfile"),
    "urllib",
}
OUTSIDE_NAMES = {"open", "eval", "exec", "compile", "__import__", "globals", "input", "breakpoint"}
OUTSIDE_ATTRIBUTES = {
    *("open", "load", "save", "hub", "load_state_dict_from_url", "read_text", "write_text", "read_bytes"),
    *("write_bytes", "system", "popen", "urlopen", "cached_file", "hf_hub_download", "push_to_hub", "from_pretrained"),
    *("__globals__", "os", "sys"),
}


def reaches_outside(source: str) -> list[str]:
    """What in a source could touch a file or the network, or run text as code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found += [module for module in modules if OUTSIDE_MODULES & set(module.split("."))]
        if isinstance(node, ast.Name) and node.id in OUTSIDE_NAMES | OUTSIDE_MODULES:
            found.append(node.id)
        if isinstance(node, ast.Attribute) and node.attr in OUTSIDE_ATTRIBUTES:
            found.append(node.attr)
    return found


@pytest.mark.parametrize("file", ["configuration_tinybert.py", "modeling_tinybert.py"])
def test_shipped_files_touch_no_file_and_no_network(file):
    assert reaches_outside(package_files()[file].decode()) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import urllib.request as request",
        "from pathlib import Path",
        "from torch import hub",
        "open('x')",
        "def f():\n    exec('1')",
        "import torch\ntorch.load('x')",
        "import torch\ntorch.serialization.os.system('x')",
        "__import__('socket')",
    ],
)
def test_code_that_reaches_outside_is_seen(source):
    assert reaches_outside(source)


def test_forward_signatures_name_the_columns_that_trainer_keeps():
    for model_class in ALL_CLASSES:
        names = list(inspect.signature(model_class.forward).parameters)
        assert names[1:5] == ["input_ids", "attention_mask", "position_ids", "inputs_embeds"]
        assert set(labels_for(model_class)) <= set(names) or model_class is TinyBertModel
