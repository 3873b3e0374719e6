import pytest
import torch

from training.precision import autocasting, fastest_attention, fastest_precision


CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "avx512_f": True}, "float32"),
        ({"avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True, "avx512_bf16": False}, "bfloat16"),
        ({}, "float32"),
    ],
)
def test_a_processor_trains_in_bfloat16_where_it_multiplies_it_natively(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert fastest_precision(CPU) == expected


@pytest.mark.parametrize("native", [True, False])
def test_cuda_is_asked_for_native_bfloat16(monkeypatch, native):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert fastest_precision(torch.device("cuda")) == ("bfloat16" if native else "float32")


def test_another_device_trains_in_float32():
    assert fastest_precision(torch.device("mps")) == "float32"


def test_attention_is_fused_but_for_bfloat16_on_a_processor():
    assert fastest_attention(CPU, "bfloat16") == "eager"
    assert fastest_attention(CPU, "float32") == "sdpa"
    assert fastest_attention(torch.device("cuda"), "bfloat16") == "sdpa"


def test_products_are_of_the_precision_and_weights_are_not():
    linear = torch.nn.Linear(4, 4)
    with autocasting(CPU, "bfloat16"):
        assert linear(torch.ones(1, 4)).dtype == torch.bfloat16
    with autocasting(CPU, "float32"):
        assert linear(torch.ones(1, 4)).dtype == torch.float32
    assert linear.weight.dtype == torch.float32
