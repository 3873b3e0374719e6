"""The reference model, written by hand from torch's own parts: what `TinyBertConfig()` must equal."""

import torch

from docs.bert_by_hand import Bert


def make_reference_model(**shape) -> Bert:
    """A seeded reference model in eval mode whose every tensor is away from its initial value."""
    torch.manual_seed(0)
    model = Bert(**shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()
