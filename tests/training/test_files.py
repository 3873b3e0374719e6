"""Files are written as bytes, so that no default encoding or newline of the machine has a say."""

import csv
import errno
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training.errors import UserError
from training.files import TextFile, expand_files, read_documents, read_rows, require_columns


LINES = ["今天天气很好，我们去公园。", "hello world", "㐀𠀀𪚥 rare ideographs, 😀 and ｆｕｌｌ width"]


@pytest.fixture
def write(tmp_path):
    """Writes bytes under a name and gives the path."""

    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def texts(path, column="text", encoding=None) -> list:
    return [text for _, text in read_documents(path, column, encoding)]


def fault(call, *arguments, **keywords) -> str:
    """The message of the `UserError` that a call, or running through what it gives, ends in: one line."""
    with pytest.raises(UserError) as caught:
        list(call(*arguments, **keywords))
    message = str(caught.value)
    assert "\n" not in message
    return message


# Encodings


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("\n".join(LINES).encode("utf-8"), "utf-8"),
        (b"\xef\xbb\xbf" + "\n".join(LINES).encode("utf-8"), "utf-8"),
        (b"\xff\xfe" + "\n".join(LINES).encode("utf-16-le"), "utf-16"),
        (b"\xfe\xff" + "\n".join(LINES).encode("utf-16-be"), "utf-16"),
        ("\n".join(LINES).encode("utf-16-le"), "utf-16-le"),
        ("\n".join(LINES).encode("utf-16-be"), "utf-16-be"),
        (b"\xff\xfe\x00\x00" + "\n".join(LINES).encode("utf-32-le"), "utf-32"),
        ("\n".join(LINES).encode("gb18030"), "gb18030"),
        (b"\x84\x31\x95\x33" + "\n".join(LINES).encode("gb18030"), "gb18030"),
    ],
)
def test_encoding_is_recognised(write, content, encoding):
    path = write("a.txt", content)
    assert TextFile(path).encoding == encoding
    assert texts(path) == LINES


def test_gbk_is_read_as_its_superset(write):
    assert texts(write("a.txt", "繁體字與简体字\n第二行".encode("gbk"))) == ["繁體字與简体字", "第二行"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16", "utf-16-le"])
def test_encoding_can_be_asked_for(write, encoding):
    content = "\n".join(LINES).encode(encoding)
    assert texts(write("a.txt", content), encoding=encoding) == LINES


def test_utf16_asked_for_is_read_without_its_mark(write):
    assert texts(write("a.txt", "\n".join(LINES).encode("utf-16-be")), encoding="utf-16") == LINES


def test_byte_order_mark_goes_whatever_the_encoding_is_called(write):
    assert texts(write("a.txt", "\ufeff你好".encode("utf-16-le")), encoding="utf-16-le") == ["你好"]
    assert texts(write("b.txt", "\ufeff你好".encode()), encoding="utf8") == ["你好"]


def test_characters_across_chunk_borders_are_whole(write, monkeypatch):
    monkeypatch.setattr("training.files.CHUNK_BYTES", 5)
    for name, encoding in (("a.txt", "utf-8"), ("b.txt", "gb18030"), ("c.txt", "utf-16")):
        assert texts(write(name, "\n".join(LINES).encode(encoding))) == LINES


def test_damaged_utf8_is_not_taken_for_gb18030(write):
    content = ("好" * 20 + "\n" + "好" * 20).encode() + b"\xe5\xa5\n"
    broken = content.index(b"\xe5\xa5\n")
    message = fault(read_documents, write("a.txt", content))
    assert f"a.txt:2: byte {broken} is not valid utf-8" in message
    assert "--encoding" in message


def test_bytes_in_no_known_encoding_name_both_places(write):
    message = fault(read_documents, write("a.txt", b"one\ntwo \xff\xff\nthree"))
    assert "a.txt:2: byte 8 is not valid utf-8, and byte 8 (line 2) not valid gb18030" in message
    assert "--encoding" in message


def test_damage_behind_the_first_chunk_is_found_before_the_first_row(write, monkeypatch):
    monkeypatch.setattr("training.files.CHUNK_BYTES", 7)
    path = write("a.txt", b"abcdef\n" * 10 + b"\xff")
    with pytest.raises(UserError, match=r"a.txt:11: byte 70 "):
        read_documents(path)


def test_damage_under_the_encoding_asked_for_is_named(write):
    message = fault(read_documents, write("a.txt", "a\n中文".encode()), encoding="ascii")
    assert "a.txt:2: byte 2 is not valid ascii" in message


def test_latin1_and_big5_are_not_taken_for_gb18030(write):
    french = "naïf maïs égoïste aïeul coïncider haïr laïc mosaïque héroïne ouïe" * 3
    big5 = "我是一個學生，今天的天氣不好，他們在家中看書。" * 3
    for name, text, encoding in (("a.txt", french, "latin-1"), ("b.txt", big5, "big5")):
        content = text.encode(encoding)
        content.decode("gb18030")  # the premise: valid, and rubbish
        assert f"may be {encoding}" in fault(read_documents, write(name, content))
        assert texts(write(name, content), encoding=encoding) == [text]


def test_gb18030_lines_that_are_valid_utf8_by_chance_are_gb18030(write):
    assert "谢谢".encode("gb18030").decode("utf-8") == "лл"  # the premise
    assert texts(write("a.txt", "谢谢\n很好，谢谢大家\n谢谢".encode("gb18030"))) == ["谢谢", "很好，谢谢大家", "谢谢"]


def test_a_utf8_line_among_gb18030_is_named_with_its_offset(write):
    gb, utf8 = "很好，书店\n".encode("gb18030"), "今天天气很好我们\n".encode()
    (gb + utf8).decode("gb18030")  # the premise: valid, and rubbish
    assert f"a.txt:3: this line, from byte {2 * len(gb)} on, is utf-8" in fault(
        read_documents, write("a.txt", gb * 2 + utf8)
    )


def test_unknown_encoding_is_one_line(write):
    for name in ("no-such", "hex"):
        assert f"unknown encoding '{name}'" in fault(read_documents, write("a.txt", b"a"), encoding=name)


def test_locale_has_no_say(write):
    path = write("a.csv", "label,text\n1,好\n".encode())
    program = f"from training.files import read_rows; print(ascii(list(read_rows({str(path)!r}))))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=root, check=True, capture_output=True)
    assert done.stdout.decode("ascii").strip() == ascii([(2, {"label": "1", "text": "好"})])


# Documents


def test_documents_end_at_newlines_only(write):
    kin = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    assert len(kin.splitlines()) == 7  # the premise
    assert list(read_documents(write("a.txt", f"{kin}\nzwei\r\ndrei".encode()))) == [
        (1, kin),
        (2, "zwei"),
        (3, "drei"),
    ]


def test_lone_returns_end_documents_only_where_there_are_no_newlines(write):
    assert texts(write("mac.txt", b"one\rtwo\rthree\r")) == ["one", "two", "three"]
    assert texts(write("mixed.txt", b"one\rstill one\ntwo\r\n")) == ["one\rstill one", "two"]


def test_blank_documents_keep_their_line_numbers(write):
    assert list(read_documents(write("a.txt", b"\none\n\n two \n"))) == [(1, ""), (2, "one"), (3, ""), (4, " two ")]


def test_gzip_is_read(write):
    assert texts(write("a.txt.gz", gzip.compress("\n".join(LINES).encode("gb18030")))) == LINES


# Tables


ROWS = [{"label": "1", "text": "很好，很满意"}, {"label": "0", "text": "差"}]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("suffix", "content", "numbers"),
    [
        (".csv", '\ufefflabel,text\r\n1,"很好，很满意"\r\n0,差\r\n', [2, 3]),
        (".tsv", "\ufefflabel\ttext\n1\t很好，很满意\n\n0\t差", [2, 4]),
        (".jsonl", "\n".join(json.dumps(row) for row in ROWS) + "\n", [1, 2]),
        (".json", "\ufeff" + "\n\n".join(json.dumps(row) for row in ROWS), [1, 3]),
        (".json", json.dumps(ROWS, ensure_ascii=False, indent=1), [2, 6]),
        (".jsonl", json.dumps(ROWS), [1, 1]),
    ],
)
def test_tables_give_rows_with_their_lines(write, suffix, content, numbers, zipped):
    content = content.encode()
    path = write(f"a{suffix}.gz", gzip.compress(content)) if zipped else write(f"a{suffix}", content)
    assert list(read_rows(path)) == list(zip(numbers, ROWS, strict=True))
    assert list(read_documents(path)) == [(n, row["text"]) for n, row in zip(numbers, ROWS, strict=True)]


def test_parquet_gives_rows_with_their_numbers(tmp_path):
    pq.write_table(pa.Table.from_pylist([*ROWS, {"label": "1", "text": None}]), tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet"))[:2] == [(1, ROWS[0]), (2, ROWS[1])]
    assert list(read_documents(tmp_path / "a.parquet"))[2] == (3, None)


def test_parquet_reads_only_the_columns_asked_for(tmp_path):
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert list(read_rows(tmp_path / "a.parquet", columns=["text"])) == [
        (1, {"text": ROWS[0]["text"]}),
        (2, {"text": "差"}),
    ]


def test_csv_follows_the_rules_of_quotes(write):
    path = write("a.csv", b'text,label\r\n"say ""hi"",\nthen go",1\r\n5" screen,0\r\n')
    assert list(read_rows(path)) == [
        (2, {"text": 'say "hi",\nthen go', "label": "1"}),
        (4, {"text": '5" screen', "label": "0"}),
    ]


def test_lone_quote_in_a_tsv_swallows_no_row(write):
    path = write("a.tsv", b'label\ttext\n1\t"never closed\n0\tplain\n1\tin "the" middle"\n0\t"\n')
    assert [row["text"] for _, row in read_rows(path)] == ['"never closed', "plain", 'in "the" middle"', '"']


def test_lone_quote_in_a_csv_is_named_where_it_stands(write):
    message = fault(read_rows, write("a.csv", b'label,text\n1,fine\n1,"never closed\n0,plain\n0,plain\n'))
    assert "a.csv:3" in message and "lone quote" in message
    assert "a.csv:2" in fault(read_rows, write("a.csv", b'label,text\n1,"never closed\n0,plain\n1,"x"\n'))


def test_long_csv_cells_are_read(write):
    assert texts(write("a.csv", b"text\n" + b"x" * 200_000 + b"\n")) == ["x" * 200_000]


def test_csv_cell_beyond_any_text_is_named(write, monkeypatch):
    monkeypatch.setattr("training.files.CSV_FIELD_LIMIT", 1000)
    before = csv.field_size_limit(1000)
    try:
        assert "a.csv:2" in fault(read_rows, write("a.csv", b'text\n"' + b"x\n" * 2000 + b'"\n'))
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.tsv", b"label\ttext\n1\tone\n0\n", "a.tsv:3: the row has 1 columns, the header 2"),
        ("a.tsv", b"label\ttext\n1\tone\ttwo\n", "a.tsv:2: the row has 3 columns, the header 2"),
        ("a.csv", b'label,text\n1,"o\nne"\n0,a,b\n', "a.csv:4: the row has 3 columns, the header 2"),
        ("a.csv", b"text,text\n1,2\n", "a.csv: two columns are called 'text'"),
        ("a.tsv", b"text\ta\ttext\n1\t2\t3\n", "a.tsv: two columns are called 'text'"),
        ("a.jsonl", b'{"text": "a"}\n{"text": \n', "a.jsonl:2: not valid JSON"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', "a.jsonl:2: a row must be a JSON object, not list"),
        ("a.json", b'[{"text": "a"},\n {"text": "b"}\n {"text": "c"}]', "a.json:3: not valid JSON (a ',' or ']'"),
        ("a.json", b'[{"text": "a"},\n {"text": "b"}', "a.json:2: not valid JSON"),
        ("a.json", b'[{"text": "a"}]\n[]', "a.json:2: not valid JSON (more after the array"),
        ("a.json", b'[{"text": "a"},\n3]', "a.json:2: a row must be a JSON object, not int"),
        ("a.json", b'{\n"rows": []}', "a.json:1: not valid JSON"),
        ("a.json", b"[" * 100_000, "a.json:1: JSON nested too deeply"),
        ("a.jsonl", b'{"text": "a"}\n{"txt": "b"}\n', "a.jsonl:2 has no column 'text' (did you mean 'txt'?)"),
        ("a.csv", b"label,text\n", "a.csv has no rows"),
        ("a.json", b"[]", "a.json has no rows"),
        ("a.jsonl", b" \n", "a.jsonl has no rows"),
    ],
)
def test_broken_tables_name_the_place(write, name, content, place):
    assert place in fault(read_documents, write(name, content))


def test_column_that_is_missing_names_those_found_and_the_nearest(write):
    for name, content in (("a.tsv", b"label\ttext_a\n1\tx\n"), ("a.csv", b"label,Text_A\n1,x\n")):
        path = write(name, content)
        with pytest.raises(
            UserError, match=r"has no column 'text' \(did you mean '(text_a|Text_A)'\?\); it has 'label'"
        ):
            read_rows(path, columns=["text"])  # at once, before the first row is asked for
    require_columns("a.csv", ["text"], ["label", "text"])


def test_missing_column_of_parquet_is_named(tmp_path):
    pq.write_table(pa.table({"texts": ["a"]}), tmp_path / "a.parquet")
    assert "did you mean 'texts'?" in fault(read_documents, tmp_path / "a.parquet")


def test_text_that_is_no_text_names_the_row(write, tmp_path):
    assert "a.jsonl:2: column 'text' holds int" in fault(
        read_documents, write("a.jsonl", b'{"text": "a"}\n{"text": 3}')
    )
    pq.write_table(pa.table({"text": [["a"], ["b"]]}), tmp_path / "a.parquet")
    assert "a.parquet row 1: column 'text' holds list" in fault(read_documents, tmp_path / "a.parquet")


def test_half_a_surrogate_pair_becomes_a_replacement_character(write):
    (_, row), *_ = read_rows(write("a.jsonl", rb'{"text": "a\ud83d b\ud83d\ude00"}'))
    assert row["text"] == "a\ufffd b😀"


# What is no text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"\x89PNG\r\n\x1a\n123"),
        ("a.csv", b"PK\x03\x04whatever"),
        ("a.txt", gzip.compress(b"text")),
        ("a.txt.gz", gzip.compress(gzip.compress(b"text"))),
        ("a.tsv", b"PAR1xxxxPAR1"),
        ("a.txt", b"some ASCII\0\0and NUL"),
        ("a.txt", "中文\n中\0文".encode()),
        ("a.txt", bytes(range(256)) * 40),
        ("a.txt", b"plain\n" * 20_000 + b"\0"),
    ],
)
def test_binary_files_are_refused(write, name, content):
    assert "looks binary" in fault(read_documents, write(name, content))


def test_nul_characters_are_text_where_the_encoding_is_given(write):
    assert texts(write("a.txt", b"a\0b\nc"), encoding="utf-8") == ["a\0b", "c"]


def test_broken_gzip_is_named(write):
    whole = gzip.compress(os.urandom(5000).hex().encode())
    assert "cut off" in fault(read_documents, write("a.txt.gz", whole[:-100]))
    assert "not gzip" in fault(read_documents, write("a.txt.gz", b"plain text"))
    assert "damaged" in fault(read_documents, write("a.txt.gz", whole[:200] + bytes(50) + whole[250:]))


def test_broken_parquet_is_named(write):
    assert "no Parquet file" in fault(read_documents, write("a.parquet", b"text"))


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_empty_files_are_named(write, content):
    assert "a.txt is empty" in fault(read_documents, write("a.txt", content))
    assert "a.csv.gz is empty" in fault(read_documents, write("a.csv.gz", gzip.compress(content)))


def test_missing_files_and_folders_are_named(tmp_path):
    assert "no such file" in fault(read_documents, tmp_path / "none.txt")
    (tmp_path / "folder.txt").mkdir()
    assert "is a folder" in fault(read_documents, tmp_path / "folder.txt")


def test_unreadable_file_is_named(write, monkeypatch):
    path = write("a.txt", b"text")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert "a.txt: Permission denied" in fault(read_documents, path)


@pytest.mark.parametrize("name", ["a.docx", "a", "a.gz", "a.parquet.gz"])
def test_unknown_kinds_list_the_known(write, name):
    path = write(name, gzip.compress(b"text") if name.endswith(".gz") else b"text")
    assert "use .txt, .csv, .tsv, .json" in fault(read_documents, path)
    assert "use .txt, .csv, .tsv, .json" in fault(expand_files, [str(path)])


def test_rows_of_a_text_file_are_refused(write):
    assert "is no table" in fault(read_rows, write("a.txt", b"text"))


# Names of files


def test_globs_are_sorted_and_each_file_comes_once(write, tmp_path, caplog):
    for name in ("b.txt", "a.txt", "c.TXT", "[x].txt"):
        write(name, b"text")
    (tmp_path / "d.txt").mkdir()
    names = [str(tmp_path / "b.txt"), str(tmp_path / "*.*"), str(tmp_path / "[[]x].txt")]
    assert [path.name for path in expand_files(names)] == ["b.txt", "[x].txt", "a.txt", "c.TXT"]
    assert caplog.text.count("is read once") == 2
    assert [path.name for path in expand_files([str(tmp_path / "[x].txt")])] == ["[x].txt"]


def test_a_folder_whose_name_holds_brackets_stands_for_itself(tmp_path):
    folder = tmp_path / "评论[1] 新"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"a")
    assert expand_files([str(folder / "*.txt")]) == [folder / "a.txt"]
    assert expand_files([str(tmp_path / "*" / "*.txt")]) == [folder / "a.txt"]


def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)  # modes do not bind a superuser
    for name in ("a.txt", "*.txt"):
        assert fault(expand_files, [f"closed/{name}"]) == f"cannot read closed/{name}: Permission denied"


def test_hidden_files_are_found_only_where_the_pattern_asks(write, tmp_path):
    for name in ("a.txt", ".b.txt", ".c/d.txt", "e/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(name, b"text")
    found = [str(path.relative_to(tmp_path)) for path in expand_files([str(tmp_path / "**" / "*.txt")])]
    assert found == ["a.txt", os.path.join("e", "f.txt")]
    assert [path.name for path in expand_files([str(tmp_path / ".*.txt")])] == [".b.txt"]


def test_links_in_a_circle_end(write, tmp_path):
    write("a.txt", b"text")
    for name in ("x", "y", "z"):
        (tmp_path / name).symlink_to(tmp_path, target_is_directory=True)
    assert expand_files([str(tmp_path / "**" / "*.txt")]) == [tmp_path / "a.txt"]


def test_names_that_match_nothing_are_refused(tmp_path):
    (tmp_path / "d.txt").mkdir()
    assert "no file matches" in fault(expand_files, [str(tmp_path / "*.txt")])
    assert "no such file" in fault(expand_files, [str(tmp_path / "none.txt")])
    assert "is a folder" in fault(expand_files, [str(tmp_path)])
