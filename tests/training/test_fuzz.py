"""Properties that hold for any input, looked for by hypothesis.

The examples are the same in every run. `FUZZ_EXAMPLES=10000 python -m pytest tests/training/test_fuzz.py` looks at so
many new ones.
"""

import gzip
import io
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.training.conftest import make_sentences
from training.encoding import encode, pack
from training.errors import UserError
from training.files import TextFile
from training.masking import PackedMaskingCollator, piece_mask
from training.tokenizer import SPACE, normalizer, train_tokenizer


EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", 0))


def fuzz(number: int):
    """How to look: `number` examples, always the same, unless others are asked for."""
    return settings(
        max_examples=EXAMPLES or number,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


# Readers


def as_parquet(rows: list[dict]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    return stream.getvalue()


ROWS = [{"label": "好", "text": '很"好"，'}, {"label": "1", "text": "a\tb"}, {"label": "x,y", "text": "😀\u2028"}]
TABLE = 'label,text\r\n好,"很""好""，\n"\r\n1,b\r\n\r\n2,😀\u2028\r\n'
SEEDS = {
    ".txt": [
        text.encode(code) for text in ("很好\n\nb\r\n",) for code in ("utf-8-sig", "gb18030", "utf-16", "utf-32")
    ],
    ".csv": [TABLE.encode(), TABLE.encode("gb18030"), TABLE.encode("utf-16-le")],
    ".tsv": ['label\ttext\n好\t"很好\n1\tb\n'.encode(), "label\ttext\r1\tb\r".encode("utf-16")],
    ".jsonl": ["".join(json.dumps(row) + "\n" for row in ROWS).encode()],
    ".json": [json.dumps(ROWS, ensure_ascii=False, indent=1).encode()],
    ".parquet": [as_parquet(ROWS)],
}
KINDS = [*SEEDS, *(f"{kind}.gz" for kind in SEEDS if kind != ".parquet")]
PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from([b"\0", b"\r", b"\n", b'"', b",", b"\t", b"{", b"}", b"[", b"]", b"\\ud83d", b"NaN", b"1e999"]),
    st.sampled_from(["好".encode(code) for code in ("utf-8", "gb18030", "utf-16-le", "big5")]),
)


@st.composite
def broken_files(draw) -> tuple[str, bytes]:
    """A suffix, and bytes: any, or good ones in which a few stretches are cut out or replaced."""
    kind = draw(st.sampled_from(KINDS))
    if draw(st.integers(0, 3)) == 0:
        content = draw(st.binary(max_size=200))
    else:
        content = draw(st.sampled_from(SEEDS[kind.removesuffix(".gz")]))
        for _ in range(draw(st.integers(0, 4))):
            start = draw(st.integers(0, len(content)))
            content = content[:start] + draw(PIECES) + content[start + draw(st.integers(0, 6)) :]
    if kind.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
        cut, at = draw(st.sampled_from([0, 0, 0, 1, 9])), draw(st.integers(0, len(content) - 1))
        content = content[: len(content) - cut]
        content = content[:at] + draw(st.sampled_from([content[at : at + 1], b"\xff"])) + content[at + 1 :]
    return kind, content


@fuzz(400)
@given(broken_files(), st.sampled_from([None, None, None, "utf-8", "gb18030", "utf-16"]))
def test_any_bytes_are_rows_or_one_clear_error(tmp_path, file, encoding):
    kind, content = file
    path = tmp_path / f"a{kind}"
    path.write_bytes(content)
    try:
        found = TextFile(path, encoding)
        documents = list(found.documents("text"))
        rows = [] if kind.startswith(".txt") else list(found.rows())
    except UserError as error:
        assert str(error).startswith(str(path)) or "a.parquet" in str(error)
        return
    for numbered in (documents, rows):
        numbers = [number for number, _ in numbered]
        assert numbers == sorted(numbers) and all(number >= 1 for number in numbers)
    for _, text in documents:
        assert text is None or text.encode("utf-8") is not None
    assert not rows or [row["text"] for _, row in rows] == [text for _, text in documents]


@fuzz(60)
@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30), min_size=1))
def test_text_that_is_written_is_the_text_that_is_read(tmp_path, lines):
    lines = [*lines, "完"]
    for encoding in ("utf-8", "gb18030", "utf-16"):
        path = tmp_path / "a.txt"
        path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
        read = [text for _, text in TextFile(path, encoding).documents("text")]
        assert read == [lines[0].removeprefix("\ufeff"), *lines[1:]]


# Tokenizer


@pytest.fixture(scope="module", params=["characters", "words"])
def trained(request):
    return train_tokenizer([*make_sentences(300), "A (quick) fox's 3.14%"] * 2, chinese_tokens=request.param)


TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(
            [
                "我们",
                "喜欢",
                "这本书",
                " ",
                "ok",
                "OK",
                "（",
                "(",
                "'s",
                "3.14",
                "\u3000",
                "é",
                "龘",
                "😀",
                "[MASK]",
                "Ⅷ",
                "ﬁ",
            ]
        ),
        max_size=12,
    ).map("".join),
)


def without_spaces(text: str) -> str:
    return text.replace(SPACE, "").replace(" ", "")


@fuzz(200)
@given(TEXTS)
def test_tokens_spell_the_normal_form_and_an_unknown_character_is_one_unk(trained, text):
    normal = without_spaces(normalizer().normalize_str(text))
    at = 0
    for token in trained.convert_ids_to_tokens(
        trained(text, truncation=False, split_special_tokens=True)["input_ids"][1:-1]
    ):
        if token == trained.unk_token:
            assert normal[at] not in trained.get_vocab()
            at += 1
        else:
            assert normal.startswith(without_spaces(token), at)
            at += len(without_spaces(token))
    assert at == len(normal)


@fuzz(200)
@given(TEXTS)
def test_decoding_gives_the_normal_form_but_for_spaces_and_the_same_ids_again(trained, text):
    ids = trained(text, split_special_tokens=True)["input_ids"][1:-1]
    if trained.unk_token_id in ids:
        return
    decoded = trained.decode(ids)
    assert without_spaces(decoded) == without_spaces(normalizer().normalize_str(text))
    assert trained(decoded, split_special_tokens=True)["input_ids"][1:-1] == ids


# Packing


DOCUMENTS = st.lists(st.lists(st.integers(5, 60), min_size=1, max_size=30), max_size=12)


@fuzz(150)
@given(DOCUMENTS, st.integers(1, 20))
def test_packing_keeps_every_token_once_in_order_and_documents_apart(documents, block_size):
    blocks = pack([np.array(document) for document in documents], block_size, pad_token_id=0)[:]
    tokens = [token for document in documents for token in document]
    owners = [index for index, document in enumerate(documents) for _ in document]
    if not documents:
        return
    row, padding = blocks["input_ids"].ravel().tolist(), -len(tokens) % block_size
    assert row == tokens + [0] * padding
    owner = torch.tensor(owners + [-1] * padding).view(-1, block_size)
    positions = torch.from_numpy(blocks["position_ids"])
    assert torch.equal(piece_mask(positions)[:, 0], owner[:, :, None] == owner[:, None, :])
    for of_block, place in zip(owner.tolist(), positions.tolist(), strict=True):
        starts = [i for i in range(block_size) if i == 0 or of_block[i] != of_block[i - 1]]
        assert place == [i - max(start for start in starts if start <= i) for i in range(block_size)]


@fuzz(60)
@given(st.lists(st.tuples(TEXTS, st.integers(1, 60)), min_size=1, max_size=6), st.integers(8, 64))
def test_long_documents_are_split_and_not_cut(trained, texts, block_size):
    texts = [text * times for text, times in texts]
    blocks = pack(encode(texts, trained), block_size, trained.pad_token_id)[:]
    backend = trained.backend_tokenizer  # the tokenizers library by itself is not asked to cut
    backend.no_truncation()
    backend.encode_special_tokens = True
    expected = [token for text in texts for token in backend.encode(text).ids]
    row = blocks["input_ids"].ravel().tolist()
    assert row[: len(expected)] == expected
    assert set(row[len(expected) :]) <= {trained.pad_token_id}
    assert len(row) - len(expected) < block_size


# Masking


@fuzz(100)
@given(
    st.lists(st.integers(0, 10**9), min_size=8, max_size=8),
    st.integers(0, 2**32 - 1),
    st.integers(0, 1000),
    st.integers(0, 2**40),
    st.sampled_from([0.01, 0.15, 0.5, 0.99]),
)
def test_masks_touch_words_alone_and_hang_on_seed_epoch_and_row(trained, numbers, seed, epoch, row, probability):
    input_ids = np.array([number % len(trained) for number in numbers] * 4)
    example = {"input_ids": input_ids, "position_ids": np.arange(len(input_ids)), "row": row, "epoch": epoch}
    other = {**example, "row": row + 1}
    collator = PackedMaskingCollator(trained, mlm_probability=probability, seed=seed)
    batch = collator([example])
    again = PackedMaskingCollator(trained, mlm_probability=probability, seed=seed)([other, example])
    for name, values in batch.items():
        assert torch.equal(values[0], again[name][1])
    before, after, labels = torch.from_numpy(input_ids), batch["input_ids"][0], batch["labels"][0]
    special = torch.isin(before, torch.tensor(trained.all_special_ids))
    chosen = labels != -100
    assert not (chosen & special).any()
    assert torch.equal(labels[chosen], before[chosen])
    assert torch.equal(after[~chosen], before[~chosen])
    replaced = after[chosen & (after != before)]
    assert set(replaced.tolist()) & set(trained.all_special_ids) <= {trained.mask_token_id}
