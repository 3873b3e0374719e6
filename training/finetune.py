"""`python -m training finetune`: a pre-trained encoder and labelled text to a fine-tuned model in Hub format."""

import copy
import dataclasses
import json
import os
import re
import textwrap
import time
import typing
from pathlib import Path

from training import card, labelled, processes, progress, run_folder, self_training
from training.arguments import FinetuneArguments
from training.card_facts import CARD_FIELDS, card_facts, check_card, without_card_fields
from training.clock import elapsed
from training.errors import UserError
from training.loading import (
    check_complete,
    check_encoder,
    check_finite,
    check_folder,
    check_vocabulary,
    lacking_weights,
    load_tokenizer,
    loading,
    read_as_text,
)
from training.tasks import Data, task_module


if typing.TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FREE_TO_CHANGE = ("resume", "report_to", "save_steps", "output_dir", *CARD_FIELDS)  # may differ when a run is resumed
PATH_FIELDS = ("model", "train_file", "validation_file")
STUDENT_SAVES = 10  # checkpoints of a student's one long pass
DROPOUT_FIELDS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
MAX_NGRAM_BUCKETS = 2**24
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
# The part of a base model that masked-LM checkpoints of BERT and its kin come without.
POOLER = re.compile(r"(^|\.)pooler\.")


def check_numbers(arguments: FinetuneArguments):
    """Raise one `UserError` for all numbers that lie out of range."""
    checks = (
        ("epochs", arguments.epochs > 0, "above 0"),
        ("batch_size", arguments.batch_size >= 1, "at least 1"),
        ("batch_size", arguments.batch_size % processes.count() == 0, f"a multiple of {processes.count()} processes"),
        ("max_length", arguments.max_length >= 1, "at least 1"),
        ("learning_rate", arguments.learning_rate > 0, "above 0"),
        ("embedding_rate", 0 <= arguments.embedding_rate <= 1, "0 to 1"),
        ("warmup_share", 0 <= arguments.warmup_share < 1, "at least 0 and below 1"),
        ("weight_decay", arguments.weight_decay >= 0, "at least 0"),
        ("dropout", 0 <= arguments.dropout < 1, "at least 0 and below 1"),
        ("token_masking", 0 <= arguments.token_masking < 1, "at least 0 and below 1"),
        ("ngram_buckets", 0 <= arguments.ngram_buckets <= MAX_NGRAM_BUCKETS, f"0 to {MAX_NGRAM_BUCKETS}"),
        ("raw_texts", arguments.raw_texts is None or arguments.raw_texts >= 1, "at least 1"),
        ("seed", 0 <= arguments.seed < 2**32, "at least 0 and below 2**32"),
        ("save_steps", arguments.save_steps is None or arguments.save_steps >= 1, "at least 1"),
    )
    wrong = [
        f"--{name} is {getattr(arguments, name)}, but must be {allowed}" for name, fits, allowed in checks if not fits
    ]
    if wrong:
        raise UserError("; ".join(wrong))


def check_model(model: str):
    """Raise a `UserError` unless `model` is a folder with a model and a tokenizer, or could be a Hub id."""
    folder = Path(model)
    if not folder.exists():
        if HUB_ID.fullmatch(model) and not model.startswith("."):
            return
        raise UserError(
            f"--model {model} is no folder; name a folder made by `python -m training pretrain`, or a Hub id"
        )
    check_folder(model, "pretrain")


def hub_id(model: str) -> str | None:
    return None if Path(model).exists() else model


def told(arguments: FinetuneArguments) -> dict:
    """What the run was told, for the training folder; paths hold from any working directory."""
    values = dataclasses.asdict(arguments)
    for name in PATH_FIELDS:
        if values[name] is not None and Path(values[name]).exists():
            values[name] = os.path.abspath(values[name])
    if arguments.raw_files:
        values["raw_files"] = [os.path.abspath(os.path.expanduser(file)) for file in arguments.raw_files]
    return values


def load_pretrained(
    model: str, auto_class: str, fields: dict, dropout: float
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """A pre-trained encoder with a new head, and its tokenizer.

    Args:
        model: Folder or Hub id.
        auto_class: Name of the Auto class of transformers that has the head.
        fields: What the config is told.
        dropout: Of hidden states and attention weights, where the model has such settings.

    Raises:
        UserError: If it does not load, or weights other than the head are missing.
    """
    import transformers
    from transformers.utils import logging

    from hf_tinybert import TinyBertConfig, TinyBertTokenizer

    progress.library_bars_off()
    verbosity = logging.get_verbosity()
    try:
        with loading(model):
            config = transformers.AutoConfig.from_pretrained(model, **fields)
            check_encoder(model, config)
            dropouts = [name for name in DROPOUT_FIELDS if hasattr(config, name)]
            for name in dropouts:
                setattr(config, name, dropout)
            if isinstance(config, TinyBertConfig):
                config.num_ngram_buckets = 0  # those of another task; ours come when the encoder has learnt
            tokenizer = load_tokenizer(model)
            check_vocabulary(f"the tokenizer of --model {model}", tokenizer, config.vocab_size)
            logging.set_verbosity_error()  # the loading report names the new head; the rest is checked below
            loaded, info = getattr(transformers, auto_class).from_pretrained(
                model,
                config=config,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                use_safetensors=True,
            )
    finally:
        logging.set_verbosity(verbosity)
    if not dropouts:
        print(
            f"{config.model_type} has no {' or '.join(DROPOUT_FIELDS)}: its own dropout stays, --dropout is not used"
        )
    _check_loaded(model, loaded.base_model_prefix + ".", info)
    check_finite(model, loaded)
    if isinstance(config, TinyBertConfig):
        tokenizer = TinyBertTokenizer.from_fast(tokenizer, config.max_position_embeddings)
    return loaded, tokenizer


def _check_loaded(model: str, prefix: str, info: dict):
    """Weights of the encoder must all come from the checkpoint; what else differs from it is printed."""
    check_complete(model, "the encoder", info, lambda key: key.startswith(prefix) and not POOLER.search(key))
    new = [key for key in lacking_weights(info) if key.startswith(prefix)]
    unused = sorted(key for key in info["unexpected_keys"] if key.startswith(prefix))
    for what, keys in (("newly initialised", new), ("not used", unused)):
        if keys:
            print(f"weights of {model} {what}: {', '.join(keys)}")
    if any(not key.startswith(prefix) for key, *_ in info["mismatched_keys"]):
        print("the classifier of another task is replaced by a new one")


def check_tokenizer(arguments: FinetuneArguments, tokenizer: "PreTrainedTokenizerBase"):
    """Raise a `UserError` if the tokenizer lacks a special token that this run needs."""
    if tokenizer.pad_token_id is None:
        raise UserError(
            f"the tokenizer of {arguments.model} has no padding token, so texts of unequal length make no batch; "
            "name one in its tokenizer_config.json as pad_token"
        )


def check_known(arguments: FinetuneArguments, tokenizer: "PreTrainedTokenizerBase", texts: list[str]):
    """Print what share of the characters the tokenizer does not know.

    Raises:
        UserError: If it knows none.
    """
    from training.tokenizer import describe_unknown, unknown_share

    shares = unknown_share(texts, tokenizer)
    unknown = [share["unknown"] for share in shares.values()]
    if unknown == [share["characters"] for share in shares.values()]:
        raise UserError(
            f"the tokenizer of --model {arguments.model} knows no character of {arguments.train_file}; "
            "name a model of its language"
        )
    if any(unknown):
        print(f"unknown to the tokenizer: {describe_unknown(shares)}")


def longest_input(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", asked: int, pair: bool) -> int:
    """The asked length in tokens, or what model and tokenizer take at most, which is printed.

    Raises:
        UserError: If special tokens leave no room for text.
    """
    limit = min(getattr(model.config, "max_position_embeddings", asked), tokenizer.model_max_length)
    special = tokenizer.num_special_tokens_to_add(pair=pair)
    longest = min(asked, limit)
    if longest <= special:
        raise UserError(f"--max_length {longest} leaves no room for text beside {special} special tokens")
    if longest < asked:
        print(f"--max_length {asked} is more than the model takes: {longest} is used")
    return longest


def prepare_training_dir(arguments: FinetuneArguments, folder: Path, fingerprints: dict[str, str]) -> Path | None:
    """The checkpoint to go on from; what an earlier run left in `folder` is removed unless it is resumed.

    Args:
        fingerprints: Of the texts, which a resumed run must find as they were.
    """
    now = told(arguments) | fingerprints
    if arguments.resume and run_folder.can_resume(folder, now, FREE_TO_CHANGE):
        checkpoint = run_folder.last_checkpoint(folder)
        print(f"going on from {checkpoint.name}" if checkpoint else "no checkpoint yet: starting from step 0")
        return checkpoint
    if arguments.resume:
        print("nothing to resume: starting afresh")
    for old in folder.glob("checkpoint-*"):
        print(f"removing {old.name}, left by an earlier run (--resume would go on from it)")
    with run_folder.starting_afresh(folder, now):
        return None


def hide_tokens(input_ids, attention_mask, tokenizer, share: float):
    """A copy of `attention_mask` (batch_size, sequence_length) that leaves out a random share of the tokens.

    Word dropout (Iyyer et al. 2015, "Deep Unordered Composition"): without it a small encoder learns a few thousand
    rows by heart in two epochs. Special tokens stay. Behind `[MASK]` tokens would still be part of the mean of a text,
    which no text to classify later has: training/EXPERIMENTS.md.
    """
    import torch

    special = torch.tensor(tokenizer.all_special_ids, device=input_ids.device)
    hidden = (torch.rand(input_ids.shape, device=input_ids.device) < share) & ~torch.isin(input_ids, special)
    return attention_mask.masked_fill(hidden, 0)


def leave_out(inputs: dict, seen) -> dict:
    """The batch without the tokens that `seen` (batch_size, sequence_length) hides, the others at their positions.

    An encoder that is told positions, and whose answer is of the tokens seen alone, answers the same, for less work.
    """
    order = seen.argsort(dim=1, descending=True, stable=True)[:, : int(seen.sum(dim=1).max())]
    shorter = {
        "input_ids": inputs["input_ids"].gather(1, order),
        "attention_mask": seen.gather(1, order),
        "position_ids": (order - order[:, :1]).clamp(min=0),  # positions count from the first token, which stays
    }
    return {name: values for name, values in inputs.items() if name != "token_type_ids"} | shorter


def _trainer_class(share: float, embedding_share: float):
    from hf_tinybert import TinyBertForSequenceClassification
    from training.trainer import ExactTrainer

    class FinetuningTrainer(ExactTrainer):
        """Gives token embeddings a learning rate of their own, and hides tokens.

        At the step, not while batches are drawn: a resumed run then draws the same ones.
        """

        def create_optimizer(self, model=None):
            new = self.optimizer is None
            optimizer = super().create_optimizer(model)
            if new and embedding_share != 1:
                slow_down(optimizer, self.model.get_input_embeddings().weight, embedding_share)
            return optimizer

        def compute_loss(self, model, inputs, *args, **kwargs):
            if model.training and share:
                tokens = inputs["input_ids"], inputs["attention_mask"]
                seen = hide_tokens(*tokens, self.processing_class, share)
                if isinstance(self.model, TinyBertForSequenceClassification):  # takes positions, and has no segments
                    inputs = leave_out(inputs, seen)
                else:
                    inputs = inputs | {"attention_mask": seen}
            labels = inputs.get("labels")
            if self.model.config.problem_type != labelled.SINGLE_LABEL or labels is None or labels.ndim == 1:
                return super().compute_loss(model, inputs, *args, **kwargs)
            outputs = model(**{name: values for name, values in inputs.items() if name != "labels"})
            return cross_entropy(outputs.logits, labels, kwargs.get("num_items_in_batch"))

    return FinetuningTrainer


def cross_entropy(logits, probabilities, num_items_in_batch=None):
    """Mean cross-entropy of `logits` (batch_size, num_labels) with `probabilities` of that shape.

    Args:
        num_items_in_batch: Number of probabilities in all the batches of an optimizer step, as Trainer counts them;
            `None` means in this one.
    """
    from torch.nn.functional import cross_entropy

    total = cross_entropy(logits.float(), probabilities, reduction="sum")
    return total * logits.shape[-1] / (logits.numel() if num_items_in_batch is None else num_items_in_batch)


def slow_down(optimizer, weight, share: float):
    """Move `weight` into a group of `optimizer` of its own, whose learning rate is `share` of that of the others."""
    for group in optimizer.param_groups:
        rest = [each for each in group["params"] if each is not weight]
        if len(rest) < len(group["params"]):
            group["params"] = rest
            optimizer.add_param_group({**group, "params": [weight], "lr": share * group["lr"]})
            return


def make_trainer(arguments: FinetuneArguments, model, tokenizer, dataset: "Dataset", folder: Path, epochs: float):
    """A `Trainer` over encoded training rows.

    Args:
        folder: Of its checkpoints.
        epochs: Passes over `dataset`; one alone is saved and told of on the way.
    """
    import torch
    from transformers import PrinterCallback, TrainingArguments

    from hf_tinybert import TinyBertConfig
    from training.precision import BFLOAT16, fastest_attention, fastest_precision
    from training.predict import best_device

    precision = fastest_precision(best_device())
    when: dict = {"logging_strategy": "epoch", "save_strategy": "epoch"}
    if epochs == 1:
        when = dict.fromkeys(when, "steps") | {"logging_steps": 1 / STUDENT_SAVES, "save_steps": 1 / STUDENT_SAVES}
    if arguments.save_steps:
        when |= {"save_strategy": "steps", "save_steps": arguments.save_steps}
    if isinstance(model.config, TinyBertConfig):
        model.set_attn_implementation(fastest_attention(best_device(), precision))
    trainer = _trainer_class(arguments.token_masking, arguments.embedding_rate)(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            num_train_epochs=epochs,
            per_device_train_batch_size=arguments.batch_size // processes.count(),
            learning_rate=arguments.learning_rate,
            lr_scheduler_type="linear",
            warmup_steps=arguments.warmup_share,  # below 1: a share of all steps
            weight_decay=arguments.weight_decay,
            bf16=precision == BFLOAT16,
            use_cpu=best_device().type == "cpu",
            train_sampling_strategy="group_by_length",
            seed=arguments.seed,
            data_seed=arguments.seed,
            logging_nan_inf_filter=False,  # a loss that is no number must show
            **when,
            report_to=arguments.report_to,
            disable_tqdm=True,
            dataloader_pin_memory=torch.accelerator.is_available(),
        ),
        train_dataset=dataset,
        data_collator=task_module(arguments.task).make_collator(tokenizer),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(_progress_callback(epochs))
    return trainer


def _progress_callback(epochs: float):
    from transformers import TrainerCallback

    class Progress(TrainerCallback):
        """A plain line for each logged loss."""

        def on_train_begin(self, args, state, control, **kwargs):
            self.started = time.monotonic()

        def on_log(self, args, state, control, logs=None, **kwargs):
            if logs and "loss" in logs:
                seconds = time.monotonic() - self.started
                where = f"epoch {logs['epoch']:g}/{epochs:g}  step {state.global_step:,}/{state.max_steps:,}"
                print(f"{where}  loss {float(logs['loss']):.4f}  {seconds:.0f} s", flush=True)

    return Progress()


def publish(arguments: FinetuneArguments, finetuned, tokenizer, results: dict):
    """Write the model folder in one step."""
    with run_folder.publishing(arguments.output_dir) as folder:
        finetuned.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        run_folder.write_json(folder / run_folder.TASK_FILE, dataclasses.asdict(finetuned.task))
        run_folder.write_json(folder / run_folder.RESULTS_FILE, results)
        card.write_card(folder)


def settings(arguments: FinetuneArguments) -> dict:
    """What the run was told, fit to be published: names in place of paths, and nothing about this machine."""
    told = without_card_fields(dataclasses.asdict(arguments))
    for name in ("output_dir", "resume", "report_to", "save_steps", "encoding"):
        del told[name]
    for name in ("train_file", "validation_file"):
        told[name] = told[name] and Path(told[name]).name
    if told["raw_files"]:
        told["raw_files"] = [Path(name).name for name in told["raw_files"]]
    else:
        del told["raw_files"], told["raw_texts"]
    if Path(arguments.model).exists():
        told["model"] = Path(arguments.model).resolve().name
    return told


def describe(training: Data, validation: Data, shared: int, labels: list[str]):
    """Print what was read.

    Args:
        shared: Number of validation rows that stand in training.
        labels: Lines about what there is to tell apart.
    """
    dropped = f", {training.blank:,} with a blank text dropped" if training.blank else ""
    print(f"training rows: {len(training):,} of {training.source}{dropped}")
    print(f"validation rows: {len(validation):,} of {validation.source}")
    for line in labels:
        print(line)
    if shared:
        print(
            f"warning: {shared:,} validation rows have the very text of a training row, "
            "which flatters every score below"
        )


def check(arguments: FinetuneArguments):
    """Everything that can be told before any work.

    Raises:
        UserError: For a number out of range, an output folder in use, no such model or file.
    """
    check_numbers(arguments)
    task_module(arguments.task).check_arguments(arguments)
    self_training.check_arguments(arguments)
    if processes.is_main():
        run_folder.check_output_dir(arguments.output_dir)
    check_model(arguments.model)
    check_card(arguments, settings(arguments))
    if arguments.resume:
        run_folder.can_resume(run_folder.training_dir(arguments.output_dir), told(arguments), FREE_TO_CHANGE)


def make_task(
    arguments: FinetuneArguments,
    problem_type: str | None,
    max_length: int,
    label_names: list[str] | None,
    counts: dict,
):
    from training.predict import Task

    return Task(
        task=arguments.task,
        problem_type=problem_type,
        text_column=arguments.text_column,
        text_pair_column=arguments.text_pair_column,
        label_column=arguments.label_column,
        max_length=max_length,
        label_names=label_names,
        answer_length=counts.get("answer_length"),
        may_be_none=bool(counts.get("impossible")),
    )


def finetune(arguments: FinetuneArguments) -> dict:
    """Fine-tune, score beside the baseline of the task, publish the folder.

    The model kept is the last one: none is picked by its validation score, so that score is an honest one.

    Returns:
        What `eval_results.json` holds: `rows`, `steps`, `seed`, `settings`, and `scores` by the name of the file
        scored on.

    Raises:
        UserError: If the arguments, the model or the data are not as they must be.
    """
    check(arguments)
    with run_folder.occupying(arguments.output_dir) as folder:
        return _finetune(arguments, folder)


def _finetune(arguments: FinetuneArguments, folder: Path) -> dict:
    module = task_module(arguments.task)
    with progress.step("reading labelled text"):
        training, validation = module.load_split(arguments)
    shared = labelled.count_shared(training, validation)
    describe(training, validation, shared, module.describe_labels(training))
    raw = self_training.read_raw_texts(arguments, training, validation) if arguments.raw_files else None

    from transformers import set_seed

    from training.evaluate import print_scores
    from training.folder_checks import VOCABULARY_KEY, vocabulary_sha256
    from training.language import detect_language
    from training.lengths import length_histogram, token_lengths
    from training.predict import FineTuned
    from training.reporting import check_report_to
    from training.review import review

    check_report_to(arguments.report_to)
    fields = module.config_fields(arguments, training)
    set_seed(arguments.seed)  # of the new head
    model, tokenizer = load_pretrained(arguments.model, module.AUTO_CLASS, fields, arguments.dropout)
    check_tokenizer(arguments, tokenizer)
    check_known(arguments, tokenizer, [text for key in training.text_keys() for text in key])
    tokenizer = module.fit_tokenizer(tokenizer, training)
    read_as_text(tokenizer)
    pristine = copy.deepcopy(tokenizer)  # encoding leaves its cut length behind in the tokenizer
    max_length = longest_input(model, tokenizer, arguments.max_length, arguments.text_pair_column is not None)
    fingerprint = labelled.fingerprint(training)
    fingerprints = {"train_file_rows": fingerprint} | ({"raw_texts_read": raw.fingerprint} if raw else {})
    checkpoint = processes.from_main(
        prepare_training_dir(arguments, folder, fingerprints) if processes.is_main() else None
    )
    with progress.step("encoding the training rows"):
        dataset, counts, lines = module.encode_training(tokenizer, training, max_length)
    for line in lines:
        print(line)
    texts, pairs = module.inputs(training)
    learnt, epochs = dataset, arguments.epochs
    if raw is not None:
        answers = self_training.teacher_answers(
            folder, lambda: _teach(arguments, folder, model, tokenizer, dataset, training, raw, max_length)
        )
        set_seed(arguments.seed)
        model, _ = load_pretrained(arguments.model, module.AUTO_CLASS, fields, arguments.dropout)
        learnt, epochs = self_training.with_answers(dataset, raw, answers, tokenizer, max_length, epochs), 1
    steps = _train(arguments, folder, checkpoint, model, tokenizer, learnt, epochs)
    if not processes.is_main():
        return {}

    _finish(arguments, model, tokenizer, dataset, training)
    problem_type = fields.get("problem_type")
    task = make_task(arguments, problem_type, max_length, training.label_names, counts)
    finetuned = FineTuned(model, tokenizer, task)
    with progress.step("fitting what the model is compared with"):
        baselines = module.fit_baselines(training, problem_type)
    scores = module.score_all(finetuned, baselines, validation)
    beyond = "cut" if arguments.task == "sequence-classification" else "windows"
    results = {
        "task": task.task,
        "problem_type": problem_type,
        "rows": {
            "training": len(training),
            "blank_dropped": training.blank,
            **counts,
            **({"unlabelled": len(raw.texts)} if raw else {}),
            "fingerprint": fingerprint,
            "lengths": length_histogram(token_lengths(tokenizer, texts, pairs), max_length, beyond),
        },
        VOCABULARY_KEY: vocabulary_sha256(tokenizer.get_vocab()),
        "steps": steps,
        **({} if checkpoint else {"seconds": round(elapsed(), 1)}),  # a resumed run does not know what went before
        "seed": arguments.seed,
        "settings": settings(arguments),
        **card_facts(arguments, settings(arguments), detect_language(texts), base_model=hub_id(arguments.model)),
        "scores": {validation.source: {**scores, "also_in_training": shared}},
    }
    publish(arguments, finetuned, pristine, results)
    print_scores(validation.source, scores, task)
    review(folder, finetuned, validation, scores, arguments.card_language)
    return results


def _train(
    arguments: FinetuneArguments,
    folder: Path,
    checkpoint: Path | None,
    model,
    tokenizer,
    rows: "Dataset",
    epochs: float,
) -> int:
    """Train `model` in place in `epochs` passes over `rows`, with checkpoints in `folder`; returns the steps."""
    attention = model.config._attn_implementation
    trainer = make_trainer(arguments, model, tokenizer, rows, folder, epochs)
    trainer.train_from(checkpoint)
    model.set_attn_implementation(attention)  # scores are those that a fresh load would have
    return trainer.state.global_step


def _finish(arguments: FinetuneArguments, model, tokenizer, rows: "Dataset", training: Data):
    """What the task puts beside the encoder when it has learnt."""
    module = task_module(arguments.task)
    if hasattr(module, "finish"):
        module.finish(arguments, model, tokenizer, rows, training)


def _teach(
    arguments: FinetuneArguments,
    folder: Path,
    model,
    tokenizer,
    rows: "Dataset",
    training: Data,
    raw: self_training.RawTexts,
    max_length: int,
) -> "np.ndarray":
    """Fine-tune the teacher, `model`, on the labelled rows; returns its answers to the raw texts (n, num_labels)."""
    from training.classification import predict_logits, probabilities

    print(f"first a teacher learns the training rows, to answer {len(raw.texts):,} raw texts")
    place = folder / self_training.TEACHER
    checkpoint = processes.from_main(run_folder.last_checkpoint(place) if processes.is_main() else None)
    _train(arguments, place, checkpoint, model, tokenizer, rows, arguments.epochs)
    if not processes.is_main():
        return processes.from_main(None)
    _finish(arguments, model, tokenizer, rows, training)
    logits, _ = predict_logits(model, tokenizer, raw.texts, None, max_length)
    return processes.from_main(probabilities(logits, labelled.SINGLE_LABEL))


def main(arguments: FinetuneArguments) -> int:
    """Carry out the verb; returns the exit status, 1 if the finished folder fails a check."""
    from training import validate
    from training.predict import read_task, tell_how_to_predict

    with processes.only_main_prints():
        if arguments.resume and processes.from_main(is_finished(arguments)):
            return 0
        finetune(arguments)
        print_how_to_load(arguments)
        if not processes.is_main():
            return 0
        status = validate.check_finished(arguments.output_dir)
        if status == 0:
            tell_how_to_predict(arguments.output_dir, read_task(arguments.output_dir))
        return status


def is_finished(arguments: FinetuneArguments) -> bool:
    """Whether the run that should be resumed is finished already."""
    return processes.is_main() and run_folder.is_finished(arguments.output_dir, told(arguments), FREE_TO_CHANGE)


def print_how_to_load(arguments: FinetuneArguments):
    print("the model kept is the last one, not one picked by its validation score")
    print(f"finished: {arguments.output_dir}. To load it:\n")
    print("    import hf_tinybert")
    module, folder = task_module(arguments.task), json.dumps(arguments.output_dir, ensure_ascii=False)
    if hasattr(module, "USAGE"):
        print(textwrap.indent(module.USAGE.format(model=folder), "    "))
    else:
        print("    from transformers import pipeline")
        print(f'    {module.EXAMPLE} = pipeline("{module.PIPELINE}", model={folder}{module.PIPELINE_OPTIONS})')
