"""Load models and tokenizers; whatever is damaged about them becomes a `UserError`."""

import typing
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from training.errors import UserError
from training.run_folder import read_json


if typing.TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
# Files that hold a vocabulary, of the tokenizers that encoders have.
TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def one_line(error: Exception, limit: int = 300) -> str:
    """What an exception says, fit for an error line; its type where it says nothing but a key."""
    text = " ".join(str(error).split())
    return (text if " " in text else f"{type(error).__name__} {text}")[:limit]


@contextmanager
def loading(model: str):
    """What `from_pretrained` raises inside, on a damaged config or damaged weights, as a `UserError`."""
    from safetensors import SafetensorError

    try:
        yield
    except UserError:
        raise
    except SafetensorError as error:
        raise UserError(
            f"the weights of --model {model} are cut off or no safetensors ({one_line(error)}); fetch them again"
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        what = "does not load" if Path(model).exists() else "is no folder, and does not load from the Hub"
        reason = one_line(error)
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own, which is not run here; name a model of a type that transformers knows"
        raise UserError(f"--model {model} {what}: {reason}") from error


def check_folder(model: str | Path, verb: str):
    """Raise a `UserError` unless `model` is a folder with a config, a tokenizer, and weights that hold no code.

    Args:
        verb: The verb that makes such folders, for the message.
    """
    folder, advice = Path(model), f"name a folder made by `python -m training {verb}`"
    if not folder.is_dir():
        raise UserError(f"--model {model} is no folder; {advice}")
    names = {path.name for path in folder.iterdir()}
    if "config.json" not in names:
        what = "an adapter without its model" if "adapter_config.json" in names else "no model (no config.json)"
        raise UserError(f"--model {model} holds {what}; {advice}")
    config = read_json(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise UserError(
            f"--model {model}: its config.json does not say of what type the model is (model_type); {advice}"
        )
    if names.isdisjoint(TOKENIZERS):
        raise UserError(f"--model {model} holds no tokenizer; save one into it with tokenizer.save_pretrained")
    if names.isdisjoint(SAFE_WEIGHTS + PICKLED_WEIGHTS):
        raise UserError(f"--model {model} holds no weights (no {SAFE_WEIGHTS[0]}); {advice}")
    if names.isdisjoint(SAFE_WEIGHTS):
        raise UserError(
            f"--model {model} holds its weights in the old format {PICKLED_WEIGHTS[0]}, a pickle, which can run code; "
            f'convert them once: python -c "{_conversion(str(model), config)}"'
        )


def _conversion(model: str, config: dict) -> str:
    """A program that writes safetensors beside pickled weights, of the head that they have."""
    _, head, kind = (config.get("architectures") or ["ForMaskedLM"])[0].partition("For")
    from hf_tinybert import TinyBertConfig

    ours = "import hf_tinybert; " if config["model_type"] == TinyBertConfig.model_type else ""
    return (
        f"{ours}from transformers import AutoModel{head}{kind} as M; "
        f"M.from_pretrained({model!r}).save_pretrained({model!r})"
    )


def check_own(model: str | Path, config: dict):
    """Raise a `UserError` unless a `config.json` is that of a model of this project."""
    from hf_tinybert import TinyBertConfig

    if config.get("model_type") != TinyBertConfig.model_type:
        raise UserError(
            f"--model {model} is of the type {config.get('model_type')}, not {TinyBertConfig.model_type}; "
            "name a folder made by `python -m training pretrain` or `finetune`"
        )


def check_encoder(model: str, config: "PretrainedConfig"):
    """Raise a `UserError` unless a config is that of an encoder of text: of a kind that has a masked-LM head."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or config.is_encoder_decoder:
        raise UserError(
            f"--model {model} is of the type {config.model_type}, which is no encoder of text; "
            "name one such as tinybert, bert, roberta or electra"
        )


def check_vocabulary(source: str, tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> int:
    """The number of ids of a tokenizer.

    Args:
        source: Whose tokenizer it is, for the message.
        vocab_size: Number of tokens that the model embeds.

    Raises:
        UserError: If they are more than the model embeds.
    """
    num_ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    if num_ids > vocab_size:
        raise UserError(
            f"{source} has {num_ids} token ids, but the model embeds only {vocab_size}; "
            "give the tokenizer that the model was trained with"
        )
    return num_ids


def check_finite(model: str, loaded: "torch.nn.Module"):
    """Raise a `UserError` if a weight is no number."""
    broken = next((name for name, weight in loaded.named_parameters() if not weight.isfinite().all()), None)
    if broken:
        raise UserError(f"--model {model} diverged: {broken} holds NaN or infinite numbers; name a model that did not")


def lacking_weights(info: dict) -> list[str]:
    """The weights that did not come from a folder, which transformers then draws at random.

    Args:
        info: What `from_pretrained(ignore_mismatched_sizes=True, output_loading_info=True)` gives beside the model.
            Without the first a weight of another shape raises without saying which.
    """
    return sorted({*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])})


def check_complete(model: str, kind: str, info: dict, needed: Callable[[str], bool] = lambda key: True):
    """Raise a `UserError` if weights did not come from the folder.

    Args:
        kind: What the folder should hold, for the message.
        info: As for `lacking_weights`.
        needed: Whether a weight, by its name, has to come from there.
    """
    lacking = [key for key in lacking_weights(info) if needed(key)]
    if lacking:
        raise UserError(
            f"--model {model} lacks {len(lacking)} weights of {kind} or has them in another shape, "
            f"for example {lacking[0]}; name the folder of a whole model"
        )


def load_tokenizer(source: str | Path, option: str = "--model") -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder or Hub id; of a folder with a `vocab.txt` alone, BERT's.

    Args:
        option: How the user named it, for the message.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    from transformers import AutoTokenizer, BertTokenizerFast

    try:
        if Path(source).is_dir() and {path.name for path in Path(source).iterdir()} == {"vocab.txt"}:
            print("note: the tokenizer is a vocab.txt alone; it is read as BERT's WordPiece, which lower-cases")
            return BertTokenizerFast.from_pretrained(str(source))
        return AutoTokenizer.from_pretrained(str(source))
    except Exception as error:  # the tokenizers library raises bare Exception on a damaged file
        raise UserError(f"the tokenizer of {option} {source} cannot be read: {one_line(error)}") from error


def read_as_text(tokenizer: "PreTrainedTokenizerBase"):
    """Have a tokenizer take the spelling of a special token ("[MASK]") in a text for text, also after it is saved."""
    tokenizer.split_special_tokens = tokenizer.init_kwargs["split_special_tokens"] = True
