"""A tiny model, its tokenizer and separable text, for the tests of fine-tuning."""

import random
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM


NEUTRAL = "书店房间服务电脑早餐老板"
MARKS = {"好评": "喜欢", "差评": "讨厌"}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of single characters."""
    tokens = [*SPECIAL, *sorted(set(NEUTRAL + "".join(MARKS.values())))]
    vocab = {token: index for index, token in enumerate(tokens)}
    raw = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    raw.post_processor = processors.BertProcessing(("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"]))
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"],
        **dict(zip(names, SPECIAL, strict=True)),
    )


def save_pretrained(folder: Path) -> Path:
    """A masked-LM of the reference shape, untrained, with its tokenizer."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    TinyBertForMaskedLM(TinyBertConfig(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_rows(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """(label, text), the classes in turn, told apart by one word."""
    rng = random.Random(seed)
    labels = list(MARKS)
    rows = []
    for index in range(count):
        label = labels[index % len(labels)]
        words = [*rng.choices(NEUTRAL, k=rng.randint(2, 10)), MARKS[label]]
        rng.shuffle(words)
        rows.append((label, "".join(words)))
    return rows


def write_tsv(path: Path, rows, header: str = "label\ttext") -> Path:
    path.write_text("\n".join([header, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path
