"""Encoder layers compiled by `torch.compile`: passes over the activations are joined, products stay as they are.

On 2 cores of an AMD EPYC it saves 6 or 7 % of a step and costs a quarter of a minute at first, so it is for long runs.
Compiling the loss did not pay: training/EXPERIMENTS.md.
"""

import contextlib
from collections.abc import Iterator

import torch

from hf_tinybert import TinyBertForMaskedLM


WORTH_TRYING = 600.0  # seconds of training; it pays after four minutes on a quiet machine
# The labelled tokens that the last layer goes on with are of another number at each step; named here, they are
# compiled for any number at once. transformers wraps the layers' forward, some versions with keyword arguments only.
OF_ANY_LENGTH = r"L\['rows'\],L\['kwargs'\]\['rows'\]"


@contextlib.contextmanager
def compiled_layers(model: TinyBertForMaskedLM) -> Iterator[None]:
    """Compile the layers of `model` at their first forward pass inside, and have them plain again outside."""
    layers = list(model.tinybert.layers)
    with torch.compiler.config.patch(dynamic_sources=OF_ANY_LENGTH):
        for layer in layers:
            layer.forward = torch.compile(layer.forward)
        try:
            yield
        finally:
            for layer in layers:
                del layer.forward


def reason(error: Exception) -> str:
    """Why compiling failed, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
