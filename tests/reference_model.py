"""The reference model, written by hand from torch's own parts: what `TinyBertConfig()` must equal."""

import torch
from torch import nn
from torch.nn import functional as F


class ReferenceEncoder(nn.Module):
    def __init__(self, vocab_size, d_model, nhead, num_layers, max_len, dropout):
        super().__init__()
        self.token_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(max_len, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, nhead, 4 * d_model, dropout, batch_first=True, activation="gelu"
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, input_ids, attention_mask=None):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.token_emb(input_ids) + self.pos_emb(positions)
        padding = None if attention_mask is None else attention_mask == 0
        return self.layer_norm(self.encoder(hidden, src_key_padding_mask=padding))


class ReferenceMLMHead(nn.Module):
    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.decoder = nn.Linear(d_model, vocab_size)

    def forward(self, hidden):
        return self.decoder(self.norm(F.gelu(self.dense(hidden))))


class ReferenceModel(nn.Module):
    """An encoder with both heads. `forward` gives hidden states, masked-LM logits and class logits."""

    def __init__(self, vocab_size=1000, d_model=64, nhead=4, num_layers=2, max_len=64, num_labels=2, dropout=0.1):
        super().__init__()
        self.encoder = ReferenceEncoder(vocab_size, d_model, nhead, num_layers, max_len, dropout)
        self.mlm_head = ReferenceMLMHead(d_model, vocab_size)
        self.cls_head = nn.Linear(d_model, num_labels)

    def forward(self, input_ids, attention_mask=None):
        hidden = self.encoder(input_ids, attention_mask)
        return hidden, self.mlm_head(hidden), self.cls_head(hidden[:, 0])


def make_reference_model(**shape) -> ReferenceModel:
    """A seeded reference model in eval mode whose every tensor is away from its initial value."""
    torch.manual_seed(0)
    model = ReferenceModel(**shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()
