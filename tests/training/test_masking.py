import numpy as np
import pytest
import torch

from training.encoding import pack
from training.masking import EpochOrder, PackedMaskingCollator, evaluation_batches, piece_mask


@pytest.fixture
def blocks(tokenizer):
    generator = np.random.default_rng(1)
    words = [i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids]
    documents = [np.array([2, *generator.choice(words, size=30), 3]) for _ in range(64)]
    return pack(documents, block_size=32, pad_token_id=0)


def test_an_epoch_shows_every_block_once_and_the_next_in_another_order(blocks):
    order = EpochOrder(blocks, seed=3)
    rows = [example["row"] for example in order.__getitems__(range(2 * len(blocks)))]
    first, second = rows[: len(blocks)], rows[len(blocks) :]
    assert sorted(first) == sorted(second) == list(range(len(blocks)))
    assert first != second


def test_any_example_can_be_had_without_those_before_it(blocks, tokenizer):
    collator = PackedMaskingCollator(tokenizer, seed=3)
    whole = collator(EpochOrder(blocks, seed=3).__getitems__(range(200)))
    alone = collator(EpochOrder(blocks, seed=3).__getitems__(range(190, 200)))
    for name in whole:
        assert torch.equal(whole[name][190:], alone[name])


def test_masks_change_with_epoch_and_seed(blocks, tokenizer):
    example = EpochOrder(blocks, seed=3)[0]
    masked = {
        (seed, epoch): PackedMaskingCollator(tokenizer, seed=seed)([{**example, "epoch": epoch}])["labels"]
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len({tuple(labels.flatten().tolist()) for labels in masked.values()}) == 4


def test_shares_of_masking_are_those_of_bert_and_special_tokens_are_never_touched(tokenizer):
    generator = torch.Generator().manual_seed(0)
    words = torch.tensor([i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids])
    input_ids = words[torch.randint(len(words), (400, 1000), generator=generator)]
    input_ids[:, ::10] = torch.tensor(tokenizer.all_special_ids * 20)
    collator = PackedMaskingCollator(tokenizer, seed=0, mlm_probability=0.2)
    masked, labels = collator.mask(input_ids, torch.rand(3, 400, 1000, generator=generator))
    special = torch.isin(input_ids, torch.tensor(tokenizer.all_special_ids))
    chosen = labels != -100
    assert not (chosen & special).any()
    assert torch.equal(masked[~chosen], input_ids[~chosen])
    assert torch.equal(labels[chosen], input_ids[chosen])
    share = chosen[~special].float().mean()
    assert share == pytest.approx(0.2, abs=0.005)
    to_mask = masked[chosen] == tokenizer.mask_token_id
    assert to_mask.float().mean() == pytest.approx(0.8, abs=0.01)
    changed = ~to_mask & (masked[chosen] != input_ids[chosen])
    same_by_chance = 0.1 / len(words)
    assert changed.float().mean() == pytest.approx(0.1 - same_by_chance, abs=0.01)
    drawn = masked[chosen][changed]
    assert not torch.isin(drawn, torch.tensor(tokenizer.all_special_ids)).any()
    assert len(drawn.unique()) == len(words)


def test_only_tokens_of_one_piece_see_one_another():
    mask = piece_mask(torch.tensor([[0, 1, 0, 1], [0, 1, 2, 0]]))
    assert mask.shape == (2, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert mask[1, 0].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]]


def test_evaluation_masks_do_not_depend_on_the_batch(blocks, tokenizer):
    by_eight = torch.cat([batch["labels"] for batch in evaluation_batches(blocks, tokenizer, 8)])
    by_five = torch.cat([batch["labels"] for batch in evaluation_batches(blocks, tokenizer, 5)])
    assert torch.equal(by_eight, by_five)
    assert len(by_eight) == len(blocks)
