"""What each token adds to an answer of a classifier, by leaving it out.

A token is hidden by the attention mask, and what the answer then loses in log-odds is what the token adds. Gradients
would cost one pass instead of one a token, but say what an endlessly small change does, and where the model is sure
that is next to nothing. Gaps are no strangers to a model fine-tuned here: in training three tokens of ten are hidden.
"""

import typing
from dataclasses import dataclass

from training import labelled
from training.readable_tokens import read_text


if typing.TYPE_CHECKING:
    import numpy as np

    from training.predict import FineTuned


@dataclass(frozen=True)
class Attribution:
    """What the tokens of a text add to the answer.

    Args:
        tokens: All tokens, special ones too.
        positions: Of those that were left out in turn: all but the special ones.
        scores: For each token what it adds to `evidence`; 0 for special tokens. They need not sum to it: two tokens
            that say the same lose little one by one.
        label: The answer; for regression the name of the number.
        probability: Of the answer; `None` for regression.
        evidence: Log-odds of the answer, or the number.
        cut: Whether the text was longer than the model reads.
    """

    tokens: list[str]
    positions: list[int]
    scores: list[float]
    label: str
    probability: float | None
    evidence: float
    cut: bool


def can_attribute(finetuned: "FineTuned") -> bool:
    """Whether the model classifies texts."""
    return finetuned.task.task == "sequence-classification"


def attribute(finetuned: "FineTuned", text: str, pair: str | None = None) -> Attribution:
    """Explain the answer for one text.

    Args:
        finetuned: One that `can_attribute`.
        text, pair: The text and its second text; `None` where the task has none.
    """
    import numpy as np

    from training.classification import probabilities
    from training.predict import forward

    task, tokenizer = finetuned.task, finetuned.tokenizer
    assert task.problem_type is not None  # every classification has one
    reading = read_text(tokenizer, text, pair, task.max_length)
    ids = reading.inputs["input_ids"]
    positions = [index for index, special in enumerate(reading.special) if not special]
    seen = [[1] * len(ids)] + [[int(place != at) for place in range(len(ids))] for at in positions]
    encoded = {name: [values] * len(seen) for name, values in reading.inputs.items()} | {"attention_mask": seen}
    logits = np.empty((len(seen), finetuned.model.config.num_labels))
    for rows, outputs in forward(finetuned.model, tokenizer, encoded):
        logits[rows] = outputs.logits.float().cpu().numpy()
    is_number = task.problem_type == labelled.REGRESSION
    shares = probabilities(logits, task.problem_type)[0]
    answer = 0 if is_number else int(shares.argmax())
    evidence = _evidence(logits, answer, task.problem_type)
    scores = np.zeros(len(ids))
    scores[positions] = evidence[0] - evidence[1:]
    return Attribution(
        tokens=reading.tokens,
        positions=positions,
        scores=scores.tolist(),
        label=task.label_column if is_number else (task.label_names or [])[answer],
        probability=None if is_number else float(shares[answer]),
        evidence=float(evidence[0]),
        cut=reading.cut,
    )


def _evidence(logits: "np.ndarray", answer: int, problem_type: str) -> "np.ndarray":
    """Log-odds `(n,)` of one label, of one against all others where they exclude each other; or the number."""
    import numpy as np
    from scipy.special import logsumexp

    if problem_type != labelled.SINGLE_LABEL:
        return logits[:, answer]
    return logits[:, answer] - logsumexp(np.delete(logits, answer, axis=1), axis=1)
