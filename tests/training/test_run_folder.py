import errno
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


@pytest.mark.parametrize("name", ["n" * 250, "书" * 80, "n" * 300 + "/x", "o\udcb9"])
def test_a_name_that_cannot_be_made_is_told_at_the_door(tmp_path, name):
    with pytest.raises(UserError, match="name another folder"):
        check_output_dir(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_nothing_can_be_made_in_is_told_at_the_door(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "mkdir", refuse)  # modes do not bind a superuser
    with pytest.raises(UserError, match="cannot write there \\(Permission denied"):
        check_output_dir(tmp_path / "runs" / "zh")


def test_the_current_folder_cannot_be_replaced(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in (".", "../here", str(tmp_path / "here")):
        with pytest.raises(UserError, match="is the current folder"):
            check_output_dir(name)


@pytest.mark.parametrize("name", ["new/..", "link", "broken"])
def test_what_a_link_or_a_parent_stands_for_is_made(tmp_path, name):
    (tmp_path / "work").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "broken").symlink_to("nowhere")
    if name == "new/..":
        name = "empty/new/.."
    with publishing(tmp_path / name) as staging:
        (staging / "config.json").touch()
    assert (tmp_path / name.partition("/")[0] / "config.json").exists()
    assert not list(tmp_path.rglob("*.staging"))
    folder = "nowhere" if name == "broken" else "empty"
    assert training_dir(tmp_path / name) == tmp_path / f".{folder}.training"


def test_parents_made_for_nothing_vanish(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(RuntimeError), publishing(tmp_path / "a" / "b" / "c" / "zh"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_published_files_can_be_read_by_whom_new_files_can(tmp_path):
    (tmp_path / "usual").touch()
    with publishing(tmp_path / "zh") as staging:
        (staging / "model.safetensors").touch(mode=0o600)
    assert (tmp_path / "zh" / "model.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_json_holds_file_names_of_any_bytes(tmp_path):
    name = os.fsdecode(b"\xb9\xfa.txt")
    write_json(tmp_path / "a.json", {"name": name})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"name": name}


def test_the_training_folder_lies_hidden_beside_the_run():
    assert str(training_dir("runs/zh")) == os.path.join("runs", ".zh.training")


def test_json_is_written_whole_and_readable(tmp_path):
    write_json(tmp_path / "a.json", {"名": [1.5]})
    assert "名" in (tmp_path / "a.json").read_text(encoding="utf-8")
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"名": object()})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"名": [1.5]}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
