"""The peers of pre-training, each as its users run it; `work` functions of `training.bench.peers`."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from datasets import Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    ModernBertConfig,
    ModernBertForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from training import pretrain
from training.arguments import PretrainArguments
from training.bench import gemm, memory
from training.bench.peers import Orders
from training.loading import load_tokenizer
from training.run_folder import PREPARED
from training.trainer import keep_memory_between_steps


ENDLESS = 1_000_000  # steps; nobody waits for the last one
LENGTH = pretrain.BLOCK_SIZE


class OnOrder(TrainerCallback):
    """Lets a Trainer go only as many steps as it is told to, and replies with the seconds and the peak of memory.

    Args:
        orders: Of numbers of steps.
        facts: From the arguments of the Trainer, what to reply when it is ready for its first step.
    """

    def __init__(self, orders: Orders, facts):
        self.orders, self.facts = orders, facts
        self._left = 0
        self._started = 0.0
        self._memory_before = 0

    def on_train_begin(self, args, state, control, **kwargs):
        self.orders.reply(self.facts(args))
        self._memory_before = memory.start_peak()
        self._wait()

    def on_step_end(self, args, state, control, **kwargs):
        self._left -= 1
        if self._left == 0:
            if args.device.type != "cpu":
                torch.accelerator.synchronize()
            seconds = time.perf_counter() - self._started
            self.orders.reply({"seconds": seconds, "peak_bytes": memory.peak() - self._memory_before})
            self._wait()

    def _wait(self):
        self._left = self.orders.wait()
        self._started = time.perf_counter()


def shape(size: str) -> dict:
    """The fields of a `pretrain.SIZES` that every encoder of transformers has."""
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    return {name: pretrain.SIZES[size][name] for name in names}


def bert_config(size: str, vocab_size: int, pad_token_id: int, **more) -> BertConfig:
    """BERT of a size of ours, otherwise as it comes."""
    return BertConfig(
        vocab_size=vocab_size,
        pad_token_id=pad_token_id,
        intermediate_size=4 * pretrain.SIZES[size]["hidden_size"],
        max_position_embeddings=pretrain.MAX_POSITIONS,
        **shape(size),
        **more,
    )


def bert(size: str, tokenizer) -> BertForMaskedLM:
    return BertForMaskedLM(bert_config(size, len(tokenizer), tokenizer.pad_token_id))


def modernbert(size: str, tokenizer) -> ModernBertForMaskedLM:
    """ModernBERT with as many weights in its feed-forward, which has three matrices in place of two."""
    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        intermediate_size=8 * pretrain.SIZES[size]["hidden_size"] // 3,
        max_position_embeddings=pretrain.MAX_POSITIONS,
        sparse_prediction=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        cls_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        sep_token_id=tokenizer.sep_token_id,
        **shape(size),
    )
    return ModernBertForMaskedLM(config)


MODELS = {"bert": bert, "modernbert": modernbert}


def concatenated_blocks(blocks: np.ndarray, tokenizer) -> Dataset:
    """A dataset with the columns that transformers' run_mlm.py makes of text laid end to end.

    Args:
        blocks: `(number, LENGTH)` token ids.
    """
    special = np.isin(blocks, tokenizer.all_special_ids).astype(np.int8)
    return Dataset.from_dict(
        {"input_ids": blocks, "attention_mask": np.ones_like(special), "special_tokens_mask": special}
    )


def train_peer(
    orders: Orders,
    model: str,
    size: str,
    tokenizer: str,
    blocks: str,
    batch_size: int,
    mlm_probability: float,
    tuned: bool,
):
    """transformers' own model under Trainer, as its example run_mlm.py does it.

    Args:
        model: A name of `MODELS`.
        tokenizer, blocks: Folder and file.
        tuned: Whether glibc keeps freed memory, as it does for ours.
    """
    if tuned:
        keep_memory_between_steps()
    loaded = load_tokenizer(tokenizer)
    transformers.set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            MODELS[model](size, loaded),
            TrainingArguments(
                folder,
                per_device_train_batch_size=batch_size,
                max_steps=ENDLESS,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                bf16=torch.cuda.is_available(),
            ),
            train_dataset=concatenated_blocks(np.load(blocks), loaded),
            data_collator=DataCollatorForLanguageModeling(loaded, mlm_probability=mlm_probability),
            callbacks=[OnOrder(orders, lambda args: {"tokens_per_step": batch_size * LENGTH})],
        ).train()


def train_ours(orders: Orders, size: str, tokenizer: str, text: str, batch_size: int):
    """`python -m training pretrain`, all of it.

    The callback comes in where transformers keeps the callbacks of every Trainer, so that nothing here repeats how
    `pretrain` sets its own up.
    """

    def facts(args) -> dict:
        blocks = pretrain.Prepared.load(Path(args.output_dir) / PREPARED)
        ids = np.stack(blocks.train["input_ids"])
        return {
            "tokens_per_step": batch_size * LENGTH * float((ids != blocks.tokenizer.pad_token_id).mean()),
            "precision": _precision(args),
        }

    with tempfile.TemporaryDirectory() as folder:
        transformers.trainer.DEFAULT_CALLBACKS.append(OnOrder(orders, facts))
        pretrain.main(
            PretrainArguments(
                train_files=[text],
                tokenizer=tokenizer,
                size=size,
                batch_size=batch_size,
                max_steps=ENDLESS,
                output_dir=os.path.join(folder, "model"),
            )
        )


def _precision(args: TrainingArguments) -> str:
    """The precision of the matrix products of a Trainer: a key of `gemm.PRECISIONS`."""
    if args.bf16 or torch.is_autocast_enabled(args.device.type):
        return "bfloat16"
    return "float32" if torch.get_float32_matmul_precision() == "highest" else "float32, by oneDNN"


def gemm_limit(orders: Orders, size: str, vocab_size: int, batch_size: int, mlm_probability: float, precision: str):
    """The matrix products of a step of ours, and nothing else."""
    step, facts = gemm.make_step(
        **shape(size),
        embedding_size=pretrain.SIZES[size].get("embedding_size", pretrain.SIZES[size]["hidden_size"]),
        vocab_size=vocab_size,
        batch_size=batch_size,
        length=LENGTH,
        mlm_probability=mlm_probability,
        precision=precision,
    )
    orders.reply({"tokens_per_step": batch_size * LENGTH, **facts})
    before = memory.start_peak()
    while True:
        steps = orders.wait()
        started = time.perf_counter()
        for _ in range(steps):
            step()
        seconds = time.perf_counter() - started
        orders.reply({"seconds": seconds, "peak_bytes": memory.peak() - before})
