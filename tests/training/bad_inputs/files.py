"""Files that are broken, odd or merely unusual, and the verb that each is given to."""

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.training import toy


LINES = [
    "今天天气很好，我们去公园。",
    "这家酒店的房间很干净，服务也好。",
    "hello world, 很好 😀",
    "书店老板很喜欢这本书。",
]
TEXT = "\n".join(LINES) + "\n"
RARE = "㐀𠀀𪚥𠮷䶵 很好，我们去公园。\n" + TEXT
GB_ALONE = LINES[0].encode("gbk") + b"\n"
ROWS = [(label, text) for label, text in toy.make_rows(40)]
TSV = "label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in ROWS)


@dataclass(frozen=True)
class Case:
    """One kind of bad input.

    Args:
        name: As it stands in the table.
        make: Writes the files into an empty folder; for a model, given the good ones that it is made from.
        words: The command line, run from that folder; `{pretrained}` and `{finetuned}` are good models.
    """

    name: str
    make: Callable[..., object]
    words: tuple[str, ...]


def _write(folder: Path, files: dict[str, bytes | str]):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def text(name: str, content, file: str = "a.txt", *more: str) -> Case:
    """Raw text, given to the verb `tokenizer`."""
    make = content if callable(content) else lambda folder: _write(folder, {file: content})
    return Case(name, make, ("tokenizer", "--train_files", file, "--output_dir", "out", *more))


def table(name: str, content, file: str = "a.tsv", *more: str) -> Case:
    """Labelled rows, given to the verb `finetune`."""
    make = content if callable(content) else lambda folder: _write(folder, {file: content})
    return Case(
        name, make, ("finetune", "--model", "{pretrained}", "--train_file", file, "--output_dir", "out", *more)
    )


def validated(name: str, content: bytes | str, training: str = TSV, *more: str) -> Case:
    """Labelled rows to score on, beside good ones to train on."""
    make = lambda folder: _write(folder, {"a.tsv": training, "b.tsv": content})  # noqa: E731
    return table(name, make, "a.tsv", "--validation_file", "b.tsv", *more)


def predicted(name: str, content, file: str = "a.txt") -> Case:
    """Texts, given to the verb `predict`."""
    make = content if callable(content) else lambda folder: _write(folder, {file: content})
    return Case(name, make, ("predict", "--model", "{finetuned}", "--input", file, "--output", "out.jsonl"))


def evaluated(name: str, content, file: str = "a.tsv") -> Case:
    """Labelled rows, given to the verb `evaluate`."""
    make = content if callable(content) else lambda folder: _write(folder, {file: content})
    words = ("evaluate", "--model", "{finetuned}", "--test_file", file, "--output_file", "out.json")
    return Case(name, make, words)


def jsonl(*rows) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def parquet(**columns) -> Callable[[Path], object]:
    return lambda folder: pq.write_table(pa.table(columns), folder / "a.parquet")


def _links(*links: tuple[str, str]) -> Callable[[Path], object]:
    def make(folder: Path):
        _write(folder, {"deep/a.txt": TEXT})
        for name, target in links:
            os.symlink(target, folder / name, target_is_directory=True)

    return make


LABELLED = [{"label": label, "text": content} for label, content in ROWS]
LISTED = [{"label": [label], "text": content} for label, content in ROWS]
NUMBERS = [{"label": float(index % 2), "text": content} for index, (_, content) in enumerate(ROWS)]
REGRESSION = ("--problem_type", "regression")
MULTI_LABEL = ("--problem_type", "multi_label_classification")

TEXTS = [
    # encodings
    text("UTF-8", TEXT),
    text("UTF-8 with a byte order mark", TEXT.encode("utf-8-sig")),
    text("byte order marks in the middle, of files put together", TEXT.encode("utf-8-sig") + RARE.encode("utf-8-sig")),
    text("GB18030", TEXT.encode("gb18030")),
    text("GB18030 with rare characters of four bytes", RARE.encode("gb18030")),
    text("GB18030 with its byte order mark", "\ufeff".encode("gb18030") + TEXT.encode("gb18030")),
    text("GB18030 cut in the middle of a character", TEXT.encode("gb18030") + "好".encode("gb18030")[:1]),
    text("Big5", ("我是一個學生，今天的天氣不好，他們在家中看書。" * 3).encode("big5")),
    text("Big5, named", ("我是一個學生，今天的天氣不好。\n" * 2).encode("big5"), "a.txt", "--encoding", "big5"),
    text("Latin-1", ("naïf maïs égoïste aïeul coïncider haïr laïc mosaïque héroïne ouïe" * 3).encode("latin-1")),
    text("EUC-KR", "안녕하세요. 이 책은 정말 재미있습니다. 나는 이 책을 다시 읽을 것이다.\n".encode("euc_kr") * 3),
    text("Shift JIS", "これは日本語の文章です。今日は天気がいい。\n".encode("shift_jis") * 3),
    text("UTF-16 with a byte order mark", TEXT.encode("utf-16")),
    text("UTF-16 LE without one", TEXT.encode("utf-16-le")),
    text("UTF-16 BE without one", TEXT.encode("utf-16-be")),
    text("UTF-16 cut in the middle of a character", TEXT.encode("utf-16")[:-1]),
    text("UTF-16 LE of ASCII alone", "hello world\nplain words\n".encode("utf-16-le")),
    text("UTF-32 with a byte order mark", TEXT.encode("utf-32")),
    text("UTF-32 LE without one", TEXT.encode("utf-32-le")),
    text("UTF-8, then GB18030", TEXT.encode() + TEXT.encode("gb18030")),
    text("GB18030, then UTF-8", TEXT.encode("gb18030") + TEXT.encode()),
    text(
        "one UTF-8 line among GB18030 that decodes as that too",
        GB_ALONE * 3 + "今天天气很好我们\n".encode() + GB_ALONE,
    ),
    text("UTF-8, then UTF-16", TEXT.encode() + TEXT.encode("utf-16-le")),
    text("UTF-8 cut in the middle of a character", TEXT.encode() + "好".encode()[:2]),
    text("UTF-8 with a byte gone", TEXT.encode().replace("公".encode(), "公".encode()[1:])),
    text("surrogates encoded as if they were characters", TEXT.encode() + "\ud83d".encode("utf-8", "surrogatepass")),
    text("an encoding that does not exist", TEXT, "a.txt", "--encoding", "utf-9"),
    text("an encoding that is not that of the file", TEXT, "a.txt", "--encoding", "ascii"),
    text("an encoding that is none of text", TEXT, "a.txt", "--encoding", "base64"),
    # characters
    text("NUL characters", TEXT + "a\0b\n"),
    text("NUL characters, the encoding named", TEXT + "a\0b\n", "a.txt", "--encoding", "utf-8"),
    text("control characters", TEXT + "a\x01b\x1b[31mred\x7f\tc\n\x02\n"),
    text("U+2028, U+2029 and U+0085", "a\u2028b\u2029c\x85d\n" + TEXT),
    text("vertical tabs and form feeds", "a\x0bb\x0cc\x1cd\n" + TEXT),
    text("unassigned characters and non-characters", "好\uffff\ufdd0\U0001fffe\u0378书\n" + TEXT),
    text("a hundred combining marks", TEXT + "e" + "\u0301" * 100 + "\n"),
    text("characters from right to left with their marks", TEXT + "\u202eمرحبا\u202c \u200fשלום\n"),
    # lines
    text("CR LF", TEXT.replace("\n", "\r\n")),
    text("CR alone", TEXT.replace("\n", "\r")),
    text("CR and LF mixed", "a\rb\r\nc\n\rd\n" + TEXT),
    text("no final newline", TEXT.rstrip()),
    text("blank lines", "\n\n" + TEXT.replace("\n", "\n \t\u3000\n") + "\n"),
    text("one line of 240 kB", TEXT + "很好的书" * 20_000),
    text("the same line a thousand times", TEXT * 1000),
    text("white space alone", " \n\t\n\u3000\n"),
    text("zero bytes", b""),
    text("a byte order mark alone", b"\xef\xbb\xbf"),
    text("newlines alone", "\n\n\n"),
    text("emoji alone", "😀👍🏽👨‍👩‍👧\n🦥🦥\n"),
    text("one character", "好"),
    text("spellings of special tokens", TEXT + "[MASK] 好 [SEP][CLS] [PAD]\n[UNK]\n"),
    # files
    text("a name that no file has", lambda folder: None),
    text("a glob that matches nothing", lambda folder: _write(folder, {"a.txt": TEXT}), "b*.txt"),
    text("a folder", lambda folder: (folder / "a.txt").mkdir()),
    text("a folder, named as such", lambda folder: (folder / "texts").mkdir(), "texts"),
    text("a link to itself", lambda folder: os.symlink("a.txt", folder / "a.txt")),
    text("a link to nothing", lambda folder: os.symlink("gone.txt", folder / "a.txt")),
    text("folders that hold links to themselves", _links(("deep/x", "."), ("deep/y", "..")), "**/*.txt"),
    text("a named pipe", lambda folder: os.mkfifo(folder / "a.txt")),
    Case(
        "the same file twice",
        lambda folder: _write(folder, {"a.txt": TEXT}),
        ("tokenizer", "--train_files", "a.txt", "./a.txt", "*.txt", "--output_dir", "out"),
    ),
    Case(
        "two files that hold the same text",
        lambda folder: _write(folder, {"a.txt": TEXT, "b.txt": TEXT.encode("gb18030")}),
        ("tokenizer", "--train_files", "a.txt", "b.txt", "--output_dir", "out"),
    ),
    text("no suffix", TEXT, "a"),
    text("an unknown suffix", TEXT, "a.docx"),
    text("a suffix in capitals", TEXT, "A.TXT"),
    text("gzip", gzip.compress(TEXT.encode("gb18030")), "a.txt.gz"),
    text("gzip cut off", gzip.compress(os.urandom(4000).hex().encode())[:-1000], "a.txt.gz"),
    text("gzip with its check sum wrong", gzip.compress(TEXT.encode())[:-8] + bytes(8), "a.txt.gz"),
    text("gzip with rubbish behind it", gzip.compress(TEXT.encode()) + b"rubbish", "a.txt.gz"),
    text("plain text called .gz", TEXT, "a.txt.gz"),
    text("gzip called .txt", gzip.compress(TEXT.encode())),
    text("gzip of nothing", gzip.compress(b""), "a.txt.gz"),
    text("gzip of gzip", gzip.compress(gzip.compress(TEXT.encode())), "a.txt.gz"),
    text("a picture", b"\x89PNG\r\n\x1a\n" + bytes(100)),
    text("random bytes", bytes(range(256)) * 8),
    text("a spreadsheet called .csv", b"PK\x03\x04" + bytes(50), "a.csv"),
    # tables and JSON as raw text
    text("CSV without the column", "label,Text\n1,好\n", "a.csv"),
    text("CSV whose cells hold newlines", 'label,text\n1,"好\n书"\n0,"他说""很好"""\n' + "1,再来\n", "a.csv"),
    text("CSV with a lone quote", 'label,text\n1,好\n0,"不好\n1,书\n', "a.csv"),
    text("JSON lines without the column in one", jsonl({"text": "好书"}, {"txt": "书"}), "a.jsonl"),
    text("JSON lines with null and numbers", jsonl({"text": "好书"}, {"text": None}, {"text": 3}), "a.jsonl"),
    text("JSON lines with null", jsonl({"text": "好书"}, {"text": None}, {"text": "再来"}), "a.jsonl"),
    text("JSON lines with half a surrogate pair", r'{"text": "好\ud83d书"}' + "\n" + jsonl({"text": "书"}), "a.jsonl"),
    text("JSON that is an object of lists", '{"text": ["好", "书"]}', "a.json"),
    text("JSON lines with a number of 5,000 digits", '{"text": "好", "n": ' + "9" * 5000 + "}", "a.jsonl"),
    text(
        "JSON with a number of 5,000 digits", '[{"text": "好"},\n {"text": "书", "n": ' + "9" * 5000 + "}]", "a.json"
    ),
    text("JSON nested 100,000 deep", '{"text": ' * 100_000, "a.jsonl"),
    text("Parquet with a nested column", parquet(text=[{"a": "好"}, {"a": "书"}]), "a.parquet"),
    text("Parquet with a column of lists", parquet(text=[["好"], ["书"]]), "a.parquet"),
    text("Parquet with bytes", parquet(text=pa.array(["好".encode()], pa.binary())), "a.parquet"),
    text("Parquet with numbers", parquet(text=[1.5, 2.0]), "a.parquet"),
    text("Parquet with a null", parquet(text=["好书", None, "再来"]), "a.parquet"),
    text("Parquet with categories", parquet(text=pa.array(["好书", "再来", "好书"]).dictionary_encode()), "a.parquet"),
    text("Parquet without rows", parquet(text=pa.array([], pa.string())), "a.parquet"),
    text("Parquet cut off", lambda folder: _cut_parquet(folder), "a.parquet"),
    text("text called .parquet", TEXT, "a.parquet"),
]


def _cut_parquet(folder: Path):
    parquet(text=LINES)(folder)
    path = folder / "a.parquet"
    path.write_bytes(path.read_bytes()[:-20])


TABLES = [
    table("good rows", TSV),
    table("a byte order mark in front of the header", TSV.encode("utf-8-sig")),
    table("GB18030", TSV.encode("gb18030")),
    table("UTF-16 with a byte order mark", TSV.encode("utf-16")),
    table("CR alone", TSV.replace("\n", "\r")),
    table("lone quotes in a .tsv", TSV + '好评\t"书喜欢\n差评\t5" 讨厌\n'),
    table("a lone quote in a .csv", TSV.replace("\t", ",") + '好评,"书喜欢\n差评,讨厌\n', "a.csv"),
    table("text behind a closing quote", TSV.replace("\t", ",") + '好评,"书" 喜欢\n', "a.csv"),
    table("a row with a cell too many", TSV + "好评\t书\t喜欢\n"),
    table("a row with a cell too few", TSV + "好评\n差评\t讨厌\n"),
    table("a row with a comma too many", TSV.replace("\t", ",") + "好评,书,喜欢\n", "a.csv"),
    table("blank lines between rows", TSV.replace("\n", "\n\n")),
    table("two columns of one name", TSV.replace("label\ttext", "text\ttext")),
    table("a header alone", "label\ttext\n"),
    table("a header alone, without a newline", "label\ttext"),
    table("no header", TSV.partition("\n")[2]),
    table("no such column", TSV, "a.tsv", "--text_column", "content"),
    table("a column in other case", TSV.replace("text", "Text")),
    table("commas in a .tsv", TSV.replace("\t", ",")),
    table("tabs in a .csv", TSV, "a.csv"),
    table("tables put together", TSV.encode("utf-8-sig") * 2),
    table("semicolons in a .csv", TSV.replace("\t", ";"), "a.csv"),
    table("zero bytes", b""),
    table("a text file", TSV, "a.txt"),
    table("a folder", lambda folder: (folder / "a.tsv").mkdir()),
    table("no such file", lambda folder: None),
    # labels
    table("numbers as labels", TSV.replace("好评", "1").replace("差评", "0")),
    table("numbers with points as labels", TSV.replace("好评", "1.0").replace("差评", "0.0")),
    table(
        "numbers of JSON as labels",
        jsonl(*({**row, "label": i % 2 * 1.0} for i, row in enumerate(LABELLED))),
        "a.json",
    ),
    table(
        "truth values as labels", jsonl(*({**row, "label": i % 2 == 1} for i, row in enumerate(LABELLED))), "a.jsonl"
    ),
    table("NaN as a label", TSV + "NaN\t书\n"),
    table("NaN of JSON as a label", jsonl(*LABELLED, {"label": float("nan"), "text": "书"}), "a.jsonl"),
    table("null as a label", jsonl(*LABELLED, {"label": None, "text": "书"}), "a.jsonl"),
    table("a row without a label", jsonl(*LABELLED, {"text": "书"}), "a.jsonl"),
    table("an empty label", TSV + "\t书\n"),
    table("a blank label", TSV + " \t书\n"),
    table("labels with spaces around them", TSV + " 好评 \t书\n"),
    table("a list as a label", jsonl(*LABELLED, {"label": ["好评"], "text": "书"}), "a.jsonl"),
    table("an object as a label", jsonl(*LABELLED, {"label": {"a": 1}, "text": "书"}), "a.jsonl"),
    table(
        "half a surrogate pair in a label", jsonl(*LABELLED) + r'{"label": "\ud83d", "text": "书"}' + "\n", "a.jsonl"
    ),
    table(
        "half a surrogate pair in a list of labels",
        jsonl(*LISTED) + r'{"label": ["\ud83d"], "text": "书"}',
        "a.jsonl",
        *MULTI_LABEL,
    ),
    table("a list in a list of labels", jsonl(*LISTED, {"label": [["a"]], "text": "书"}), "a.jsonl", *MULTI_LABEL),
    table("null in a list of labels", jsonl(*LISTED, {"label": [None], "text": "书"}), "a.jsonl", *MULTI_LABEL),
    table("empty labels between bars", TSV + "|好评||差评|\t书\n", "a.tsv", *MULTI_LABEL),
    table("no label at all, where several may apply", TSV + "\t书\n", "a.tsv", *MULTI_LABEL),
    table("one label", TSV.replace("差评", "好评")),
    table("a label of its own for every row", "label\ttext\n" + "".join(f"{i}.5\t第{i}本书\n" for i in range(200))),
    table("a thousand labels", "label\ttext\n" + "".join(f"L{i % 1000}\t第{i}本书\n" for i in range(2000))),
    table("two rows", "label\ttext\n好评\t喜欢\n差评\t讨厌\n"),
    table(
        "a label of many lines",
        'label,text\n"a\nb",喜欢\n好评,书\n' + TSV.partition("\n")[2].replace("\t", ","),
        "a.csv",
    ),
    *(
        table(
            f"{name}, for regression", jsonl(*NUMBERS) + f'{{"label": {value}, "text": "书"}}', "a.jsonl", *REGRESSION
        )
        for name, value in (
            ("words as a label", '"好"'),
            ("an empty label", '""'),
            ("NaN as a label", '"nan"'),
            ("infinity as a label", "1e999"),
            ("a number with a comma", '"1,5"'),
            ("a number of 400 digits", "1" + "0" * 400),
            ("a list as a label", "[1.5]"),
        )
    ),
    table("one number, for regression", "label\ttext\n" + "2\t书\n" * 9, "a.tsv", *REGRESSION),
    # texts
    table("zero-length texts", TSV + "好评\t\n差评\t\n"),
    table("texts of white space", TSV + "好评\t \n差评\t\u3000\n"),
    table(
        "texts of characters that the tokenizer does not know",
        "label\ttext\n" + "".join(f"{i % 2}\t{chr(0x9F98) * (1 + i)}\n" for i in range(20)),
    ),
    table("blank texts alone", "label\ttext\n好评\t\n差评\t \n"),
    table("a null among texts", jsonl(*LABELLED, {"label": "好评", "text": None}), "a.jsonl"),
    table("a number among texts", jsonl(*LABELLED, {"label": "好评", "text": 3}), "a.jsonl"),
    table("a list among texts", jsonl(*LABELLED, {"label": "好评", "text": ["书"]}), "a.jsonl"),
    table(
        "a broken line among JSON lines",
        jsonl(*LABELLED[:9]) + '{"label": "好评", "text": \n' + jsonl(*LABELLED),
        "a.jsonl",
    ),
    table("a list among JSON lines", jsonl(*LABELLED[:9]) + '["好评"]\n', "a.jsonl"),
    table(
        "JSON with a comma missing", json.dumps(LABELLED, ensure_ascii=False, indent=0).replace("},", "}", 1), "a.json"
    ),
    table("JSON cut off", json.dumps(LABELLED, ensure_ascii=False)[:-5], "a.json"),
    table("JSON that is a list of strings", '["好", "书"]', "a.json"),
    table("JSON that is an empty list", "[]", "a.json"),
    table("a key twice in a row", jsonl(*LABELLED) + '{"label": "好评", "text": "a", "text": "b"}\n', "a.jsonl"),
    table("Parquet with bytes", parquet(label=["a", "b"], text=pa.array([b"x", b"\xff"], pa.binary())), "a.parquet"),
    table(
        "Parquet with bytes as labels",
        parquet(label=pa.array([b"x", b"y"], pa.binary()), text=["书", "店"]),
        "a.parquet",
    ),
    table("Parquet with a nested column", parquet(label=["a", "b"], text=[{"x": "书"}, {"x": "店"}]), "a.parquet"),
    table("Parquet with a NaN label", parquet(label=[1.0, float("nan")], text=["书", "店"]), "a.parquet"),
    table(
        "a second text that is missing",
        jsonl(*({**row, "other": "书"} for row in LABELLED), LABELLED[0]),
        "a.jsonl",
        "--text_pair_column",
        "other",
    ),
    # validation
    validated("validation rows with new labels", "label\ttext\n好评\t喜欢\n中评\t书\n"),
    validated("validation rows that are the training rows", TSV),
    validated("validation rows with another separator", TSV.replace("\t", ",")),
    validated("validation rows with a blank text", "label\ttext\n好评\t\n差评\t讨厌\n"),
    validated("validation rows in another encoding", TSV.encode("gb18030")),
    Case(
        "validation file that is the training file",
        lambda folder: _write(folder, {"a.tsv": TSV}),
        (
            "finetune",
            "--model",
            "{pretrained}",
            "--train_file",
            "a.tsv",
            "--validation_file",
            "./a.tsv",
            "--output_dir",
            "out",
        ),
    ),
    # files to answer for and to score on
    predicted("texts that are blank", "喜欢\n\n \n讨厌\n"),
    predicted("texts of emoji alone", "😀👍🏽\n"),
    predicted("spellings of special tokens", "书[MASK]店\n[SEP][SEP]\n[PAD]\n"),
    predicted("a text of 100,000 characters", "书" * 100_000),
    predicted("zero bytes", b""),
    predicted("one blank line", "\n"),
    predicted("UTF-8, then GB18030", TEXT.encode() + TEXT.encode("gb18030")),
    predicted("a table without the column", "label\tcontent\n1\t书\n", "a.tsv"),
    predicted("a broken last row", "text\tlabel\n" + "书\t1\n" * 300 + "书\n", "a.tsv"),
    predicted("half a surrogate pair", r'{"text": "书\ud83d"}' + "\n", "a.jsonl"),
    predicted("a folder", lambda folder: (folder / "a.txt").mkdir()),
    evaluated("labels that the model does not know", TSV.replace("差评", "中评")),
    evaluated("an empty label", TSV + "\t书\n"),
    evaluated("no such column", TSV.replace("text", "content")),
    evaluated("zero bytes", b""),
    evaluated("one label", TSV.replace("差评", "好评")),
]
