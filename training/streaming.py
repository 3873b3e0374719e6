"""Text that does not fit into memory: blocks made while training, file by file (`pretrain --streaming`).

Each file is a shard. `datasets` hands the shards to processes and workers; here a shard becomes blocks, and the blocks
of one process become the endless row of examples that `masking.EpochOrder` is for text in memory.
"""

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node
from transformers import PreTrainedTokenizerFast

from training import processes
from training.clock import say
from training.corpus import clean_text
from training.encoding import encode, pack
from training.errors import UserError
from training.files import TextFile, expand_files
from training.masking import EpochOrder, random_stream
from training.run_folder import write_json
from training.schedule import Journal


SAMPLE_CHARACTERS = 10_000_000  # read ahead: enough for a vocabulary, its frequencies and what stands near what
CHUNK_CHARACTERS = 2_000_000  # that are encoded, packed and put into a random order at a time: some 10,000 blocks
CHUNK_ROW = (
    2**63 + 2**62
)  # from here on the streams of these orders; no block and no order of shards has such a number
SHARD_BITS = 32  # of a block's number are that of its shard, the other 32 its place there
STREAM_FILE = "stream.json"


@dataclass
class Stream:
    """A corpus that is read while training.

    Attributes:
        files: Absolute paths, the shards.
        sizes: Of the files in bytes, to notice others in their place.
        text_column: Column of the text in tables.
        encoding: Encoding of the files; `None`: recognised, file by file.
        held_out: Documents to pass over wherever they stand, since the model is evaluated on them.
    """

    files: list[str]
    sizes: list[int]
    text_column: str
    encoding: str | None
    held_out: list[str]

    @classmethod
    def over(cls, train_files: Sequence[str], text_column: str, encoding: str | None, held_out: list[str]) -> "Stream":
        """The stream over the files that names and globs stand for."""
        files = [os.path.abspath(path) for path in expand_files(train_files)]
        return cls(files, [os.path.getsize(file) for file in files], text_column, encoding, held_out)

    def save(self, folder: Path):
        write_json(folder / STREAM_FILE, dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Stream | None":
        """The stream that was saved in `folder`; `None` if none was.

        Raises:
            UserError: If a file of it is gone or has changed.
        """
        if not (folder / STREAM_FILE).is_file():
            return None
        stream = cls(**json.loads((folder / STREAM_FILE).read_text(encoding="utf-8")))
        for file, size in zip(stream.files, stream.sizes, strict=True):
            if not os.path.isfile(file) or os.path.getsize(file) != size:
                raise UserError(f"{file} is gone or has changed since the run began; bring it back, or start afresh")
        return stream

    def describe(self) -> list[str]:
        """What to print, a line each."""
        number, count = len(self.files), processes.count()
        lines = [
            f"streaming {number:,} file{'' if number == 1 else 's'}, {sum(self.sizes) / 1e6:,.1f} MB, a file a shard; "
            "documents that come twice are not looked for: remove them beforehand"
        ]
        if number < count:
            lines.append(
                f"{number} shards are fewer than {count} processes: each process reads all of them and keeps "
                f"every {count}th block; {count} or more files of about one size are read once in all"
            )
        return lines


def stream_blocks(
    stream: Stream,
    tokenizer: PreTrainedTokenizerFast,
    block_size: int,
    seed: int,
    epoch: int,
    rank: int = 0,
    world_size: int = 1,
) -> IterableDataset:
    """One pass over the text of one process, as packed blocks.

    All processes of one epoch together read each shard once, and so do the workers of a `DataLoader` in each. The
    order of the shards, and that of the blocks in a chunk of a shard, is a function of (seed, epoch).

    Args:
        stream: What to read.
        tokenizer: Encodes it.
        block_size: Tokens in a block.
        seed: Of the order.
        epoch: The pass.
        rank: Number of the process.
        world_size: Number of processes. Where it is larger than that of the shards, each process makes all blocks, and
            keeps one of `world_size`.

    Returns:
        Examples as `EpochOrder` has them, with `input_ids` and `position_ids` `(block_size,)`, `row` and `epoch`; and
        `read`, what the shard gave so far.
    """
    shards = random_stream(seed, epoch, EpochOrder.ORDER_ROW).permutation(len(stream.files)).tolist()
    blocks = IterableDataset.from_generator(
        _shard_blocks,
        gen_kwargs={
            "shards": shards,  # a list is what datasets divides
            "stream": stream,
            "tokenizer": tokenizer,
            "block_size": block_size,
            "seed": seed,
            "epoch": epoch,
        },
    )
    strategy = "shards" if len(shards) >= world_size else "examples"
    return split_dataset_by_node(blocks, rank, world_size, strategy=strategy)


def _shard_blocks(
    shards: list[int],
    stream: Stream,
    tokenizer: PreTrainedTokenizerFast,
    block_size: int,
    seed: int,
    epoch: int,
) -> Iterator[dict]:
    for shard in shards:
        place = shard << SHARD_BITS
        for texts, read in _chunks(stream, shard):
            blocks = pack(encode(texts, tokenizer), block_size, tokenizer.pad_token_id)[:]
            for block in random_stream(seed, epoch, CHUNK_ROW + place).permutation(len(blocks["input_ids"])):
                yield {
                    "input_ids": blocks["input_ids"][block],
                    "position_ids": blocks["position_ids"][block],
                    "row": place,
                    "epoch": epoch,
                    "read": read,
                }
                place += 1


def _chunks(stream: Stream, shard: int) -> Iterator[tuple[list[str], dict[str, int]]]:
    """The documents of a shard, some at a time, cleaned as `corpus.load_corpus` does; and what was read so far."""
    held_out = frozenset(stream.held_out)
    texts: list[str] = []
    characters = 0
    read = Counter()
    for _, raw in TextFile(stream.files[shard], stream.encoding).documents(stream.text_column):
        text, control_characters = clean_text(raw or "")
        read["control characters taken out or made a space"] += control_characters
        if raw is None or not text or text in held_out:
            read["without a value" if raw is None else "held out" if text else "blank"] += 1
            continue
        if characters >= CHUNK_CHARACTERS:  # not sooner: what is passed over at the end counts as well
            yield texts, dict(read)
            texts, characters = [], 0
        read["documents"] += 1
        texts.append(text)
        characters += len(text)
    if texts:
        yield texts, dict(read)
    if not read["documents"]:
        say(f"{stream.files[shard]}: nothing to train on, all is blank or held out")


class StreamedOrder(torch.utils.data.Dataset):
    """The blocks of one process, pass after pass, as one endless row of examples: `EpochOrder` for a `Stream`.

    Examples are numbered over all processes; a forward pass of this one asks for its own. They must be asked for in
    rising order; to go back, the shard that they are in is read again. Where shards begin is in the journal, so a run
    that is resumed reads again no more than the shard in which it stopped.

    Args:
        stream: What to read.
        tokenizer: Encodes it.
        block_size: Tokens in a block.
        seed: Of the order.
        micro_batch_size: Examples of a forward pass.
        journal_folder: Where to note at which example each shard begins.
        start: The example to begin with, where the run that this one resumes stopped.
    """

    def __init__(
        self,
        stream: Stream,
        tokenizer: PreTrainedTokenizerFast,
        block_size: int,
        seed: int,
        micro_batch_size: int,
        journal_folder: Path,
        start: int = 0,
    ):
        self.stream = stream
        self.tokenizer = tokenizer
        self.block_size = block_size
        self.seed = seed
        self.start = start
        self._micro_batch_size = micro_batch_size
        self._rank, self._count = processes.rank(), processes.count()
        self._journal = Journal(journal_folder / f"stream-{self._rank}-of-{self._count}.jsonl")
        self._blocks: Iterator[dict] = iter(())
        self._taken: int | None = None  # blocks of this process before the next one; `None`: no file is open yet
        self._epoch = 0
        self._shards_begun = 0  # in this epoch
        self._read: Counter[str] = Counter()  # from the shards that are done,
        self._read_of_shard: dict[str, int] = {}  # and from this one

    def __len__(self) -> int:
        return EpochOrder.ENDLESS

    def __getitem__(self, index: int) -> dict:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict]:
        return [self._block(place) for _, place in self.places(indices)]

    def places(self, indices: Sequence[int]) -> list[tuple[int, int]]:
        """The epoch that is being read, and the number of each example among those of its process."""
        batches = [divmod(self.start + index, self._micro_batch_size) for index in indices]
        return [(self._epoch, batch // self._count * self._micro_batch_size + place) for batch, place in batches]

    def epochs(self, examples: int) -> float:
        """Passes over the text so far, however many examples that was: whole ones, and the share of shards done."""
        shards = len(self.stream.files)
        shards = shards if shards < self._count else shards // self._count
        return self._epoch + max(0, self._shards_begun - 1) / shards

    def report(self) -> str:
        """What this process has read, as a line."""
        total = self._read + Counter(self._read_of_shard)
        documents = total.pop("documents", 0)
        left_out = ", ".join(f"{count:,} {reason}" for reason, count in total.items())
        since = " since it was resumed" if self.start else ""
        return f"this process read {documents:,} documents{since}; left out: {left_out or 'nothing'}"

    def _block(self, place: int) -> dict:
        if self._taken is None or place < self._taken:
            self._go_to_shard_of(place)
        while self._taken <= place:
            block = next(self._blocks)
            self._taken += 1
        return block

    def _go_to_shard_of(self, place: int):
        begin = {"taken": 0, "epoch": 0, "shards_begun": 0, "state": None}
        entry = max(
            (entry for entry in [begin, *self._journal.of("shard")] if entry["taken"] <= place),
            key=lambda entry: entry["taken"],
        )
        self._taken, self._epoch, self._shards_begun = entry["taken"], entry["epoch"], entry["shards_begun"]
        self._read, self._read_of_shard = Counter(), {}
        self._blocks = self._read_on(entry["state"])

    def _read_on(self, state: dict | None) -> Iterator[dict]:
        noted = max((entry["taken"] for entry in self._journal.of("shard")), default=0)
        resumed_in = None if state is None else state["shard"]
        while True:
            blocks = stream_blocks(
                self.stream, self.tokenizer, self.block_size, self.seed, self._epoch, self._rank, self._count
            )
            shard = resumed_in
            if state is not None:
                blocks.load_state_dict(state["of_datasets"])
            for block in blocks:
                before, shard = shard, block["row"] >> SHARD_BITS
                if shard != before:
                    self._shards_begun += 1
                    self._read.update(self._read_of_shard)
                    if self._taken >= noted:  # else it is known from before
                        self._note_shard(shard, blocks.state_dict())
                self._read_of_shard = block.pop("read")
                yield block
            if shard is None:
                raise UserError(
                    f"no text to train on in the shards of process {self._rank + 1} of {self._count}: blank, or held "
                    "out; give more text, or files of about one size"
                )
            self._epoch, self._shards_begun, state, resumed_in = self._epoch + 1, 0, None, None

    def _note_shard(self, shard: int, state: dict):
        """Note where the first block of a shard has just been taken: `state` is that of `datasets` after it."""
        self._journal.write(
            "shard",
            taken=self._taken + 1,
            epoch=self._epoch,
            shards_begun=self._shards_begun,
            state={"shard": shard, "of_datasets": state},
        )
