"""torch.compile and torch.export on the encoder and its heads."""

import pytest
import torch

from hf_tinybert import TinyBertModel
from tests.tools.heads import HEADS, batch_for, without_labels


@pytest.mark.parametrize(
    "settings",
    [
        {"attn_implementation": "sdpa"},
        {"attn_implementation": "eager", "norm_placement": "pre", "position_embedding_type": "rotary"},
    ],
    ids=str,
)
def test_encoder_compiles_without_a_graph_break(tiny_model, settings):
    model = tiny_model(TinyBertModel, **settings)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    input_ids, mask = torch.randint(1, 50, (2, 7)), torch.ones(2, 7, dtype=torch.long)
    mask[0, :3] = mask[1, 4:] = 0

    with torch.no_grad():
        actual, expected = (each(input_ids, attention_mask=mask)[0] for each in (compiled, model))

    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model_class", HEADS)
def test_exported_head_gives_the_same_logits_at_another_batch_size_and_length(tiny_model, tiny_tokenizer, model_class):
    model = tiny_model(model_class)
    inputs = without_labels(batch_for(model_class, tiny_tokenizer))
    shape = {0: torch.export.Dim.DYNAMIC, inputs["input_ids"].ndim - 1: torch.export.Dim.DYNAMIC}

    exported = torch.export.export(model, (), inputs, dynamic_shapes=dict.fromkeys(inputs, shape), strict=False)

    other = {name: values[:3, ..., :6].contiguous() for name, values in inputs.items()}
    assert other["input_ids"].shape != inputs["input_ids"].shape
    with torch.no_grad():
        expected, actual = model(**other), exported.module()(**other)
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=0, atol=1e-5)
