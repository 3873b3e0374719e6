"""`python -m training import --state_dict F.pt --tokenizer DIR --output_dir DIR`: a hand-written model in Hub format.

The hand-written model is `torch.nn.TransformerEncoder` between two embeddings and a LayerNorm, as the names below say.
A state dict holds neither the number of heads (a field) nor the norm placement (taken to be post-norm).
"""

import pickle
import re
import struct
import warnings
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM, TinyBertForSequenceClassification, TinyBertTokenizer
from training import progress
from training.arguments import ImportArguments
from training.card import write_card
from training.errors import UserError
from training.loading import check_vocabulary, load_tokenizer
from training.next_command import tell_next
from training.run_folder import check_output_dir, publishing


TOKEN_EMBEDDING = "encoder.token_emb.weight"
POSITION_EMBEDDING = "encoder.pos_emb.weight"
FEED_FORWARD = "encoder.encoder.layers.0.linear1.weight"
CLASSIFIER = "cls_head.weight"
# How the special tokens of BERT are written; a bare tokenizer.json does not say which token plays which part.
SPECIAL_TOKENS = {f"{part}_token": f"[{part.upper()}]" for part in ("pad", "unk", "cls", "sep", "mask")}
WRAPPERS = ("model_state_dict", "state_dict")  # how training scripts commonly nest the weights in a checkpoint
WRAPPER_MODULES = ("module", "_orig_mod")  # name parts added by DistributedDataParallel and torch.compile
# What torch.load raises on a file that is not its own; found by feeding it damaged ones.
UNREADABLE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
    struct.error,
)

# Reference module: our module. Each stands for a weight and a bias.
LAYER_MODULES = {
    "self_attn.out_proj": "attention.out_proj",
    "norm1": "attention_norm",
    "linear1": "mlp.up_proj",
    "linear2": "mlp.down_proj",
    "norm2": "mlp_norm",
}
HEAD_MODULES = {
    "masked-lm": {name: name for name in ("mlm_head.dense", "mlm_head.norm", "mlm_head.decoder")},
    "classification": {"cls_head": "classifier"},
}
TASKS_OF_HEADS = {"masked-lm": "masked-lm", "classification": "sequence-classification"}
HEAD_CLASSES = {
    "masked-lm": (TinyBertForMaskedLM, "AutoModelForMaskedLM"),
    "classification": (TinyBertForSequenceClassification, "AutoModelForSequenceClassification"),
}


def import_state_dict(
    state_dict: dict[str, torch.Tensor], num_attention_heads: int, head: str, pad_token_id: int | None = 0
) -> TinyBertForMaskedLM | TinyBertForSequenceClassification:
    """A model, in eval mode and float32, with the weights of a hand-written reference model.

    Args:
        state_dict: The reference model's; shapes and names of its tensors give the configuration. A head that is not
            asked for may be in it and stays behind; any other tensor without a place is an error.
        num_attention_heads: Number of heads of each layer, which a state dict does not hold.
        head: `"masked-lm"` or `"classification"`.
        pad_token_id: Id of the padding token; `None` means that there is none.

    Raises:
        UserError: If a tensor is missing, unknown or of the wrong shape, or the number of heads is impossible.
    """
    missing = [name for name in (TOKEN_EMBEDDING, POSITION_EMBEDDING, FEED_FORWARD) if name not in state_dict]
    if missing:
        raise UserError(f"the state dict lacks {', '.join(missing)}; it holds {_some_names(state_dict)}")
    config = _config(state_dict, num_attention_heads, pad_token_id)
    names = _weight_names(config.num_hidden_layers, head)
    _check_names(state_dict, names, head)
    model = HEAD_CLASSES[head][0](config)
    _check_shapes(state_dict, names, model)
    model.load_state_dict({ours: state_dict[theirs] for theirs, ours in names.items()})
    return model.eval()


def _config(state_dict, num_attention_heads, pad_token_id) -> TinyBertConfig:
    matrices = (
        TOKEN_EMBEDDING,
        POSITION_EMBEDDING,
        FEED_FORWARD,
        *(name for name in [CLASSIFIER] if name in state_dict),
    )
    for name in matrices:
        if state_dict[name].ndim != 2:
            raise UserError(f"{name} must be a matrix, but has shape {tuple(state_dict[name].shape)}")
    vocab_size, hidden_size = state_dict[TOKEN_EMBEDDING].shape
    layers = {int(match[1]) for name in state_dict if (match := re.match(r"encoder\.encoder\.layers\.(\d+)\.", name))}
    if num_attention_heads < 1 or hidden_size % num_attention_heads:
        raise UserError(
            f"--num_attention_heads {num_attention_heads} does not divide the hidden size {hidden_size} of "
            f"{TOKEN_EMBEDDING}; give the number that the model was built with"
        )
    try:
        return TinyBertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_hidden_layers=max(layers) + 1,
            num_attention_heads=num_attention_heads,
            intermediate_size=state_dict[FEED_FORWARD].shape[0],
            max_position_embeddings=state_dict[POSITION_EMBEDDING].shape[0],
            num_labels=state_dict[CLASSIFIER].shape[0] if CLASSIFIER in state_dict else 2,
            pad_token_id=pad_token_id,
        )
    except ValueError as error:
        raise UserError(" ".join(str(error).split())) from error


def _weight_names(num_layers: int, head: str) -> dict[str, str]:
    """Reference tensor: our tensor, for the encoder and one head."""
    modules = {"encoder.layer_norm": "tinybert.final_norm"} | HEAD_MODULES[head]
    names = {
        TOKEN_EMBEDDING: "tinybert.embeddings.token_embeddings.weight",
        POSITION_EMBEDDING: "tinybert.embeddings.position_embeddings.weight",
    }
    for layer in range(num_layers):
        theirs, ours = f"encoder.encoder.layers.{layer}", f"tinybert.layers.{layer}"
        modules |= {f"{theirs}.{name}": f"{ours}.{our_name}" for name, our_name in LAYER_MODULES.items()}
        for kind in ("weight", "bias"):  # torch stacks queries, keys and values in the same order
            names[f"{theirs}.self_attn.in_proj_{kind}"] = f"{ours}.attention.qkv_proj.{kind}"
    for kind in ("weight", "bias"):
        names |= {f"{theirs}.{kind}": f"{ours}.{kind}" for theirs, ours in modules.items()}
    return names


def other_heads(state_dict: dict[str, torch.Tensor], head: str) -> list[str]:
    """Names of the tensors that belong to a head other than `head`."""
    prefixes = tuple(f"{module}." for name, modules in HEAD_MODULES.items() if name != head for module in modules)
    return [name for name in state_dict if name.startswith(prefixes)]


def _check_names(state_dict, names, head):
    missing = [name for name in names if name not in state_dict]
    unknown = [name for name in state_dict if name not in names and name not in other_heads(state_dict, head)]
    problems = []
    if missing:
        problems.append(f"lacks {_some_names(missing)}")
    if unknown:
        problems.append(f"holds tensors that the reference model has no place for: {_some_names(unknown)}")
    if problems:
        raise UserError(f"the state dict {' and '.join(problems)} (--head {head})")


def _check_shapes(state_dict, names, model):
    expected = model.state_dict()
    for theirs, ours in names.items():
        if state_dict[theirs].shape != expected[ours].shape:
            raise UserError(
                f"{theirs} has shape {tuple(state_dict[theirs].shape)}, but must have {tuple(expected[ours].shape)} "
                f"to go with the other tensors"
            )
        if not state_dict[theirs].is_floating_point():
            raise UserError(f"{theirs} holds {state_dict[theirs].dtype}, but must hold floating-point numbers")
        if not state_dict[theirs].isfinite().all():
            raise UserError(
                f"{theirs} holds NaN or infinite numbers: its training diverged; give an earlier checkpoint"
            )


def _some_names(names, limit: int = 8) -> str:
    names = list(map(str, names))
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest if names else "nothing"


def read_state_dict(path: str | Path) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The state dict in a file, without wrappers, and the names of what lay beside it in a checkpoint.

    Raises:
        UserError: If there is no such file, or it holds anything but tensors. Nothing in it is executed.
    """
    if not Path(path).is_file():
        raise UserError(f"--state_dict {path}: no such file")
    advice = "make it by torch.save(model.state_dict(), ...)"
    try:
        with warnings.catch_warnings(action="ignore"):  # torch muses on the pickle protocol of whatever it is given
            state_dict = torch.load(path, map_location="cpu", weights_only=True)
    except UNREADABLE as error:
        raise UserError(
            f"--state_dict {path} is no file of plain tensors: damaged, of another kind, or a pickle of whole "
            f"objects, which is refused since loading it would run its code; {advice}"
        ) from error
    beside: list[str] = []
    while isinstance(state_dict, dict) and (wrapper := next((key for key in WRAPPERS if key in state_dict), None)):
        beside += [str(key) for key in state_dict if key != wrapper]
        state_dict = state_dict[wrapper]
    if not isinstance(state_dict, dict):
        raise UserError(f"--state_dict {path} holds a {type(state_dict).__name__}, not a state dict; {advice}")
    strangers = [key for key, value in state_dict.items() if not (isinstance(key, str) and torch.is_tensor(value))]
    if strangers or not state_dict:
        raise UserError(f"--state_dict {path} must hold named tensors, but holds {_some_names(strangers)}; {advice}")
    return _without_wrapper_modules(state_dict), beside


def _without_wrapper_modules(state_dict):
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in state_dict.items():
        plain = ".".join(part for part in name.split(".") if part not in WRAPPER_MODULES)
        if plain in renamed:
            raise UserError(f"the state dict holds {plain} twice, with and without a wrapper's prefix")
        renamed[plain] = tensor
    return renamed


def _name_special_tokens(tokenizer: PreTrainedTokenizerBase):
    """Where a tokenizer names none of its special tokens, take those that its vocabulary has in BERT's spelling."""
    if tokenizer.special_tokens_map:
        return
    vocab = tokenizer.get_vocab()
    found = {name: token for name, token in SPECIAL_TOKENS.items() if token in vocab}
    if found:
        tokenizer.add_special_tokens(found)
        print(f"note: the tokenizer names no special tokens; taken by name: {', '.join(found.values())}")


def _fit_tokenizer(
    tokenizer: PreTrainedTokenizerBase, folder: str, state_dict: dict[str, torch.Tensor]
) -> PreTrainedTokenizerBase:
    """Check a tokenizer against the model, and have it give what the model takes."""
    for name in (TOKEN_EMBEDDING, POSITION_EMBEDDING):
        if name not in state_dict:
            raise UserError(f"the state dict lacks {name}; it holds {_some_names(state_dict)}")
    vocab_size = len(state_dict[TOKEN_EMBEDDING])
    num_ids = check_vocabulary(f"--tokenizer {folder}", tokenizer, vocab_size)
    if num_ids < vocab_size:
        print(f"note: the tokenizer has {num_ids} token ids, the model embeds {vocab_size}; the rest are never used")
    _name_special_tokens(tokenizer)
    if tokenizer.pad_token_id is None:
        print("note: the tokenizer has no padding token, so texts of unequal length cannot be batched")
    return TinyBertTokenizer.from_fast(tokenizer, len(state_dict[POSITION_EMBEDDING]))


def main(arguments: ImportArguments):
    """Carry out the verb `import`.

    Raises:
        UserError: If the state dict, the tokenizer or the output folder cannot be used; nothing is written then.
    """
    output_dir = check_output_dir(arguments.output_dir)
    state_dict, beside = read_state_dict(arguments.state_dict)
    if not Path(arguments.tokenizer).is_dir():
        raise UserError(f"--tokenizer {arguments.tokenizer}: no such folder")
    tokenizer = load_tokenizer(arguments.tokenizer, "--tokenizer")
    tokenizer = _fit_tokenizer(tokenizer, arguments.tokenizer, state_dict)
    model = import_state_dict(state_dict, arguments.num_attention_heads, arguments.head, tokenizer.pad_token_id)
    progress.library_bars_off()
    with publishing(output_dir) as staging:
        model.save_pretrained(staging)
        tokenizer.save_pretrained(staging)
        write_card(staging, {"task": TASKS_OF_HEADS[arguments.head]})
    _report(model, arguments, other_heads(state_dict, arguments.head), beside)


def _report(model, arguments: ImportArguments, left_out: list[str], beside: list[str]):
    config = model.config
    model_class, auto_class = HEAD_CLASSES[arguments.head]
    if beside:
        print(f"left out, beside the weights in the checkpoint: {_some_names(beside)}")
    if left_out:
        other = next(head for head in HEAD_MODULES if head != arguments.head)
        print(f"left out, for a folder of its own by --head {other}: {_some_names(left_out)}")
    print(
        f"{arguments.output_dir}: {model_class.__name__}, {config.num_hidden_layers} layers, "
        f"{config.hidden_size} hidden, {config.num_attention_heads} heads, feed-forward {config.intermediate_size}, "
        f"{config.vocab_size} token ids, {config.max_position_embeddings} positions, "
        f"{model.num_parameters():,} parameters"
    )
    print("\nLoad it with")
    print("    import hf_tinybert")
    print(f"    from transformers import {auto_class}")
    print(f"    model = {auto_class}.from_pretrained({str(arguments.output_dir)!r})\n")
    if arguments.head == "masked-lm":
        labels = f"{arguments.output_dir}-labels"
        tell_next("finetune", model=arguments.output_dir, train_file="LABELLED.tsv", output_dir=labels)
    else:
        tell_next("validate", model=arguments.output_dir)
