"""What `pretrain` chooses by itself for a model, and what it says of a text that is too small.

The vocabulary is the choice of `training.tokenizer`, the number of steps that of the budget, warm-up a share of it.
What was measured is in training/EXPERIMENTS.md.
"""

LEARNING_RATE = 2e-3
MEASURED_WIDTH = 256  # hidden units up to which that rate was measured; wider ones have a lower one
# Tokens of Chinese reviews. Encoders made from 28,000 and from 235,000 lost to TF-IDF, one made from 679,000 did not.
LITTLE_TEXT = 500_000


def learning_rate(hidden_size: int) -> float:
    """The peak learning rate: that which was measured, and beyond its width one that falls with the width.

    Yang et al. 2022 (arXiv 2203.03466): the best rate of Adam goes with one over the width.
    """
    return LEARNING_RATE * min(1.0, MEASURED_WIDTH / hidden_size)


def warn_of_little_text(tokens: int) -> str | None:
    """A line about a text so small that a model made from it alone is worth little; `None` for a larger one.

    Args:
        tokens: In the training text.
    """
    if tokens >= LITTLE_TEXT:
        return None
    return (
        f"warning: {tokens:,} tokens are little text: an encoder of less than about {LITTLE_TEXT:,} is not likely "
        "to beat TF-IDF + logistic regression; more text of this kind helps, and needs no labels"
    )
