"""A small BERT typed by hand, from torch's own parts, and the loop that trains it.

    python docs/bert_by_hand.py TEXT.txt TOKENIZER_FOLDER MODEL.pt [STEPS]

Nothing here knows of hf_tinybert. What it saves, `python -m training import` turns into a folder that AutoModel loads;
docs/by_hand.md tells how. The names of the attributes are what the import goes by.
"""

import random
import sys

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    """Tokens and positions to vectors: every token sees every token, padding is seen by none."""

    def __init__(self, vocab_size, d_model, nhead, num_layers, max_len, dropout):
        super().__init__()
        self.token_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(max_len, d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 4 * d_model, dropout, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, input_ids, attention_mask=None):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.token_emb(input_ids) + self.pos_emb(positions)
        padding = None if attention_mask is None else attention_mask == 0
        return self.layer_norm(self.encoder(hidden, src_key_padding_mask=padding))


class MLMHead(nn.Module):
    """Vectors to a score for each token of the vocabulary."""

    def __init__(self, d_model, vocab_size):
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.norm = nn.LayerNorm(d_model)
        self.decoder = nn.Linear(d_model, vocab_size)

    def forward(self, hidden):
        return self.decoder(self.norm(F.gelu(self.dense(hidden))))


class Bert(nn.Module):
    """The encoder with both heads: hidden states, scores of tokens, scores of classes (read from [CLS])."""

    def __init__(self, vocab_size=1000, d_model=64, nhead=4, num_layers=2, max_len=64, num_labels=2, dropout=0.1):
        super().__init__()
        self.encoder = Encoder(vocab_size, d_model, nhead, num_layers, max_len, dropout)
        self.mlm_head = MLMHead(d_model, vocab_size)
        self.cls_head = nn.Linear(d_model, num_labels)

    def forward(self, input_ids, attention_mask=None):
        hidden = self.encoder(input_ids, attention_mask)
        return hidden, self.mlm_head(hidden), self.cls_head(hidden[:, 0])


def mask_tokens(input_ids, tokenizer):
    """15 % of the tokens are to be guessed: 80 % of them show [MASK], 10 % a random token, 10 % themselves."""
    special = torch.isin(input_ids, torch.tensor(tokenizer.all_special_ids))
    chosen = (torch.rand(input_ids.shape) < 0.15) & ~special
    how = torch.rand(input_ids.shape)
    masked = input_ids.clone()
    masked[chosen & (how < 0.8)] = tokenizer.mask_token_id
    at_random = chosen & (how >= 0.8) & (how < 0.9)
    masked[at_random] = torch.randint(len(tokenizer), input_ids.shape)[at_random]
    return masked, input_ids.masked_fill(~chosen, -100)


def train(model, tokenizer, lines, steps, batch_size=32):
    """Masked language modelling; prints the loss ten times."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for step in range(1, steps + 1):
        batch = tokenizer(
            random.sample(lines, min(batch_size, len(lines))),
            padding=True,
            truncation=True,
            max_length=model.encoder.pos_emb.num_embeddings,
            return_tensors="pt",
        )
        masked, labels = mask_tokens(batch["input_ids"], tokenizer)
        _, logits, _ = model(masked, batch["attention_mask"])
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % max(1, steps // 10) == 0:
            print(f"step {step}  loss {loss.item():.3f}")


def main(text_file, tokenizer_folder, model_file, steps=500):
    from transformers import PreTrainedTokenizerFast

    torch.manual_seed(0)
    random.seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_folder)
    with open(text_file, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    model = Bert(vocab_size=len(tokenizer))
    train(model, tokenizer, lines, int(steps))
    torch.save(model.state_dict(), model_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
