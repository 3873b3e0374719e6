import pytest
import torch

from training.bench import gemm


SHAPE = {"num_hidden_layers": 2, "hidden_size": 8, "embedding_size": 4, "num_attention_heads": 2, "vocab_size": 30}


def test_the_products_are_those_of_the_model_counted_by_hand():
    batch, length, labelled, h, e = 3, 5, 4, 8, 4
    tokens = batch * length
    by_hand = 2 * tokens * h * 3 * h + (tokens + labelled) * (h * h + h * 4 * h + 4 * h * h)  # two layers
    by_hand += 2 * 2 * batch * length * length * h  # scores and values, all heads together
    by_hand += tokens * e * h + labelled * (h * e + e * 30)
    wanted = gemm.products(**SHAPE, batch_size=batch, length=length, labelled=labelled)
    assert sum(product.flops for product in wanted) == 3 * 2 * by_hand  # a product is two operations; backward is two


@pytest.mark.parametrize("embedding_size", [64, 32])
def test_the_same_products_are_what_torch_counts_in_our_model(embedding_size):
    from torch.utils.flop_counter import FlopCounterMode

    from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM

    shape = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 1000,
        "embedding_size": embedding_size,
    }
    model = TinyBertForMaskedLM(TinyBertConfig(**shape)).train()
    model.set_attn_implementation("eager")  # whose products are plain ones
    ids = torch.randint(5, 1000, (2, 64))
    labels = torch.where(torch.arange(64) % 4 == 0, ids, -100)  # as many that the model rounds nothing up
    with FlopCounterMode(display=False) as counter:
        model(ids, labels=labels).loss.backward()
    wanted = gemm.products(**shape, batch_size=2, length=64, labelled=32)
    assert counter.get_total_flops() == sum(product.flops for product in wanted)


def test_a_step_does_the_products_of_the_whole_batch_in_any_number_of_parts():
    step, facts = gemm.make_step(**SHAPE, batch_size=8, length=4, mlm_probability=0.25, precision="bfloat16")
    step()
    whole = sum(p.flops for p in gemm.products(**SHAPE, batch_size=8, length=4, labelled=8))
    assert facts["flops_per_step"] == whole and facts["parts"] in gemm.PARTS
