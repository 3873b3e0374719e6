"""Order and masks as a function of (seed, epoch, block): any step of a run can be replayed without its history."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling


MASK_EVALUATION_SEED = 0
MASK_EVALUATION_PROBABILITY = 0.15


def random_stream(seed: int, epoch: int, row: int) -> np.random.Generator:
    """The random numbers of one block in one epoch (Philox, a counter-based generator: Salmon et al. 2011)."""
    key = np.array([seed, epoch], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, 0, row], dtype=np.uint64)))


class EpochOrder(torch.utils.data.Dataset):
    """Blocks in a new order every epoch, as one endless row of examples.

    Example `i` is block `permutation(seed, epoch)[i % len(blocks)]` of epoch `i // len(blocks)`, so a sequential
    sampler that begins at `i` goes on exactly where another run would be.

    Args:
        blocks: Packed text.
        seed: Of the order.
        start: The example to begin with, where the run that this one resumes stopped.
    """

    ENDLESS = 2**40
    ORDER_ROW = 2**63  # the stream of the permutation; no block has this number

    def __init__(self, blocks: Dataset, seed: int, start: int = 0):
        self.blocks = blocks
        self.seed = seed
        self.start = start
        self._permutations: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return self.ENDLESS

    def _permutation(self, epoch: int) -> np.ndarray:
        if epoch not in self._permutations:
            order = random_stream(self.seed, epoch, self.ORDER_ROW).permutation(len(self.blocks))
            # A batch spans two epochs at most.
            self._permutations = {epoch: order} | {e: o for e, o in self._permutations.items() if e == epoch - 1}
        return self._permutations[epoch]

    def __getitem__(self, index: int) -> dict:
        return self.__getitems__([index])[0]

    def places(self, indices: Sequence[int]) -> list[tuple[int, int]]:
        """The epoch and the block of each example."""
        turns = [divmod(self.start + index, len(self.blocks)) for index in indices]
        return [(epoch, int(self._permutation(epoch)[place])) for epoch, place in turns]

    def epochs(self, examples: int) -> float:
        """Passes over the text that so many examples are."""
        return examples / len(self.blocks)

    def __getitems__(self, indices: Sequence[int]) -> list[dict]:
        places = self.places(indices)
        batch = self.blocks[[row for _, row in places]]
        return [
            {"input_ids": ids, "position_ids": positions, "row": row, "epoch": epoch}
            for ids, positions, (epoch, row) in zip(batch["input_ids"], batch["position_ids"], places, strict=True)
        ]


@dataclass
class PackedMaskingCollator(DataCollatorForLanguageModeling):
    """Masks packed blocks: 80 % `[MASK]`, 10 % another word, 10 % as it was (the defaults of the parent class).

    Unlike the parent it pads nothing, does no work per token in Python, draws no special token as a random word, and
    takes each block's draws from its (seed, epoch, row). `seed` must be given.
    """

    def __post_init__(self):
        super().__post_init__()
        self._is_special = torch.zeros(len(self.tokenizer), dtype=torch.bool)
        self._is_special[self.tokenizer.all_special_ids] = True
        self._words = torch.nonzero(~self._is_special).flatten()

    def torch_call(self, examples: Sequence[dict]) -> dict[str, torch.Tensor]:
        """A batch of blocks.

        Args:
            examples: Each with `input_ids` and `position_ids` `(block_size,)`, `row` and `epoch`.

        Returns:
            `input_ids`, `position_ids`, `labels` `(batch_size, block_size)`, and `attention_mask`
            `(batch_size, 1, block_size, block_size)`: True between tokens of one piece.
        """
        input_ids = torch.from_numpy(np.stack([example["input_ids"] for example in examples])).long()
        position_ids = torch.from_numpy(np.stack([example["position_ids"] for example in examples])).long()
        draws = np.stack(
            [
                random_stream(self.seed, example["epoch"], example["row"]).random(
                    (3, input_ids.shape[1]), dtype=np.float32
                )
                for example in examples
            ],
            axis=1,
        )
        masked_ids, labels = self.mask(input_ids, torch.from_numpy(draws))
        return {
            "input_ids": masked_ids,
            "position_ids": position_ids,
            "attention_mask": piece_mask(position_ids),
            "labels": labels,
        }

    def mask(self, input_ids: torch.Tensor, draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Masked ids and labels, both of the shape of `input_ids`.

        Args:
            input_ids: `(batch_size, block_size)`.
            draws: Uniform numbers in [0, 1), `(3, batch_size, block_size)`: whether, how, and with which word.
        """
        chosen = (draws[0] < self.mlm_probability) & ~self._is_special[input_ids]
        labels = torch.where(chosen, input_ids, -100)
        words = self._words[(draws[2] * len(self._words)).long().clamp(max=len(self._words) - 1)]
        to_mask = chosen & (draws[1] < self.mask_replace_prob)
        to_word = chosen & ~to_mask & (draws[1] < self.mask_replace_prob + self.random_replace_prob)
        masked_ids = torch.where(to_mask, self.tokenizer.mask_token_id, input_ids)
        return torch.where(to_word, words, masked_ids), labels


def piece_mask(position_ids: torch.Tensor) -> torch.Tensor:
    """Which tokens see one another: those of one piece, which starts where its position is 0.

    Args:
        position_ids: `(batch_size, block_size)`.

    Returns:
        Bool, `(batch_size, 1, block_size, block_size)`.
    """
    piece = (position_ids == 0).cumsum(dim=1)
    return (piece[:, :, None] == piece[:, None, :])[:, None]


def evaluation_batches(blocks: Dataset, tokenizer, batch_size: int):
    """Batches of `blocks` in order, masked at 15 % with masks that depend on nothing but the row."""
    collator = PackedMaskingCollator(tokenizer, mlm_probability=MASK_EVALUATION_PROBABILITY, seed=MASK_EVALUATION_SEED)
    for start in range(0, len(blocks), batch_size):
        rows = range(start, min(start + batch_size, len(blocks)))
        batch = blocks[list(rows)]
        yield collator(
            [
                {"input_ids": ids, "position_ids": positions, "row": row, "epoch": 0}
                for ids, positions, row in zip(batch["input_ids"], batch["position_ids"], rows, strict=True)
            ]
        )
