import json
import os

import pytest

from training.errors import UserError
from training.run_folder import check_output_dir, publishing, training_dir, write_json


def test_a_folder_appears_by_one_rename(tmp_path):
    target = tmp_path / "runs" / "zh"
    with publishing(target) as staging:
        (staging / "config.json").write_text("{}", encoding="utf-8")
        assert not target.exists()
        assert staging.parent == target.parent
    assert [path.name for path in target.iterdir()] == ["config.json"]
    assert [path.name for path in target.parent.iterdir()] == ["zh"]


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), publishing(tmp_path / "zh") as staging:
        (staging / "half").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "zh").mkdir()
    with publishing(tmp_path / "zh") as staging:
        (staging / "config.json").touch()
    assert (tmp_path / "zh" / "config.json").exists()


@pytest.mark.parametrize(
    ("name", "line"), [("model", "already holds a model"), ("other", "is not empty"), ("file", "is a file"),
                       ("file/below", "cannot write")]
)  # fmt: skip
def test_what_is_in_the_way_is_named_and_kept(tmp_path, name, line):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    (tmp_path / "file").touch()
    before = sorted(os.walk(tmp_path))
    with pytest.raises(UserError, match=line):
        check_output_dir(tmp_path / name)
    assert sorted(os.walk(tmp_path)) == before


def test_the_training_folder_lies_hidden_beside_the_run():
    assert str(training_dir("runs/zh")) == os.path.join("runs", ".zh.training")


def test_json_is_written_whole_and_readable(tmp_path):
    write_json(tmp_path / "a.json", {"名": [1.5]})
    assert "名" in (tmp_path / "a.json").read_text(encoding="utf-8")
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"名": object()})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"名": [1.5]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
