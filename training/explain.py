"""Show how a model reads a text: where its tokens look, which see which, and what each adds to the answer.

`python -m training explain --model runs/mine --text "房间很干净" --output_dir runs/mine-explained`
"""

import typing
from dataclasses import dataclass
from pathlib import Path

from training.arguments import ExplainArguments
from training.attribution import Attribution, attribute, can_attribute
from training.errors import UserError
from training.loading import check_complete, check_encoder, check_folder, check_vocabulary, load_tokenizer, loading
from training.predict import FineTuned, Task, load_finetuned, read_task
from training.readable_tokens import Reading, read_text
from training.run_folder import TASK_FILE, check_output_dir, publishing


if typing.TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MOST_TOKENS = 24  # in a picture of attention, and in its lines
PADDING_SHOWN = 3


@dataclass(frozen=True)
class Attention:
    """What a model does with one text of `n` tokens.

    Args:
        weights: `(num_layers, num_heads, n, n)`, the share of attention that the token of the row gives to that of
            the column.
        seen: `(n + p, n + p)`, whether any head lets the token of the row look at that of the column, with `p` tokens
            of padding behind the text. Rows of padding are false: whatever it computes, nothing reads.
        mask: `(n + p,)`, false where there is padding.
    """

    weights: "np.ndarray"
    seen: "np.ndarray"
    mask: "np.ndarray"


def main(arguments: ExplainArguments):
    """Carry out the verb: draw the pictures, print the same in words.

    Raises:
        UserError: If the model or the output folder is not as it must be.
    """
    from training.pictures import canvas

    output_dir = check_output_dir(arguments.output_dir)
    check_folder(arguments.model, "pretrain")
    task = read_task(arguments.model) if (Path(arguments.model) / TASK_FILE).is_file() else None
    _check_pair(arguments, task)
    model, tokenizer, finetuned, longest = _load(arguments.model, task)
    reading = read_text(tokenizer, arguments.text, arguments.text_pair, longest)
    attention = attend(model, tokenizer, reading)
    attribution = None
    if finetuned and can_attribute(finetuned):
        attribution = attribute(finetuned, arguments.text, arguments.text_pair)
    canvas.say_if_unreadable(reading.tokens)
    with publishing(output_dir) as folder:
        names = _draw(folder, reading, attention, attribution, tokenizer.pad_token, arguments.picture_language)
    _print(reading, attention, attribution)
    print(f"pictures: {', '.join(str(output_dir / name) for name in names)}")


def _load(
    folder: str, task: Task | None
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase", FineTuned | None, int]:
    """The model, its tokenizer, what `finetune` made if it did, and the most tokens to read."""
    if task:
        finetuned = load_finetuned(folder)
        return finetuned.model, finetuned.tokenizer, finetuned, task.max_length
    model, tokenizer = _load_encoder(folder)
    return model, tokenizer, None, getattr(model.config, "max_position_embeddings", tokenizer.model_max_length)


def _load_encoder(folder: str) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    import transformers
    from transformers.utils import logging

    import hf_tinybert  # noqa: F401 - registers
    from training.finetune import POOLER

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # of the load: a head that is not used
    tokenizer = load_tokenizer(folder)
    with loading(folder):
        check_encoder(folder, transformers.AutoConfig.from_pretrained(folder))
        model, info = transformers.AutoModel.from_pretrained(
            folder, ignore_mismatched_sizes=True, output_loading_info=True
        )
    check_complete(folder, "the encoder", info, lambda key: not POOLER.search(key))
    check_vocabulary(f"the tokenizer of --model {folder}", tokenizer, model.config.vocab_size)
    return model, tokenizer


def _check_pair(arguments: ExplainArguments, task: Task | None):
    needs_pair = task is not None and (task.task == "question-answering" or task.text_pair_column is not None)
    if needs_pair and arguments.text_pair is None:
        raise UserError(f"--model {arguments.model} takes two texts; give the second with --text_pair")
    if task is not None and arguments.text_pair is not None and not needs_pair:
        raise UserError(f"--model {arguments.model} takes one text; leave --text_pair out")


def attend(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", reading: Reading) -> Attention:
    """Run a model on one text, by itself and with padding behind it, and keep the attention weights.

    Raises:
        UserError: If the model gives no attention weights.
    """
    import numpy as np
    import torch

    model.eval()
    try:
        model.set_attn_implementation("eager")  # the faster ones keep no weights
    except ValueError as error:
        raise UserError(f"this model of type {model.config.model_type} shows no attention weights: {error}") from error
    inputs = {name: torch.tensor([values], device=model.device) for name, values in reading.inputs.items()}
    padded = {name: torch.nn.functional.pad(values, (0, PADDING_SHOWN)) for name, values in inputs.items()}
    if tokenizer.pad_token_id is not None:
        padded["input_ids"][:, -PADDING_SHOWN:] = tokenizer.pad_token_id
    padded["attention_mask"] = torch.nn.functional.pad(torch.ones_like(inputs["input_ids"]), (0, PADDING_SHOWN))
    with torch.inference_mode():
        weights, padded_weights = (
            torch.stack(model(**given, output_attentions=True).attentions)[:, 0].float().cpu().numpy()
            for given in (inputs, padded)
        )
    mask = padded["attention_mask"][0].bool().cpu().numpy()
    seen = (padded_weights > 0).any(axis=(0, 1))
    return Attention(weights, np.where(mask[:, None], seen, False), mask)


def _draw(
    folder: Path,
    reading: Reading,
    attention: Attention,
    attribution: Attribution | None,
    pad_token: str | None,
    language: str,
) -> list[str]:
    """Draw into a folder; returns the names of the files."""
    from training.pictures.attention import attention_pictures, draw_attention
    from training.pictures.explanation import draw_explanation
    from training.pictures.visibility import draw_visibility

    total, shown = len(reading.tokens), min(len(reading.tokens), MOST_TOKENS)
    weights = attention.weights[:, :, :shown, :shown]
    pictures = attention_pictures(*weights.shape[:2])
    for name, layers in pictures.items():
        draw_attention(weights, reading.tokens[:shown], layers, total, folder / name, language)
    kept = [*range(shown), *range(total, total + PADDING_SHOWN)]
    names = [*reading.tokens[:shown], *[pad_token or "[PAD]"] * PADDING_SHOWN]
    draw_visibility(attention.seen[kept][:, kept], attention.mask[kept], names, folder / "visibility.png", language)
    files = [*pictures, "visibility.png"]
    if attribution:
        draw_explanation(attribution, folder / "explanation.png", language)
        files.append("explanation.png")
    return files


def _print(reading: Reading, attention: Attention, attribution: Attribution | None):
    """The pictures in words."""
    shown = min(len(reading.tokens), MOST_TOKENS)
    if reading.cut:
        print(f"the text is longer than the {len(reading.tokens)} tokens that the model reads; the rest is cut")
    print(f"tokens ({len(reading.tokens)}): {' '.join(reading.tokens)}")
    if shown < len(reading.tokens):
        print(f"attention and visibility show the first {shown} of them")
    print("\nattention: where each token looks most")
    for layer, heads in enumerate(attention.weights):
        for head, weights in enumerate(heads):
            print(f"  layer {layer + 1}, head {head + 1}: {_looks(reading.tokens, weights[:shown])}")
    print("\nvisibility: a row a token, # where it sees the token of the column (last: padding)")
    kept = [*range(shown), *range(len(reading.tokens), len(attention.mask))]
    for row, index in enumerate(kept):
        causal = "".join("#" if column <= row and attention.mask[[index, kept[column]]].all() else "."
                         for column in range(len(kept)))  # fmt: skip
        ours = "".join("#" if attention.seen[index, other] else "." for other in kept)
        print(f"  {ours}    causal: {causal}  {reading.tokens[index] if attention.mask[index] else '(padding)'}")
    if attribution is None:
        print("\nno explanation of an answer: the model does not classify texts")
        return
    print(f"\n{describe(attribution)}")


def _looks(tokens: list[str], weights: "np.ndarray") -> str:
    places = weights.argmax(axis=-1)
    pairs = zip(tokens, places, strict=False)
    return "  ".join(f"{token}>{tokens[at]} {weights[row, at]:.2f}" for row, (token, at) in enumerate(pairs))


def describe(attribution: Attribution) -> str:
    """An attribution as lines: the answer, and each token with what it adds."""
    if attribution.probability is None:
        first = f"answer: {attribution.label} = {attribution.evidence:.4f}; what each token adds to it"
    else:
        first = (
            f"answer: {attribution.label}, probability {attribution.probability:.1%} "
            f"(log-odds {attribution.evidence:+.2f}); what each token adds to the log-odds"
        )
    lines = [f"{first}, by hiding it:"]
    for index in attribution.positions:
        score = attribution.scores[index]
        lines.append(f"  {score:+7.2f}  {attribution.tokens[index]}")
    return "\n".join(lines)
