import gzip
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from training.corpus import clean_text, load_corpus, split_corpus
from training.errors import UserError


@pytest.fixture
def write(tmp_path):
    """Writes bytes under a name and gives the path as text."""

    def write(name: str, content: bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return str(path)

    return write


@pytest.fixture
def documents():
    return datasets.Dataset.from_dict({"text": [f"第{number}篇" for number in range(3000)]})


def fault(call, *arguments, **keywords) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments, **keywords)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_files_of_every_kind_become_one_column_in_order(write, tmp_path):
    names = [
        write("a.txt", "一\n二\n".encode("gb18030")),
        write("b.txt.gz", gzip.compress("三\r\n".encode())),
        write("c.csv", '\ufefftext,label\n"四",1\n'.encode()),
        write("d.tsv", 'label\ttext\n1\t"五\n0\t六\n'.encode()),
        write("e.jsonl", '{"text": "七"}\n'.encode()),
        write("f.json", '[{"text": "八"}]'.encode("utf-16")),
        str(tmp_path / "g.parquet"),
    ]
    pq.write_table(pa.table({"text": ["九"]}), names[-1])
    dataset, report = load_corpus(names)
    assert dataset.column_names == ["text"]
    assert dataset["text"][:] == ["一", "二", "三", "四", '"五', "六", "七", "八", "九"]
    assert [(file.name, file.encoding, file.documents) for file in report.files] == [
        ("a.txt", "gb18030", 2),
        ("b.txt.gz", "utf-8", 1),
        ("c.csv", "utf-8", 1),
        ("d.tsv", "utf-8", 2),
        ("e.jsonl", "utf-8", 1),
        ("f.json", "utf-16", 1),
        ("g.parquet", None, 1),
    ]
    assert report.lines() == [
        "read 7 files: 9 documents, 10 characters",
        "dropped: nothing",
        "a.txt was recognised as gb18030; --encoding names another",
        "f.json was recognised as utf-16; --encoding names another",
    ]


def test_blank_missing_and_repeated_documents_are_dropped_and_counted(write):
    first = write("a.txt", "一\n\n \u3000\n一\n 一\t\n二\n".encode())
    second = write("b.jsonl", '{"text": "二"}\n{"text": null}\n{"text": "三"}'.encode())
    dataset, report = load_corpus([first, second])
    assert dataset["text"][:] == ["一", "二", "三"]
    assert report.dropped == {"blank": 2, "without a value": 1, "exact duplicates": 3}
    assert report.lines()[1] == "dropped: 2 blank, 1 without a value, 3 exact duplicates"
    assert (report.documents, report.characters) == (3, 3)


def test_every_document_is_kept_or_counted(write):
    lines = [f"{number % 700}" if number % 10 else "" for number in range(5000)]
    dataset, report = load_corpus([write("a.txt", "\n".join(lines).encode())])
    assert len(dataset) == report.documents == len({line for line in lines if line})
    assert report.documents + sum(report.dropped.values()) == 5000
    assert report.characters == sum(map(len, dataset["text"]))


def test_chunks_join_without_loss(write, monkeypatch):
    monkeypatch.setattr("training.corpus.CHUNK_CHARACTERS", 10)
    lines = [f"第{number}行" for number in range(100)]
    dataset, _ = load_corpus([write("a.txt", "\n".join(lines).encode())])
    assert dataset.data.column("text").num_chunks > 10
    assert dataset["text"][:] == lines


@pytest.mark.parametrize(
    ("raw", "clean", "changed"),
    [
        ("  你好\u3000", "你好", 0),
        ("a\tb", "a b", 1),
        ("a\r\nb\nc", "a b c", 2),
        ("\0a\x01b\x7fc\x9f", "abc", 4),
        ("\x01 a", "a", 1),
        ("Ａ\u2028é e\u0301 １２　你", "Ａ\u2028é e\u0301 １２　你", 0),
    ],
)
def test_cleaning_takes_out_control_characters_and_leaves_unicode_as_written(raw, clean, changed):
    assert clean_text(raw) == (clean, changed)


def test_control_characters_are_reported(write):
    dataset, report = load_corpus([write("a.txt", b"a\tb\nc\x01d\n")])
    assert dataset["text"][:] == ["a b", "cd"]
    assert report.control_characters == 2
    assert "taken out or made a space: 2 control characters" in report.lines()


def test_report_as_json_names_no_folder(write, tmp_path):
    _, report = load_corpus([write("a.txt", "一".encode())])
    text = json.dumps(report.to_dict())
    assert str(tmp_path) not in text
    assert json.loads(text)["files"] == [{"name": "a.txt", "encoding": "utf-8", "recognised": True, "documents": 1}]
    assert report.lines()[0] == "read a.txt: 1 documents, 1 characters"


def test_changed_file_gives_its_new_text_and_another_fingerprint(write):
    old, old_report = load_corpus([write("a.txt", b"old one")])
    again, again_report = load_corpus([write("a.txt", b"old one")])
    new, new_report = load_corpus([write("a.txt", b"new one")])
    assert new["text"][:] == ["new one"]
    assert old_report.fingerprint == again_report.fingerprint != new_report.fingerprint
    assert old._fingerprint == again._fingerprint != new._fingerprint


def test_saved_dataset_is_read_from_its_folder(tmp_path):
    saved = datasets.Dataset.from_dict({"body": ["一", None, "二", "一"]})
    saved.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=saved).save_to_disk(tmp_path / "many")
    datasets.DatasetDict(test=saved).save_to_disk(tmp_path / "other")
    for name in ("one", "many"):
        dataset, report = load_corpus(dataset=str(tmp_path / name), text_column="body")
        assert dataset["text"][:] == ["一", "二"]
        assert report.dropped == {"blank": 0, "without a value": 1, "exact duplicates": 1}
        assert [file.name for file in report.files] == [name]
    assert "no split 'train'; it has test" in fault(load_corpus, dataset=str(tmp_path / "other"), text_column="body")
    assert "did you mean 'body'?" in fault(load_corpus, dataset=str(tmp_path / "one"), text_column="bdy")


def test_dataset_on_the_hub_is_asked_for_its_training_split(monkeypatch):
    def load_dataset(name, split):
        assert (name, split) == ("owner/name", "train")
        return datasets.Dataset.from_dict({"text": ["一"]})

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    dataset, report = load_corpus(dataset="owner/name")
    assert dataset["text"][:] == ["一"]
    assert report.files[0].name == "owner/name"


@pytest.mark.parametrize("error", [ConnectionError, datasets.exceptions.DatasetNotFoundError, ValueError])
def test_dataset_that_cannot_be_loaded_is_one_line(monkeypatch, error):
    def load_dataset(name, split):
        raise error("no such\nthing")

    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    assert "cannot load the dataset owner/name: no such thing" in fault(load_corpus, dataset="owner/name")


def test_a_folder_of_data_is_read_without_a_word_from_the_library(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    datasets.Dataset.from_dict({"text": ["一", "二"]}).to_parquet(tmp_path / "good" / "a.parquet")
    (tmp_path / "bad" / "a.parquet").write_bytes(b"no parquet")
    datasets.enable_progress_bars()  # the premise, whatever ran before
    capfd.readouterr()
    dataset, _ = load_corpus(dataset=str(tmp_path / "good"))
    assert dataset["text"][:] == ["一", "二"]
    assert "cannot load the dataset" in fault(load_corpus, dataset=str(tmp_path / "bad"))
    assert capfd.readouterr().err == ""


def test_an_encoding_for_a_dataset_is_refused():
    assert "--encoding is for --train_files" in fault(load_corpus, dataset="owner/name", encoding="gbk")


def test_numbers_in_place_of_text_name_the_row(tmp_path):
    datasets.Dataset.from_dict({"text": [1, 2]}).save_to_disk(tmp_path / "d")
    assert "row 1: column 'text' holds int" in fault(load_corpus, dataset=str(tmp_path / "d"))


def test_one_source_must_be_given(write):
    assert "either --train_files or --dataset" in fault(load_corpus)
    assert "not both" in fault(load_corpus, [write("a.txt", b"a")], "owner/name")
    assert "give it as --train_files" in fault(load_corpus, dataset=write("a.txt", b"a"))


def test_corpus_without_text_is_refused(write):
    assert "no text left" in fault(load_corpus, [write("a.txt", b"\n \n\x01\n")])


def test_fault_in_the_last_file_shows_before_the_first_is_read(write, monkeypatch):
    monkeypatch.setattr("training.corpus._Corpus.add", lambda *_: pytest.fail("read before all files were checked"))
    names = [write("a.tsv", b"text\nx\n"), write("b.tsv", b"txt\nx\n")]
    assert "b.tsv has no column 'text' (did you mean 'txt'?)" in fault(load_corpus, names)


def test_file_matched_twice_is_read_once(write):
    name = write("a.txt", b"one\n")
    _, report = load_corpus([name, str(Path(name).with_name("*.txt"))])
    assert report.dropped["exact duplicates"] == 0
    assert len(report.files) == 1


# Split


def test_split_is_disjoint_whole_and_about_the_share_asked_for(documents):
    split = split_corpus(documents, held_out_share=0.1)
    train, held_out = split["train"]["text"][:], split["held_out"]["text"][:]
    assert not set(train) & set(held_out)
    assert set(train) | set(held_out) == set(documents["text"])
    assert 200 < len(held_out) < 400  # 300 expected, standard deviation 16


def test_split_hangs_on_seed_and_document_and_not_on_order_or_neighbours(documents):
    held_out = set(split_corpus(documents, 0.1)["held_out"]["text"])
    assert set(split_corpus(documents.shuffle(seed=1), 0.1)["held_out"]["text"]) == held_out
    half = documents.select(range(1500))
    assert set(split_corpus(half, 0.1)["held_out"]["text"]) == held_out & set(half["text"])
    assert set(split_corpus(documents, 0.1, seed=1)["held_out"]["text"]) != held_out


def test_split_holds_at_most_the_limit(documents):
    assert len(split_corpus(documents, 0.9)["held_out"]) == 2000
    assert len(split_corpus(documents, 0.9, max_held_out=10)["held_out"]) == 10


@pytest.mark.parametrize("share", [1e-9, 0.5, 1 - 1e-9])
def test_two_documents_go_one_to_each_side(share):
    split = split_corpus(datasets.Dataset.from_dict({"text": ["一", "二"]}), share)
    assert (len(split["train"]), len(split["held_out"])) == (1, 1)


def test_equal_texts_go_to_one_side():
    split = split_corpus(datasets.Dataset.from_dict({"text": ["一", "二", "三"] * 5}), 0.5)
    assert not set(split["train"]["text"]) & set(split["held_out"]["text"])


def test_what_cannot_be_split_is_refused(documents):
    for texts in ([], ["一"], ["一", "一"]):
        dataset = datasets.Dataset.from_dict(
            {"text": texts}, features=datasets.Features(text=datasets.Value("string"))
        )
        assert "cannot be split" in fault(split_corpus, dataset)
    for share in (0, 1, -0.1, 2):
        assert "between 0 and 1" in fault(split_corpus, documents, share)
