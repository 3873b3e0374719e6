"""Text streamed from shards: everything once a pass, whoever reads it; memory; where a run goes on."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests import stress
from tests.training.conftest import make_sentences
from training import pretrain as pretrain_module
from training import processes, streaming
from training import trainer as trainer_module
from training.__main__ import main
from training.encoding import encode, pack
from training.errors import UserError
from training.schedule import Journal
from training.streaming import Stream, StreamedOrder, stream_blocks


BLOCK_SIZE = 16
ROOT = Path(__file__).parents[2]


def write_shards(folder, numbers):
    """Shards of so many sentences each, of every kind that can be read."""
    folder.mkdir(exist_ok=True)
    sentences, paths = make_sentences(sum(numbers)), []
    for index, number in enumerate(numbers):
        part, sentences = sentences[:number], sentences[number:]
        kind = (".txt", ".txt.gz", ".jsonl", ".parquet")[index % 4]
        path = folder / f"shard-{index}{kind}"
        if kind == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"text": part}), path)
        else:
            lines = [json.dumps({"text": text}) for text in part] if kind == ".jsonl" else part
            data = "\n".join(lines).encode()
            path.write_bytes(gzip.compress(data) if kind == ".txt.gz" else data)
        paths.append(path)
    return paths


def stream_of(paths, held_out=()):
    return Stream.over([str(path) for path in paths], "text", None, list(held_out))


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(streaming, "CHUNK_CHARACTERS", 200)


def with_worker(block):
    """Which worker of a loader gave a block; -1 where there are none."""
    info = torch.utils.data.get_worker_info()
    return -1 if info is None else info.id, block["row"], tuple(block["input_ids"].tolist())


def read_by_loaders(stream, tokenizer, world_size, workers):
    """(process, worker, number, tokens) of each block that torch's own loaders give."""
    return [
        (rank, *found)
        for rank in range(world_size)
        for found in torch.utils.data.DataLoader(
            stream_blocks(stream, tokenizer, BLOCK_SIZE, 0, 0, rank, world_size),
            num_workers=workers,
            batch_size=None,
            collate_fn=with_worker,
        )
    ]


@pytest.mark.parametrize(
    ("shards", "world_size", "workers"), [(6, 2, 2), (5, 2, 2), (4, 2, 2), (4, 1, 0), (3, 2, 0), (2, 4, 0), (1, 2, 2)]
)
def test_processes_and_workers_read_each_block_once_a_pass(
    tmp_path, tokenizer, small_chunks, shards, world_size, workers
):
    stream = stream_of(write_shards(tmp_path / "text", [20 + 3 * index for index in range(shards)]))
    expected = Counter()  # by the path for text in memory, chunk by chunk
    for shard in range(shards):
        for texts, _ in streaming._chunks(stream, shard):
            blocks = pack(encode(texts, tokenizer), BLOCK_SIZE, tokenizer.pad_token_id)
            expected.update(map(tuple, blocks[:]["input_ids"].tolist()))

    found = read_by_loaders(stream, tokenizer, world_size, workers)

    assert Counter(ids for *_, ids in found) == expected
    numbers = [number for *_, number, _ in found]
    assert len(numbers) == len(set(numbers))
    readers = {
        shard: {(rank, worker) for rank, worker, row, _ in found if row >> 32 == shard} for shard in range(shards)
    }
    if shards >= world_size:
        assert all(len(those) == 1 for those in readers.values())  # a shard is that of one worker of one process
    if shards >= world_size * max(workers, 1):
        assert len(set.union(*readers.values())) == world_size * max(workers, 1)  # and all have some


def test_the_next_pass_has_the_same_blocks_in_another_order_and_another_seed_too(tmp_path, tokenizer):
    stream = stream_of(write_shards(tmp_path / "text", [40] * 4))

    def order(epoch, seed):
        return [block["row"] for block in stream_blocks(stream, tokenizer, BLOCK_SIZE, seed, epoch)]

    def contents(epoch, seed):
        blocks = stream_blocks(stream, tokenizer, BLOCK_SIZE, seed, epoch)
        return [tuple(block["input_ids"].tolist()) for block in blocks]

    first = contents(0, 0)
    assert first == contents(0, 0)
    for epoch, seed in ((1, 0), (0, 1)):
        other = contents(epoch, seed)
        assert other != first and sorted(other) == sorted(first)
    shards = [[row >> 32 for row in order(epoch, 0)] for epoch in range(4)]
    assert len({tuple(dict.fromkeys(numbers)) for numbers in shards}) > 1  # the shards, too, come in other orders


def test_held_out_documents_are_passed_over_wherever_they_stand_and_counted(tmp_path, tokenizer):
    paths = write_shards(tmp_path / "text", [10, 10, 10, 10])
    sentences = make_sentences(40)
    (tmp_path / "text" / "again.txt").write_text(f"{sentences[3]}\n\n  {sentences[3]} \n新的\n", encoding="utf-8")
    stream = stream_of([*paths, tmp_path / "text" / "again.txt"], held_out=[sentences[3], sentences[25]])
    read = Counter()
    for shard in range(5):
        *_, (texts, counts) = streaming._chunks(stream, shard)
        assert not {sentences[3], sentences[25]} & {*texts}
        read.update(counts)
    assert read == Counter(documents=39, blank=1) + Counter({"held out": 4})


class OneOf:
    """Makes this process one of several."""

    def __init__(self, monkeypatch, rank, count):
        monkeypatch.setattr(processes, "rank", lambda: rank)
        monkeypatch.setattr(processes, "count", lambda: count)


def make_order(stream, tokenizer, folder, start=0):
    folder.mkdir(exist_ok=True)
    return StreamedOrder(stream, tokenizer, BLOCK_SIZE, 7, 4, folder, start)


def taken(order, indices):
    return [(block["epoch"], block["row"], block["input_ids"].tolist()) for block in order.__getitems__(indices)]


@pytest.mark.parametrize(("rank", "count"), [(0, 1), (1, 2), (2, 4)])
def test_an_order_goes_on_at_any_example_with_or_without_its_journal(
    tmp_path, tokenizer, small_chunks, monkeypatch, rank, count
):
    OneOf(monkeypatch, rank, count)
    stream = stream_of(write_shards(tmp_path / "text", [12, 9, 14]))
    own = [batch * 4 * count + 4 * rank + place for batch in range(32) for place in range(4)]
    whole = make_order(stream, tokenizer, tmp_path / "journal")
    expected = taken(whole, own)
    assert {epoch for epoch, *_ in expected} >= {0, 1, 2}
    journal = tmp_path / "journal" / f"stream-{rank}-of-{count}.jsonl"
    assert len(Journal(journal).of("shard")) >= 6

    for steps in (0, 1, 13, 31):
        start = steps * 4 * count
        for folder in (tmp_path / "journal", tmp_path / f"none-{steps}"):
            later = make_order(stream, tokenizer, folder, start)
            assert taken(later, own[:4]) == expected[4 * steps : 4 * steps + 4], (steps, folder)
    assert taken(whole, own[8:12]) == expected[8:12]  # back


def test_going_on_reads_no_shard_that_is_done(tmp_path, tokenizer, monkeypatch):
    stream = stream_of(write_shards(tmp_path / "text", [12] * 5))
    whole = make_order(stream, tokenizer, tmp_path / "journal")
    per_pass = sum(1 for _ in stream_blocks(stream, tokenizer, BLOCK_SIZE, 7, 0))
    taken(whole, range(per_pass))
    opened = []
    real = streaming.TextFile
    monkeypatch.setattr(streaming, "TextFile", lambda path, encoding: opened.append(path) or real(path, encoding))
    start = per_pass // 4 * 4 - 4  # a multiple of a forward pass's, in the last shard
    taken(make_order(stream, tokenizer, tmp_path / "journal", start), [0, 1, 2, 3])
    assert len(opened) == 1
    taken(make_order(stream, tokenizer, tmp_path / "none", start), [0, 1, 2, 3])
    assert len(opened) == 1 + 5


def test_a_process_whose_shards_hold_no_text_is_one_line_not_an_endless_search(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text(" \n\t\n", encoding="utf-8")
    order = make_order(stream_of([tmp_path / "a.txt"]), tokenizer, tmp_path / "journal")
    with pytest.raises(UserError, match="no text to train on in the shards of process 1 of 1"):
        order[0]


def test_fewer_shards_than_processes_are_said(tmp_path, monkeypatch):
    stream = stream_of(write_shards(tmp_path / "text", [5, 5, 5]))
    assert len(stream.describe()) == 1
    OneOf(monkeypatch, 0, 4)
    assert "3 shards are fewer than 4 processes: each process reads all of them and keeps" in stream.describe()[1]


READ_ALL = """
import gc, json, sys
import psutil
from training import streaming
from training.loading import load_tokenizer
from training.streaming import Stream, stream_blocks

streaming.CHUNK_CHARACTERS = 20_000
folder, *paths = sys.argv[1:]
tokenizer = load_tokenizer(folder)

def grown_by(files, keep):
    gc.collect()
    process, kept = psutil.Process(), []
    before = most = process.memory_info().rss
    for number, block in enumerate(stream_blocks(Stream.over(files, "text", None, []), tokenizer, 128, 0, 0)):
        if keep:
            kept.append(block)
        if number % 100 == 0:
            most = max(most, process.memory_info().rss)
    return most - before

grown_by(paths[:1], keep=False)  # what the first reading allocates for good
print(json.dumps([grown_by(paths[:1], keep=False), grown_by(paths, keep=False), grown_by(paths, keep=True)]))
"""


def test_memory_does_not_grow_with_the_text(tmp_path, tokenizer):
    """In a process of its own: this one has memory to spare from other tests."""
    line = "".join(make_sentences(20)) + "\n"  # 0.8 KB
    size = 200_000
    for index in range(8):
        text = "".join(f"{index} {number} {line}" for number in range(size // len(line.encode())))
        (tmp_path / f"{index}.txt").write_text(text, encoding="utf-8")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    command = [sys.executable, "-c", READ_ALL, tmp_path / "tokenizer", *sorted(tmp_path.glob("*.txt"))]

    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)

    once, eightfold, kept = json.loads(done.stdout.splitlines()[-1])
    assert eightfold < once + 1_000_000  # of 1.6 MB
    assert kept > eightfold + 3_000_000  # so it would show


def argv_of(paths, tokenizer_folder, output_dir, *more):
    return [
        *("pretrain", "--streaming", "--train_files", *map(str, paths), "--tokenizer", str(tokenizer_folder)),
        *("--size", "reference", "--block_size", "16", "--batch_size", "8", "--micro_batch_size", "4"),
        *("--max_steps", "24", "--save_steps", "5", "--output_dir", str(output_dir), *more),
    ]


@pytest.fixture(scope="module")
def streamed(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("streamed")
    paths = write_shards(folder / "text", [9, 12, 10, 11])
    tokenizer.save_pretrained(folder / "tokenizer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "CHUNK_CHARACTERS", 200)
        assert main(argv_of(paths, folder / "tokenizer", folder / "whole")) == 0
    return folder, paths


def stop_at(monkeypatch, step):
    class Stop(trainer_module.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == step:
                raise KeyboardInterrupt

    real = trainer_module.ExactTrainer.__init__

    def init(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.callback_handler.callbacks.insert(0, Stop())

    monkeypatch.setattr(trainer_module.ExactTrainer, "__init__", init)


def test_a_streamed_run_trains_says_what_it_did_and_resumes_to_the_same_bits(
    streamed, small_chunks, tmp_path, monkeypatch, capsys
):
    folder, paths = streamed
    results = json.loads((folder / "whole" / "eval_results.json").read_text(encoding="utf-8"))
    assert results["epochs"] > 1 and results["steps"] == 24
    assert results["corpus"]["streamed_bytes"] == sum(path.stat().st_size for path in paths)
    assert "train_documents" not in results["corpus"] and str(folder) not in json.dumps(results)
    for step in (12, 22):
        run = tmp_path / f"run-{step}"
        with monkeypatch.context() as patch:
            stop_at(patch, step)
            assert main(argv_of(paths, folder / "tokenizer", run)) == 130
        capsys.readouterr()
        assert main(argv_of(paths, folder / "tokenizer", run, "--resume")) == 0
        out = capsys.readouterr().out
        assert f"going on from checkpoint-{step // 5 * 5}" in out and "since it was resumed; left out: " in out
        assert stress.weights(run) == stress.weights(folder / "whole")


def test_what_is_streamed_is_said(streamed, small_chunks, tmp_path, capsys):
    folder, paths = streamed
    assert main(argv_of(paths, folder / "tokenizer", tmp_path / "run", "--max_steps", "24")) == 0
    out = capsys.readouterr().out
    assert "streaming 4 files, 0.0 MB, a file a shard; documents that come twice are not looked for" in out
    assert "characters are read ahead, to count tokens and to hold some documents out:" in out
    assert "this process read " in out and "held out" in out


def test_without_a_tokenizer_one_is_trained_on_the_beginnings_of_the_files(streamed, small_chunks, monkeypatch):
    _, paths = streamed
    monkeypatch.setattr(pretrain_module, "SAMPLE_CHARACTERS", 200)
    given = pretrain_module.PretrainArguments(
        train_files=[str(path) for path in paths], streaming=True, output_dir="x", size="reference", block_size=16
    )
    prepared = pretrain_module.prepare(given)
    ahead = prepared.facts["read_ahead"]
    assert [0 < file["documents"] < 9 for file in prepared.facts["files"]] == [True] * 4
    assert 200 <= ahead["characters"] < 400 and ahead["train_documents"] < 42
    assert len(prepared.stream.held_out) == prepared.facts["held_out_documents"]


def test_mistakes_are_one_line(streamed, tmp_path, monkeypatch, capsys):
    folder, _ = streamed
    assert main(["pretrain", "--streaming", "--dataset", "a/b", "--output_dir", str(tmp_path / "run")]) == 2
    assert "--streaming is for --train_files" in capsys.readouterr().err
    copies = write_shards(tmp_path / "text", [9, 12, 10, 11])
    with monkeypatch.context() as patch:
        stop_at(patch, 7)
        assert main(argv_of(copies, folder / "tokenizer", tmp_path / "run")) == 130
    copies[0].write_text("别的", encoding="utf-8")
    assert main(argv_of(copies, folder / "tokenizer", tmp_path / "run", "--resume")) == 2
    error = capsys.readouterr().err
    assert "shard-0.txt is gone or has changed since the run began; bring it back, or start afresh\n" in error
