import hashlib
import json
import os
import tarfile

import pytest
import torch

from hf_tinybert import TinyBertForMaskedLM
from training.folder_checks import CODE
from training.release import SUMS, release


@pytest.fixture
def model(tiny_model, tiny_tokenizer, tmp_path):
    """A folder such as a run makes, with what is never published beside it."""
    folder = tmp_path / "encoder"
    tiny_model(TinyBertForMaskedLM).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text("# a card\n", encoding="utf-8")
    (folder / "training_args.bin").write_bytes(b"a pickle")
    return folder


def test_an_archive_holds_what_would_be_published_and_loads_as_it_was(model, tmp_path, capsys):
    sums = release({"mini-zh": model}, tmp_path / "release")

    assert "left out of mini-zh.tar.gz: training_args.bin" in capsys.readouterr().out
    path = tmp_path / "release" / "mini-zh.tar.gz"
    with tarfile.open(path) as archive:
        entries = archive.getmembers()
        archive.extractall(tmp_path / "unpacked", filter="data")
    names = [entry.name for entry in entries]
    assert names == sorted(names) and set(names) >= {f"mini-zh/{name}" for name in (*CODE, "README.md", "config.json")}
    assert "mini-zh/training_args.bin" not in names
    assert {(e.uid, e.gid, e.uname, e.gname, e.mtime, e.mode) for e in entries} == {(0, 0, "", "", 0, 0o644)}
    ids = torch.tensor([[2, 5, 6, 4, 3]])
    before, after = (TinyBertForMaskedLM.from_pretrained(each) for each in (model, tmp_path / "unpacked" / "mini-zh"))
    assert torch.equal(before(ids).logits, after(ids).logits)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert sums == {"mini-zh.tar.gz": digest}
    assert (path.parent / SUMS).read_text(encoding="utf-8") == f"{digest}  mini-zh.tar.gz\n"


def test_an_archive_is_always_of_the_same_bytes_until_a_file_changes(model, tmp_path):
    first = release({"a": model}, tmp_path / "one")
    for path in model.iterdir():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert release({"a": model}, tmp_path / "two") == first
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (model / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-6}), encoding="utf-8")
    assert release({"a": model}, tmp_path / "two") != first
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == [SUMS, "a.tar.gz"]
