import pytest
import torch

from training import matmul


@pytest.fixture
def forgetful():
    """Judges this machine anew, before and after."""
    matmul._is_exact.cache_clear()
    yield
    matmul._is_exact.cache_clear()


def test_fast_products_are_as_exact_as_plain_ones():
    """At the shapes of a small encoder, against float64."""
    generator = torch.Generator().manual_seed(1)
    for rows, inner, columns in ((1, 128, 384), (59, 512, 128), (4096, 128, 512), (300, 128, 2)):
        x, w = torch.randn(rows, inner, generator=generator), torch.randn(columns, inner, generator=generator)
        exact = x.double() @ w.T.double()
        with matmul.fast_products():
            error = (torch.nn.functional.linear(x, w) - exact).abs().max()
        assert error < 1e-6 * inner


def test_the_setting_is_put_back_also_after_an_error():
    with pytest.raises(KeyError), matmul.fast_products():
        raise KeyError
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_setting_of_the_users_own_stays():
    torch.set_float32_matmul_precision("high")
    try:
        with matmul.fast_products():
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_machine_whose_fast_products_round_keeps_to_plain_ones(forgetful, monkeypatch):
    linear = torch.nn.functional.linear

    def rounding(x, w):
        if torch.get_float32_matmul_precision() == "medium":
            x, w = x.bfloat16().float(), w.bfloat16().float()
        return linear(x, w)

    monkeypatch.setattr(torch.nn.functional, "linear", rounding)
    with matmul.fast_products():
        assert torch.get_float32_matmul_precision() == "highest"
