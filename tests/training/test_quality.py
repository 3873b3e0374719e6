import gzip
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.training.conftest import make_sentences
from training import quality, quality_rows
from training.__main__ import main as carry_out
from training.next_command import as_words


def right(*values):
    return {"right": list(values), "of": [1] * len(values)}


def test_lead_is_that_of_the_mean_over_runs_with_a_paired_interval():
    runs = [
        {"model": right(*[1, 1, 1, 0] * 50), "encoder": right(*[1, 0, 1, 0] * 50)},
        {"model": right(*[1, 1, 1, 1] * 50), "encoder": right(*[1, 1, 1, 0] * 50)},
    ]

    compared = quality_rows.compare(runs, right(*[1, 1, 0, 0] * 50))

    assert compared["model"] == [75.0, 100.0]
    assert compared["encoder"] == [50.0, 75.0]
    assert compared["baseline"] == 50.0
    lead = compared["lead"]
    assert lead["mean"] == 37.5
    # Differences 0, 0, 1, 0.5: their deviation over 200 rows gives the interval by the normal law.
    error = 100 * np.std([0, 0, 1, 0.5] * 50) / np.sqrt(200)
    assert lead["low"] == pytest.approx(37.5 - 1.96 * error, abs=0.5)
    assert lead["high"] == pytest.approx(37.5 + 1.96 * error, abs=0.5)


def test_entities_by_row_add_up_to_the_f1_of_seqeval():
    from seqeval.metrics import f1_score

    true = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-PER"], ["O", "O", "O"], ["B-LOC", "I-LOC", "I-LOC"]]
    told = [["B-PER", "I-PER", "O"], ["B-PER", "O", "B-PER"], ["O", "B-LOC", "O"], ["B-LOC", "I-LOC", "O"]]

    rows = quality_rows.count_entities(told, true)

    assert rows == {"right": [2, 2, 0, 0], "of": [2, 4, 1, 2]}
    assert quality_rows.score(rows) == pytest.approx(100 * f1_score(true, told))
    lead = quality_rows.bootstrap([quality_rows.count_entities(true, true)], rows)
    assert lead["mean"] == pytest.approx(100 - 400 / 9)
    assert lead["low"] <= lead["mean"] <= lead["high"]


def test_table_shows_mean_spread_and_interval():
    row = {
        **{"task": "hotels", "split": "clean", "metric": "accuracy", "baseline_name": "TF-IDF", "baseline": 88.0},
        **{"model": [90.0, 92.0], "encoder": [89.0, 89.0], "lead": {"mean": 3.0, "low": 1.25, "high": 4.75}},
    }
    lines = quality.table([row, {**row, "encoder": None, "model": [90.0]}])
    rest = "| 88.00 (TF-IDF) | +3.00 (+1.25 to +4.75) |"
    assert lines[2:] == [
        f"| hotels, clean | accuracy | 91.00 ± 1.41 | 89.00 ± 0.00 {rest}",
        f"| hotels, clean | accuracy | 90.00 |  {rest}",
    ]


def test_data_that_is_not_there_is_named_and_nothing_is_made(tmp_path, capsys):
    assert quality.main(["--data", str(tmp_path), "--output_dir", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "pretrain.txt.gz" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.fixture
def data(tmp_path):
    """A small folder of the text and the tasks."""
    folder = tmp_path / "data"
    sentences = make_sentences(400)
    (folder / "zh_reviews").mkdir(parents=True)
    with gzip.open(folder / quality.TEXTS[0], "wt", encoding="utf-8") as file:
        file.write("\n".join([*sentences, *(f"{who}住在{where}。" for who in NAMES for where in PLACES)]))
    labelled = [f"{index % 2}\t{'很好' if index % 2 else '不好'}{text}" for index, text in enumerate(sentences)]
    tagged = [f"{' '.join(who + '在' + where)}\tB-PER I-PER O B-LOC I-LOC" for who in NAMES for where in PLACES]
    for task, settings in quality.TASKS.items():
        (folder / task).mkdir()
        header, rows = ("text_a\tlabel", tagged) if "task" in settings.options else ("label\ttext_a", labelled)
        for name in settings.splits.values():
            (folder / task / name).write_text("\n".join([header, *rows[:60]]), encoding="utf-8")
        (folder / task / quality.DEV).write_text("\n".join([header, *rows[50:90]]), encoding="utf-8")
    return folder


NAMES = ["张三", "李四", "王五", "赵六", "孙七", "周八", "吴九", "郑十", "钱一", "冯二"]
PLACES = ["北京", "上海", "广州", "南京", "天津", "西安", "成都", "杭州", "大连"]


def test_texts_that_share_twenty_characters_with_dev_are_counted(data):
    long = "一二三四五六七八九十甲乙丙丁戊己庚辛壬癸"
    with gzip.open(data / quality.TEXTS[0], "wt", encoding="utf-8") as file:
        file.write(f"前{long}后\n{long[:10]} {long[10:]}。\n{long[:19]}\n")
    dev = data / "book_review" / quality.DEV
    dev.write_text(f"label\ttext_a\n1\t又{long}\n", encoding="utf-8")

    counted = quality._overlap(data)

    assert counted[quality.TEXTS[0]] == {"chnsenticorp": 0, "book_review": 2, "msra_ner": 0}
    assert counted["chnsenticorp/train_clean.tsv"] == {"chnsenticorp": 10}  # the fixture's rows 50 to 59


def test_what_was_made_from_other_data_is_not_taken_for_this(data, tmp_path, capsys):
    arguments = ["--data", str(data), "--output_dir", str(tmp_path)]
    (tmp_path / "inputs.json").write_text(
        json.dumps({quality.TEXTS[0]: {"bytes": 1, "sha256": "0"}}), encoding="utf-8"
    )
    assert quality.main(arguments) == 2
    assert f"{quality.TEXTS[0]} changed" in capsys.readouterr().err


def test_options_of_a_task_reach_its_command_with_the_folder_of_the_data(monkeypatch):
    options = {"text_column": "t", "unlabelled_files": ["{data}/a.txt", "{data}/b.txt"], "epochs": 2}
    monkeypatch.setitem(quality.TASKS, "hotels", quality.Task(options))
    fields = quality._finetuning(Path("mini"), Path("some/data"), "hotels", "train.tsv", 1)
    assert " ".join(as_words(**fields)) == (
        "--model mini --train_file some/data/hotels/train.tsv --validation_file some/data/hotels/dev.tsv "
        "--text_column t --unlabelled_files some/data/a.txt some/data/b.txt --epochs 2 --seed 1"
    )


@pytest.mark.slow
def test_the_table_is_made_from_raw_text_and_a_second_call_makes_nothing_anew(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("training.pretrain._measure_step", lambda *_: 30.0)  # a budget of time that takes none
    monkeypatch.setattr("training.trainer.Deadline.seconds_left", lambda self: 0.0)
    monkeypatch.setattr(quality_rows, "RESAMPLES", 100)
    out, cards = tmp_path / "out", tmp_path / "cards"
    cards.mkdir()
    arguments = ["--data", str(data), "--budget", "10m", "--seeds", "1", "--output_dir", str(out)]
    arguments += ["--recipe", "training/recipes/tiny-zh.yaml", "--cards", str(cards)]

    assert quality.main(arguments) == 0

    rows = json.loads((out / "table.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["task"], row["split"]) for row in rows] == [
        (task, split) for task, settings in quality.TASKS.items() for split in settings.splits
    ]
    for row in rows:  # as `finetune` scored them itself
        scores = json.loads((out / row["median_run"] / "eval_results.json").read_text(encoding="utf-8"))["scores"]
        metric, baseline = ("f1", "crf") if row["task"] == "msra_ner" else ("accuracy", "tfidf")
        assert row["model"] == [pytest.approx(100 * scores["dev.tsv"]["model"][metric])]
        assert row["baseline"] == pytest.approx(100 * scores["dev.tsv"][baseline][metric])
    assert (cards / "tiny-zh.md").read_bytes() == (out / "tiny-zh.md").read_bytes()
    assert (cards / "tiny-zh-loss.png").is_file() and str(tmp_path) not in (out / "tiny-zh.md").read_text("utf-8")
    archives = sorted((out / "release").glob("*.tar.gz"))
    assert [path.name for path in archives] == sorted(
        [f"tiny-zh-{task}.tar.gz" for task in quality.TASKS] + ["tiny-zh.tar.gz"]
    )
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
    tagger = str(tmp_path / "unpacked" / "tiny-zh-msra_ner")
    assert carry_out(["evaluate", "--model", tagger, "--test_file", str(data / "msra_ner" / "dev.tsv")]) == 0

    made = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    before = (out / "release" / "SHA256SUMS").read_bytes()
    assert quality.main(arguments) == 0
    assert made == {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert (out / "release" / "SHA256SUMS").read_bytes() == before
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        quality.main([*arguments, "--budget", "11m"])
    assert "--time_budget was 10m, is 11m" in capsys.readouterr().err
