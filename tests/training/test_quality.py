import json

import numpy as np
import pytest

from training import quality


def write_answers(folder, seed, **right):
    run = folder / f"task-clean-{seed}"
    run.with_name(f"{run.name}.answers.json").write_text(json.dumps(right), encoding="utf-8")
    return run


def test_lead_is_that_of_the_mean_over_runs_with_a_paired_interval(tmp_path):
    tfidf = [1, 1, 0, 0] * 50
    runs = [
        write_answers(tmp_path, 0, model=[1, 1, 1, 0] * 50, encoder=[1, 0, 1, 0] * 50, tfidf=tfidf),
        write_answers(tmp_path, 1, model=[1, 1, 1, 1] * 50, encoder=[1, 1, 1, 0] * 50, tfidf=tfidf),
    ]

    compared = quality.compare(runs)

    assert compared["model"] == [75.0, 100.0]
    assert compared["encoder"] == [50.0, 75.0]
    assert compared["tfidf"] == 50.0
    lead = compared["lead"]
    assert lead["mean"] == 37.5
    # Differences 0, 0, 1, 0.5: their deviation over 200 rows gives the interval by the normal law.
    error = 100 * np.std([0, 0, 1, 0.5] * 50) / np.sqrt(200)
    assert lead["low"] == pytest.approx(37.5 - 1.96 * error, abs=0.5)
    assert lead["high"] == pytest.approx(37.5 + 1.96 * error, abs=0.5)


def test_table_shows_mean_spread_and_interval():
    row = {
        **{"task": "hotels", "split": "clean", "model": [90.0, 92.0], "encoder": [89.0, 89.0], "tfidf": 88.0},
        "lead": {"mean": 3.0, "low": 1.25, "high": 4.75},
    }
    assert (
        quality.table([row])[-1] == "| hotels, clean | 91.00 ± 1.41 | 89.00 ± 0.00 | 88.00 | +3.00 (+1.25 to +4.75) |"
    )


def test_data_that_is_not_there_is_named_and_nothing_is_made(tmp_path, capsys):
    assert quality.main(["--data", str(tmp_path), "--output_dir", str(tmp_path / "out")]) == 2
    assert "pretrain.txt.gz" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_table_is_made_from_raw_text_and_a_second_call_makes_nothing_anew(
    tmp_path, sentences, capsys, monkeypatch
):
    import gzip

    data = tmp_path / "data"
    (data / "zh_reviews").mkdir(parents=True)
    with gzip.open(data / "zh_reviews" / "pretrain.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(sentences))
    for task in quality.TASKS:
        (data / task).mkdir()
        rows = [
            f"{index % 2}\t{'很好' if index % 2 else '不好'}{sentence}" for index, sentence in enumerate(sentences)
        ]
        for name in (*quality.SPLITS.values(), "dev.tsv"):
            (data / task / name).write_text("\n".join(["label\ttext_a", *rows[:60]]), encoding="utf-8")
    out = tmp_path / "out"
    arguments = ["--data", str(data), "--budget", "40s", "--seeds", "1", "--output_dir", str(out)]
    arguments += ["--recipe", "training/recipes/tiny-zh.yaml"]

    assert quality.main(arguments) == 0

    rows = json.loads((out / "table.json").read_text(encoding="utf-8"))["rows"]
    assert [(row["task"], row["split"]) for row in rows] == [
        (task, split) for task in quality.TASKS for split in quality.SPLITS
    ]
    assert all(0 <= row["tfidf"] <= 100 and len(row["model"]) == 1 for row in rows)
    monkeypatch.setattr(quality.subprocess, "run", None)
    assert quality.main(arguments) == 0
