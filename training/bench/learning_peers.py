"""The peers of learning; `work` functions of `training.bench.peers`, which reply once, at their end."""

import tempfile

import numpy as np
import torch
import transformers
from transformers import BertForMaskedLM, DataCollatorForLanguageModeling, TrainingArguments
from transformers.modeling_outputs import MaskedLMOutput

from training import pretrain
from training.arguments import PretrainArguments
from training.bench.peers import Orders
from training.bench.train_peers import bert_config, concatenated_blocks
from training.masking import evaluation_batches
from training.planning import learning_rate
from training.schedule import Plan
from training.trainer import PretrainingTrainer


class LabelledBert(BertForMaskedLM):
    """BERT whose head meets the vocabulary at labelled positions only: the same loss, at a fraction of the work."""

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, **kwargs):
        hidden_states = self.bert(input_ids, attention_mask, token_type_ids).last_hidden_state
        labelled = labels != -100
        logits = self.cls(hidden_states[labelled]).float()
        return MaskedLMOutput(loss=torch.nn.functional.cross_entropy(logits, labels[labelled]), logits=logits)


def ours(orders: Orders, arguments: PretrainArguments):
    """`python -m training pretrain`, all of it; what it measured lies in the folder that it makes."""
    orders.reply({"status": pretrain.main(arguments)})


def bert(orders: Orders, arguments: PretrainArguments):
    """HF Bert without dropout, on the blocks, with the rate, schedule, decay and masked share of `arguments`."""
    prepared = pretrain.prepare(arguments)
    tokenizer = prepared.tokenizer
    blocks = np.stack(prepared.train["input_ids"])
    blocks = blocks[(blocks != tokenizer.pad_token_id).all(axis=1)]
    transformers.set_seed(arguments.seed)
    config = bert_config(
        arguments.size,
        len(tokenizer),
        tokenizer.pad_token_id,
        hidden_dropout_prob=arguments.dropout,
        attention_probs_dropout_prob=arguments.dropout,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = PretrainingTrainer(
            model=LabelledBert(config),
            args=TrainingArguments(
                folder,
                per_device_train_batch_size=arguments.batch_size,
                max_steps=arguments.max_steps,
                learning_rate=arguments.learning_rate or learning_rate(config.hidden_size),
                weight_decay=arguments.weight_decay,
                adam_beta2=0.98,
                seed=arguments.seed,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                bf16=torch.cuda.is_available(),
            ),
            train_dataset=concatenated_blocks(blocks, tokenizer),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=arguments.mlm_probability),
            plan=Plan(arguments.max_steps),
            warmup_share=arguments.warmup_share,
        )
        trainer.train()
    orders.reply(evaluate(trainer.model, prepared.held_out, tokenizer))


@torch.no_grad()
def evaluate(model: BertForMaskedLM, blocks, tokenizer) -> dict[str, float]:
    """The loss on held-out blocks, masked as `pretrain.evaluate` masks them, and the number of masked tokens.

    Blocks are read as they were trained on: as one text each.
    """
    model.eval()
    loss, predictions = 0.0, 0
    for batch in evaluation_batches(blocks, tokenizer, pretrain.EVALUATION_BATCH_SIZE):
        ids, labels = batch["input_ids"].to(model.device), batch["labels"].to(model.device)
        count = int((labels != -100).sum())
        if count:
            loss += model(ids, ids != tokenizer.pad_token_id, labels=labels).loss.item() * count
        predictions += count
    return {"loss": loss / max(1, predictions), "predictions": predictions}
