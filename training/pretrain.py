"""Pre-train an encoder.

`python -m training pretrain --train_files reviews.txt --time_budget 10m --output_dir runs/zh`
"""

import contextlib
import copy
import dataclasses
import functools
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
import torch
import transformers
from datasets import Dataset
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, PreTrainedTokenizerFast, TrainingArguments

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM, TinyBertTokenizer
from training import card, planning, processes, progress, validate
from training.arguments import PretrainArguments, parse_duration
from training.card_facts import CARD_FIELDS, card_facts, check_card, without_card_fields
from training.clock import as_text, elapsed, say
from training.compiling import WORTH_TRYING, compiled_layers, reason
from training.corpus import load_corpus, split_corpus
from training.encoding import encode, pack, token_counts, unigram_entropy
from training.errors import UserError
from training.folder_checks import VOCABULARY_KEY, vocabulary_sha256
from training.language import detect_language
from training.lengths import length_histogram, measured
from training.loading import check_complete, check_finite, check_folder, check_vocabulary, loading
from training.masking import EpochOrder, PackedMaskingCollator, evaluation_batches
from training.next_command import tell_next
from training.precision import BFLOAT16, autocasting, fastest_attention, fastest_precision
from training.predict import best_device
from training.reporting import check_report_to
from training.run_folder import (
    PREPARED,
    RESULTS_FILE,
    can_resume,
    check_output_dir,
    find_damage,
    is_finished,
    last_checkpoint,
    occupying,
    publishing,
    read_json,
    starting_afresh,
    write_json,
    written_whole,
)
from training.schedule import Journal, Plan
from training.starting_embeddings import start_from, starting_embeddings
from training.streaming import SAMPLE_CHARACTERS, Stream, StreamedOrder
from training.tokenizer import describe_unknown, load_masking_tokenizer, train_tokenizer, unknown_share
from training.trainer import (
    Deadline,
    PlanCallback,
    PretrainingTrainer,
    ProgressCallback,
    SaveCallback,
    keep_memory_between_steps,
    seconds_spent,
    steps_done,
)


DEFAULT_TIME_BUDGET = "10m"
DEFAULT_SIZE = "tiny"
DEFAULT_CHINESE_TOKENS = "words"
FREE_TO_CHANGE = ("resume", "output_dir", "report_to", "save_steps", *CARD_FIELDS)  # may differ when a run is resumed
FACTS = "facts.json"
BLOCK_SIZE = 128
MAX_POSITIONS = 512
EMBEDDINGS, COUNTS = "embeddings.npy", "counts.npy"
EVALUATION_BLOCKS = 400  # at 128 tokens and 15 % about 7,700 predictions: a standard error near 0.03 nats
EVALUATION_BATCH_SIZE = 32
CALIBRATION_STEPS = 5
MUST_SAVE = 0.98  # of a step's time may be left when its layers are compiled, else they are not
SAVING_SECONDS = 5.0

# Shapes of Turc et al. 2019 (arXiv 1908.08962). Rotary positions, a tied decoder, mean pooling and wider initial
# weights are departures from the reference model; training/EXPERIMENTS.md has what was measured.
_SMALL_ENCODER = {
    "position_embedding_type": "rotary",
    "tie_word_embeddings": True,
    "classifier_pooling": "mean",
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.05,
}
SIZES: dict[str, dict] = {
    "reference": {},
    "tiny": {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, **_SMALL_ENCODER},
    "mini": {
        **{"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "embedding_size": 128},
        **_SMALL_ENCODER,
    },
    "small": {"num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, **_SMALL_ENCODER},
    "medium": {"num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8, **_SMALL_ENCODER},
}


# Tokens at most where they are left to choose, so that mini's encoder of four layers keeps below 5 million parameters.
VOCABULARY_LIMITS = {"mini": 14_000}


@dataclass
class Prepared:
    """What training needs: the tokenizer, and packed blocks of training and held-out text.

    Where the text is streamed, these are of what was read ahead, and training reads the `stream`.
    """

    tokenizer: PreTrainedTokenizerFast
    train: Dataset
    held_out: Dataset
    facts: dict  # of the corpus, as printed and as kept beside the results
    counts: np.ndarray  # how often each token stands in the training text, (vocab_size,)
    embeddings: np.ndarray | None  # that a new model starts from; `None` where one is continued
    stream: Stream | None = None

    def save(self, folder: Path):
        self.tokenizer.save_pretrained(folder / "tokenizer")
        self.train.save_to_disk(str(folder / "train"))
        self.held_out.save_to_disk(str(folder / "held_out"))
        np.save(folder / COUNTS, self.counts)
        if self.embeddings is not None:
            np.save(folder / EMBEDDINGS, self.embeddings)
        if self.stream is not None:
            self.stream.save(folder)
        write_json(folder / FACTS, self.facts)

    @classmethod
    def load(cls, folder: Path) -> "Prepared":
        return cls(
            tokenizer=load_masking_tokenizer(folder / "tokenizer"),
            train=datasets.load_from_disk(str(folder / "train")).with_format("numpy"),
            held_out=datasets.load_from_disk(str(folder / "held_out")).with_format("numpy"),
            facts=json.loads((folder / FACTS).read_text(encoding="utf-8")),
            counts=np.load(folder / COUNTS),
            embeddings=np.load(folder / EMBEDDINGS) if (folder / EMBEDDINGS).is_file() else None,
            stream=Stream.load(folder),
        )


def main(arguments: PretrainArguments) -> int:
    """Carry out the verb `pretrain`; returns the exit status, 1 if the finished folder fails a check."""
    _check(arguments)
    _quieten_libraries()
    keep_memory_between_steps()
    with processes.only_main_prints():
        if arguments.resume and processes.from_main(_is_finished(arguments)):
            return 0
        return _pretrain(arguments)


def _is_finished(arguments: PretrainArguments) -> bool:
    return processes.is_main() and is_finished(arguments.output_dir, _told(arguments), FREE_TO_CHANGE)


def _pretrain(arguments: PretrainArguments) -> int:
    output_dir = check_output_dir(arguments.output_dir) if processes.is_main() else Path(arguments.output_dir)
    with occupying(output_dir) as work_dir:
        prepared, model = _prepare(arguments, work_dir)
        results, model = _train(arguments, prepared, model, work_dir)
        if not processes.is_main():
            return 0
        _publish(output_dir, model, prepared, results)
    _remove(work_dir / PREPARED)
    _summarise(output_dir, results)
    status = validate.check_finished(output_dir)
    if status == 0:
        tell_next("finetune", model=output_dir, train_file="LABELLED.tsv", output_dir=f"{output_dir}-labels")
    return status


def _check(arguments: PretrainArguments):
    """Refuse impossible arguments before any work; fill in what was left open."""
    budgets = [name for name in ("max_steps", "max_tokens", "time_budget") if getattr(arguments, name) is not None]
    if len(budgets) > 1:
        raise UserError(f"give one budget, not {len(budgets)}: {', '.join('--' + name for name in budgets)}")
    if not budgets:
        arguments.time_budget = DEFAULT_TIME_BUDGET
    if arguments.time_budget:
        parse_duration(arguments.time_budget)
    for given, brings, others in (
        (
            "model",
            "its shape and tokenizer",
            ("size", "num_hidden_layers", "tokenizer", "vocab_size", "chinese_tokens"),
        ),
        ("tokenizer", "its vocabulary", ("vocab_size", "chinese_tokens")),
    ):
        useless = [f"--{name}" for name in others if getattr(arguments, name) is not None]
        if getattr(arguments, given) and useless:
            raise UserError(f"--{given} brings {brings} along; leave {' and '.join(useless)} out")
    if arguments.compile and processes.count() > 1:
        raise UserError("--compile is for one process; leave it out")
    if arguments.streaming and arguments.dataset:
        raise UserError("--streaming is for --train_files; download the dataset, for example as Parquet files")
    _check_numbers(arguments)
    check_report_to(arguments.report_to)
    if not arguments.model:
        arguments.size = arguments.size or DEFAULT_SIZE
    if arguments.learning_rate is None:
        arguments.learning_rate = planning.learning_rate(_hidden_size(arguments))
    check_card(arguments, _public_settings(arguments))


def _hidden_size(arguments: PretrainArguments) -> int:
    """The width of the model to train; whether there is one to continue from is for others to judge."""
    if not arguments.model:
        return TinyBertConfig(**SIZES[arguments.size or DEFAULT_SIZE]).hidden_size
    path = Path(arguments.model) / "config.json"
    told = read_json(path).get("hidden_size") if path.is_file() else None
    return told if type(told) is int and told > 0 else TinyBertConfig().hidden_size


def _check_numbers(arguments: PretrainArguments):
    """Raise one `UserError` for all numbers that lie out of range."""
    at_least = dict.fromkeys(
        ("max_steps", "max_tokens", "batch_size", "micro_batch_size", "save_steps", "num_hidden_layers"), 1
    )
    checks = [
        (name, getattr(arguments, name) is None or getattr(arguments, name) >= least, f"at least {least}")
        for name, least in (at_least | {"block_size": 8, "vocab_size": 1}).items()
    ]
    checks += [
        ("mlm_probability", 0 < arguments.mlm_probability < 1, "above 0 and below 1"),
        ("learning_rate", arguments.learning_rate is None or 0 < arguments.learning_rate < math.inf, "above 0"),
        ("warmup_share", 0 <= arguments.warmup_share < 1, "at least 0 and below 1"),
        ("weight_decay", 0 <= arguments.weight_decay < math.inf, "at least 0"),
        ("dropout", 0 <= arguments.dropout < 1, "at least 0 and below 1"),
        ("seed", 0 <= arguments.seed < 2**32, "at least 0 and below 2**32"),
    ]
    wrong = [
        f"--{name} is {getattr(arguments, name)}, but must be {allowed}" for name, fits, allowed in checks if not fits
    ]
    if not wrong:
        wrong = _check_shares(arguments.batch_size, arguments.micro_batch_size or 1, processes.count())
    if wrong:
        raise UserError("; ".join(wrong))


def _check_shares(batch_size: int, micro_batch_size: int, count: int) -> list[str]:
    """What is wrong with a batch that processes and forward passes share evenly."""
    if batch_size % (micro_batch_size * count) == 0:
        return []
    times = f" times the number of processes, {count}" if count > 1 else ""
    return [f"--batch_size {batch_size} is not a multiple of --micro_batch_size {micro_batch_size}{times}"]


def _quieten_libraries():
    """Their progress bars and notes would break up ours."""
    progress.library_bars_off()
    transformers.utils.logging.set_verbosity_error()


def _remove(folder: Path):
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _resumes(arguments: PretrainArguments, work_dir: Path) -> bool:
    """Whether the run goes on from what `work_dir` holds.

    Raises:
        UserError: If it should, but the interrupted run was told something else, or its text is damaged.
    """
    told = _told(arguments) if arguments.resume else {}
    resumable = can_resume(work_dir, told, FREE_TO_CHANGE) and (work_dir / PREPARED).exists()
    if not (arguments.resume and resumable):
        if arguments.resume:
            say("nothing to resume: starting afresh")
        elif resumable:
            say(f"starting afresh: what an earlier run left in {work_dir.name} goes (--resume would go on from it)")
        return False
    damaged = find_damage(work_dir / PREPARED, contents=False)  # all the text: too much to read again
    if damaged:
        raise UserError(f"cannot resume: the encoded text in {work_dir} is damaged ({damaged}); start afresh")
    return True


def _told(arguments: PretrainArguments) -> dict:
    """What the run was told; paths hold from any folder and in any spelling."""
    settings = dataclasses.asdict(arguments)
    for name in ("tokenizer", "model", "dataset"):
        if settings[name] and Path(settings[name]).exists():  # a dataset may be an id
            settings[name] = os.path.abspath(settings[name])
    settings["train_files"] = [os.path.abspath(os.path.expanduser(file)) for file in settings["train_files"] or []]
    return settings


def _prepare(arguments: PretrainArguments, work_dir: Path) -> tuple[Prepared, TinyBertForMaskedLM]:
    """Text to blocks, and a model for them; a resumed run takes the blocks from disk, and so do further processes."""
    given_model = _load_model(arguments.model) if arguments.model else None
    if processes.is_main():
        prepared = None if _resumes(arguments, work_dir) else prepare(arguments, given_model)
        if prepared:  # not before the new input has proved good
            with starting_afresh(work_dir, _told(arguments)), written_whole(work_dir / PREPARED) as staging:
                prepared.save(staging)
    processes.from_main(None)  # until here the others wait
    # A fresh run, too, trains on what a resumed one would read.
    prepared = Prepared.load(work_dir / PREPARED)
    return prepared, _model_for(arguments, given_model, prepared)


def _model_for(
    arguments: PretrainArguments, given: TinyBertForMaskedLM | None, prepared: Prepared
) -> TinyBertForMaskedLM:
    transformers.set_seed(arguments.seed)
    model = given or TinyBertForMaskedLM(new_config(arguments, prepared.tokenizer))
    if prepared.embeddings is not None:
        start_from(model, prepared.embeddings, prepared.counts)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(model.config, name, arguments.dropout)
    # The config is read when a module is built, so the dropout of this run takes a model built with it.
    state = model.state_dict()
    model = TinyBertForMaskedLM(model.config)
    model.load_state_dict(state)
    encoder = sum(p.numel() for p in model.tinybert.parameters())
    say(f"model: {model.num_parameters():,} parameters, {encoder:,} of them in the encoder (embeddings included)")
    return model


def _load_model(folder: str) -> TinyBertForMaskedLM:
    check_folder(folder, "pretrain")
    with loading(folder):
        model_type = AutoConfig.from_pretrained(folder).model_type
        if model_type != TinyBertConfig.model_type:
            raise UserError(
                f"--model {folder} is of the type {model_type}, not {TinyBertConfig.model_type}; "
                "name a folder made by `python -m training pretrain`"
            )
        model, info = TinyBertForMaskedLM.from_pretrained(
            folder, ignore_mismatched_sizes=True, output_loading_info=True
        )
    check_complete(folder, "a masked language model", info)
    check_finite(folder, model)
    return model


def new_config(arguments: PretrainArguments, tokenizer: PreTrainedTokenizerFast) -> TinyBertConfig:
    """The size that is asked for, with the layers that are, for the vocabulary of `tokenizer`."""
    shape = SIZES[arguments.size or DEFAULT_SIZE]
    if arguments.num_hidden_layers:
        shape = shape | {"num_hidden_layers": arguments.num_hidden_layers}
    return TinyBertConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        hidden_dropout_prob=arguments.dropout,
        attention_probs_dropout_prob=arguments.dropout,
        **shape,
    )


def vocabulary_limit(arguments: PretrainArguments) -> int | None:
    """Tokens at most where they are left to choose; with fewer layers than its own a size has room for more."""
    size = arguments.size or DEFAULT_SIZE
    layers = SIZES[size].get("num_hidden_layers", math.inf)
    return None if (arguments.num_hidden_layers or layers) < layers else VOCABULARY_LIMITS.get(size)


def prepare(arguments: PretrainArguments, model: TinyBertForMaskedLM | None = None) -> Prepared:
    """Read the corpus, train or load the tokenizer, encode and pack; print what was read.

    Args:
        arguments: Where the text is, and the tokenizer and block size to use.
        model: The model to continue from; `None` for a new one.

    Raises:
        UserError: If the text, the tokenizer or the block size cannot be used.
    """
    limit = (
        model.config.max_position_embeddings
        if model
        else TinyBertConfig(**SIZES[arguments.size or DEFAULT_SIZE]).max_position_embeddings
    )
    block_size = arguments.block_size or min(BLOCK_SIZE, limit)
    if block_size > limit:
        raise UserError(f"--block_size {block_size} is longer than the model takes ({limit} positions)")
    tokenizer = None
    if arguments.model:
        tokenizer = load_masking_tokenizer(arguments.model, "--model")
        check_vocabulary(f"the tokenizer of --model {arguments.model}", tokenizer, model.config.vocab_size)
    elif arguments.tokenizer:
        tokenizer = load_masking_tokenizer(arguments.tokenizer)

    ahead = SAMPLE_CHARACTERS if arguments.streaming else None
    corpus, report = load_corpus(
        arguments.train_files, arguments.dataset, arguments.text_column, arguments.encoding, ahead
    )
    if ahead:
        say(f"about {ahead:,} characters are read ahead, to count tokens and to hold some documents out:")
    for line in report.lines():
        say(line)
    split = split_corpus(corpus)  # whatever the seed: runs are compared, and continued, on text held out from all
    if tokenizer is None:
        tokenizer = train_tokenizer(
            split["train"]["text"],
            arguments.vocab_size,
            arguments.chinese_tokens or DEFAULT_CHINESE_TOKENS,
            limit,
            vocabulary_limit(arguments),
        )
        say(f"tokenizer: {len(tokenizer):,} tokens")
    tokenizer = TinyBertTokenizer.from_fast(tokenizer, limit)
    lengths: dict[str, list[int]] = {"train": [], "held_out": []}
    train, held_out = (
        pack(measured(encode(split[part]["text"], tokenizer), lengths[part]), block_size, tokenizer.pad_token_id)
        for part in ("train", "held_out")
    )
    counts = token_counts(train, len(tokenizer), tokenizer.all_special_ids)
    tokens = int(counts.sum())
    if tokens < block_size:
        raise UserError(
            f"the text holds {tokens} tokens that the tokenizer knows, fewer than one block of {block_size}: "
            "give more text or a smaller --block_size"
        )
    held_out = held_out.select(range(min(len(held_out), EVALUATION_BLOCKS)))
    if not _masks_anything(held_out, tokenizer):
        raise UserError(
            f"the {len(split['held_out'])} documents held out hold too few tokens to evaluate on: "
            "give more documents, or longer ones (in a .txt each line is a document)"
        )
    unknown = unknown_share(split["train"]["text"], tokenizer)
    stream = None
    if arguments.streaming:
        held_out_texts = split["held_out"]["text"][:]
        stream = Stream.over(arguments.train_files, arguments.text_column, arguments.encoding, held_out_texts)
        for line in stream.describe():
            say(line)
    facts = {
        **report.to_dict(),
        "train_documents": len(split["train"]),
        "train_tokens": tokens,
    }
    if stream is not None:  # these are not all the text
        facts = {"files": facts.pop("files"), "streamed_bytes": sum(stream.sizes), "read_ahead": facts}
    facts |= {
        "held_out_documents": len(split["held_out"]),
        "block_size": block_size,
        "unknown": unknown,
        "language": detect_language(split["train"]["text"]),
        "lengths": length_histogram(lengths["train"], block_size, "packed"),
    }
    say(
        f"encoded: {tokens:,} tokens in {len(train):,} blocks of {block_size} "
        f"{'read ahead' if stream else 'for training'}, "
        f"{len(held_out):,} blocks held out ({len(split['held_out']):,} documents)"
    )
    say(f"unknown to the tokenizer: {describe_unknown(unknown)}")
    embeddings = None
    if model is None:
        little = None if stream else planning.warn_of_little_text(tokens)
        if little:
            say(little)
        started = time.monotonic()
        with progress.step("finding embeddings to start from"):
            embeddings = starting_embeddings(train, new_config(arguments, tokenizer), arguments.seed)
        say(f"embeddings to start from, by what stands near what: {time.monotonic() - started:.0f} s")
    return Prepared(tokenizer, train, held_out, facts, counts, embeddings, stream)


def _masks_anything(blocks: Dataset, tokenizer: PreTrainedTokenizerFast) -> bool:
    batches = evaluation_batches(blocks, tokenizer, EVALUATION_BATCH_SIZE)
    return any(bool((batch["labels"] != -100).any()) for batch in batches)


def _train(
    arguments: PretrainArguments, prepared: Prepared, model: TinyBertForMaskedLM, work_dir: Path
) -> tuple[dict, TinyBertForMaskedLM]:
    """Train `model`; returns the results and the trained model, in the main process."""
    tokenizer, block_size = prepared.tokenizer, prepared.facts["block_size"]
    journal, checkpoint = _where_to_go_on(arguments, work_dir)
    spent = seconds_spent(checkpoint)
    collator = PackedMaskingCollator(tokenizer, mlm_probability=arguments.mlm_probability, seed=arguments.seed)
    order = _order(arguments, prepared, work_dir, start=steps_done(checkpoint) * arguments.batch_size)
    precision = _choose_precision(arguments, model, journal)
    measure = functools.cache(functools.partial(_measure_step, arguments, model, collator, order, precision))
    compiled = _choose_compiling(arguments, prepared, journal, measure)
    plan, deadline = _plan(arguments, prepared, journal, spent, functools.partial(measure, compiled))
    entropy = unigram_entropy(prepared.counts)
    told = ProgressCallback(
        plan, arguments.batch_size * block_size, len(tokenizer), entropy, journal, steps_done(checkpoint), spent
    )
    trainer = PretrainingTrainer(
        model=model,
        args=_training_arguments(arguments, plan, work_dir, precision),
        data_collator=collator,
        train_dataset=order,
        plan=plan,
        warmup_share=arguments.warmup_share,
        callbacks=[
            PlanCallback(plan, journal, deadline),
            SaveCallback(plan, arguments.save_steps, spent),
            told,
        ],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    started = time.monotonic()
    with compiled_layers(model) if compiled else contextlib.nullcontext():
        trainer.train_from(checkpoint)
    training_seconds = time.monotonic() - started
    model = _whole(model)
    if not processes.is_main():
        return {}, model
    if prepared.stream is not None:
        say(order.report())
    say(
        f"trained {trainer.state.global_step:,} steps; evaluating on held-out text, 15 % masked, the same masks always"
    )
    scores = evaluate(model, prepared.held_out, tokenizer, prepared.counts)
    steps = trainer.state.global_step
    results = {
        "task": "masked-lm",
        "results": scores,
        "unigram_entropy": entropy,
        "ln_vocab": math.log(len(tokenizer)),
        VOCABULARY_KEY: vocabulary_sha256(tokenizer.get_vocab()),
        "checkpoint": "last",
        "steps": steps,
        "tokens": steps * arguments.batch_size * block_size,
        "epochs": order.epochs(steps * arguments.batch_size),
        "training_seconds": round(training_seconds, 1),
        "seconds": round(spent + elapsed(), 1),
        "loss_curve": told.loss_curve,
        "corpus": prepared.facts,
        "settings": {**_public_settings(arguments), "precision": precision, "compile": compiled},
        **card_facts(
            arguments, _public_settings(arguments), prepared.facts["language"], datasets=_hub_datasets(arguments)
        ),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    return results, model


def _whole(model: TinyBertForMaskedLM) -> TinyBertForMaskedLM:
    """A model that FSDP has divided among the processes, put together in the main one; any other as it is.

    All processes must call it.
    """
    if not any(isinstance(weight, DTensor) for weight in model.parameters()):
        return model
    weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if not processes.is_main():
        return model
    whole = TinyBertForMaskedLM(model.config)
    whole.load_state_dict(weights)
    return whole.to(best_device())


def _order(arguments: PretrainArguments, prepared: Prepared, work_dir: Path, start: int) -> EpochOrder | StreamedOrder:
    """The examples to train on, from number `start` on."""
    if prepared.stream is None:
        return EpochOrder(prepared.train, arguments.seed, start)
    return StreamedOrder(
        prepared.stream,
        prepared.tokenizer,
        prepared.facts["block_size"],
        arguments.seed,
        _micro_batch_size(arguments),
        work_dir,
        start,
    )


def _where_to_go_on(arguments: PretrainArguments, work_dir: Path) -> tuple[Journal, Path | None]:
    """The journal of the run, and its last checkpoint if there is one."""
    journal = Journal(work_dir / "journal.jsonl" if processes.is_main() else None)
    checkpoint = processes.from_main(last_checkpoint(work_dir) if processes.is_main() else None)
    if checkpoint:
        say(f"going on from {checkpoint.name}")
    elif arguments.resume:
        say("no checkpoint yet: starting from step 0")
    return journal, checkpoint


def _choose_precision(arguments: PretrainArguments, model: TinyBertForMaskedLM, journal: Journal) -> str:
    """The precision to train in, as told, else what the run began with, else what suits the machine."""
    device = best_device()
    if processes.is_main() and not journal.of("precision"):
        journal.write("precision", precision=arguments.precision or fastest_precision(device))
    precision = processes.from_main(journal.of("precision")[0]["precision"] if processes.is_main() else None)
    model.set_attn_implementation(fastest_attention(device, precision))
    say(f"training in {precision}" + (", weights in float32" if precision == BFLOAT16 else ""))
    return precision


def _choose_compiling(
    arguments: PretrainArguments, prepared: Prepared, journal: Journal, measure: Callable[[bool], float]
) -> bool:
    """Whether to compile the layers: as told, else as the run began, else as a measured step is faster.

    Args:
        measure: Seconds of a step, without and with compiling.

    Raises:
        UserError: If it is told to, and this machine cannot.
    """
    if processes.count() > 1:
        return False
    begun = journal.of("compiling")
    told = begun[0]["compiled"] if begun else arguments.compile
    if told is None and not _long_enough(arguments, prepared, measure):
        told = False
    compiled, step_seconds = bool(told), None
    if told is not False:
        try:
            with progress.step("compiling"):
                step_seconds = measure(True)
        except Exception as error:  # torch raises several kinds, without a common class
            if begun:
                say(
                    f"layers not compiled, though this run began so: {reason(error)}; it goes on without, and ends in "
                    "weights that differ in their last digits"
                )
                return False
            if told:
                raise UserError(f"--compile: layers cannot be compiled here: {reason(error)}") from error
            say(f"layers not compiled: {reason(error)}")
    if begun:
        return compiled
    plain_seconds = None
    if step_seconds is not None:
        plain_seconds = measure(False)
        compiled = bool(told) or step_seconds < MUST_SAVE * plain_seconds
        say(
            f"layers {'compiled' if compiled else 'not compiled'}: {1000 * step_seconds:.0f} ms a step with, "
            f"{1000 * plain_seconds:.0f} ms without"
        )
    journal.write("compiling", compiled=compiled, step_seconds=step_seconds, plain_step_seconds=plain_seconds)
    return compiled


def _long_enough(arguments: PretrainArguments, prepared: Prepared, measure: Callable[[bool], float]) -> bool:
    """Whether training takes so long that compiling is worth a try."""
    if arguments.time_budget is not None:
        return parse_duration(arguments.time_budget) - elapsed() >= WORTH_TRYING
    steps = _steps(arguments, prepared)
    if steps < 100 * (1 + CALIBRATION_STEPS):  # even to measure would take more than a hundredth of the time
        return False
    return steps * measure(False) >= WORTH_TRYING


def _steps(arguments: PretrainArguments, prepared: Prepared) -> int:
    """Optimizer steps that a budget of steps or tokens is."""
    tokens_per_step = arguments.batch_size * prepared.facts["block_size"]
    return arguments.max_steps or math.ceil(arguments.max_tokens / tokens_per_step)


def _plan(arguments, prepared, journal, spent, measure: Callable[[], float]) -> tuple[Plan, Deadline | None]:
    """The plan, from the journal if there is one, and for a time budget the deadline of the last step."""
    if arguments.time_budget is None:
        return Plan(_steps(arguments, prepared)), None
    tokens_per_step = arguments.batch_size * prepared.facts["block_size"]
    budget = parse_duration(arguments.time_budget)
    if processes.is_main() and not journal.of("plan"):
        step_seconds = measure()
        # Evaluation runs forward only, a third of a step's arithmetic, and projects as many positions.
        evaluating = 0.5 * step_seconds * len(prepared.held_out) / arguments.batch_size
        reserve = evaluating + SAVING_SECONDS + validate.SECONDS
        left = budget - reserve - elapsed()
        if left < step_seconds:
            raise UserError(
                f"--time_budget {arguments.time_budget} leaves no time for training: reading the text took "
                f"{as_text(elapsed())}, evaluation, saving and checking will take {as_text(reserve)}"
            )
        max_steps = max(1, int(left / step_seconds))
        journal.write("plan", step=0, max_steps=max_steps, progress=0.0, reserve=reserve, step_seconds=step_seconds)
        say(
            f"measured {tokens_per_step / step_seconds:,.0f} tokens/s: "
            f"{max_steps:,} steps fit into {arguments.time_budget}"
        )
    journal.entries = processes.from_main(journal.entries)
    first, *later = journal.of("plan")
    plan = Plan(first["max_steps"])
    for entry in later:
        plan.replan(entry["step"], entry["max_steps"])
    return plan, Deadline(budget, first["reserve"], spent)


def _measure_step(arguments, model, collator, order, precision, compiled: bool) -> float:
    """Seconds of an optimizer step, on a copy of the model."""
    copied = copy.deepcopy(model).to(best_device()).train()
    with compiled_layers(copied) if compiled else contextlib.nullcontext():
        return _time_steps(arguments, copied, collator, order, precision)


def _time_steps(arguments, model, collator, order, precision) -> float:
    device = best_device()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-9, fused=True)
    micro = _micro_batch_size(arguments)
    durations = []
    for step in range(1 + CALIBRATION_STEPS):
        started = time.monotonic()
        for start in range(0, arguments.batch_size // processes.count(), micro):
            first = step * arguments.batch_size + start
            batch = collator(order.__getitems__(range(first, first + micro)))
            with autocasting(device, precision):
                loss = model(**{name: tensor.to(device) for name, tensor in batch.items()}).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        durations.append(time.monotonic() - started)
    return float(np.median(durations[1:]))  # the first one warms up


def _micro_batch_size(arguments: PretrainArguments) -> int:
    return arguments.micro_batch_size or arguments.batch_size // processes.count()


def _training_arguments(arguments: PretrainArguments, plan: Plan, work_dir: Path, precision: str) -> TrainingArguments:
    micro = _micro_batch_size(arguments)
    return TrainingArguments(
        output_dir=str(work_dir),
        max_steps=plan.max_steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=arguments.batch_size // processes.count() // micro,
        learning_rate=arguments.learning_rate,
        weight_decay=arguments.weight_decay,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        bf16=precision == BFLOAT16,
        use_cpu=best_device().type == "cpu",
        seed=arguments.seed,
        train_sampling_strategy="sequential",  # EpochOrder has the order,
        ignore_data_skip=True,  # and begins where a resumed run goes on
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        logging_strategy="no",  # ProgressCallback and SaveCallback decide when
        save_strategy="no",
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=arguments.report_to,
    )


@torch.no_grad()
def evaluate(
    model: TinyBertForMaskedLM, blocks: Dataset, tokenizer: PreTrainedTokenizerFast, train_counts: np.ndarray
) -> dict[str, float]:
    """Masked-LM loss (nats) and accuracy on `blocks` at 15 %, beside those of guessing by frequency.

    Args:
        blocks: Packed held-out text.
        train_counts: `(vocab_size,)` occurrences in the training text, for the unigram guesser.
    """
    model.eval()
    frequencies = torch.from_numpy((train_counts + 1) / (train_counts + 1).sum()).float()
    loss = correct = unigram_loss = unigram_correct = 0.0
    num_items = 0
    batches = evaluation_batches(blocks, tokenizer, EVALUATION_BATCH_SIZE)
    for batch in progress.track(batches, "evaluation", "batches", math.ceil(len(blocks) / EVALUATION_BATCH_SIZE)):
        labels = batch.pop("labels")
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        hidden_states = model.tinybert(**batch).last_hidden_state
        labelled = labels != -100
        targets = labels[labelled]
        # As in training, only the labelled positions meet the vocabulary.
        logits = model.mlm_head(hidden_states[labelled.to(model.device)]).float().cpu()
        loss += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        correct += (logits.argmax(dim=-1) == targets).sum().item()
        unigram_loss -= frequencies[targets].log().sum().item()
        unigram_correct += (targets == frequencies.argmax()).sum().item()
        num_items += len(targets)
    return {
        "loss": loss / max(1, num_items),
        "accuracy": correct / max(1, num_items),
        "unigram_loss": unigram_loss / max(1, num_items),
        "unigram_accuracy": unigram_correct / max(1, num_items),
        "predictions": num_items,
    }


def _public_settings(arguments: PretrainArguments) -> dict:
    """The arguments without paths: only the names of files and folders are anyone else's business."""
    settings = without_card_fields(dataclasses.asdict(arguments))
    for name in ("output_dir", "resume", "report_to"):
        del settings[name]
    for name in ("tokenizer", "model", "dataset"):
        settings[name] = Path(settings[name]).name if settings[name] else None
    settings["train_files"] = [Path(file).name for file in settings["train_files"] or []]
    return {key: value for key, value in settings.items() if value not in (None, [])}


def _hub_datasets(arguments: PretrainArguments) -> list[str]:
    return [arguments.dataset] if arguments.dataset and not Path(arguments.dataset).exists() else []


def _publish(output_dir: Path, model: TinyBertForMaskedLM, prepared: Prepared, results: dict):
    with publishing(output_dir) as staging:
        model.save_pretrained(staging)
        prepared.tokenizer.save_pretrained(staging)
        write_json(staging / RESULTS_FILE, results)
        card.write_card(staging)


def _summarise(output_dir: Path, results: dict):
    scores = results["results"]
    say(
        f"held-out loss {scores['loss']:.3f} (guessing by frequency: {scores['unigram_loss']:.3f}), "
        f"masked tokens right {scores['accuracy']:.1%} (guessing: {scores['unigram_accuracy']:.1%}); "
        "the last checkpoint is the one kept"
    )
    say(f"{output_dir} is ready")
