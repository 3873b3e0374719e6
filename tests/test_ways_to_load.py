"""Where a folder may come from and how it may be loaded: two clean processes, with the package and without it."""

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from hf_tinybert import TinyBertForMaskedLM
from tests.training.conftest import make_sentences
from training.__main__ import main


ROOT = Path(__file__).parents[1]
TEXT = "我爱北京"
PROGRAM = """
import json
import sys
from pathlib import Path

mode, start = sys.argv[1], Path(sys.argv[2])
if mode == "remote":
    sys.modules["hf_tinybert"] = None  # the package cannot be imported, wherever it is installed
    trust = {"trust_remote_code": True}
else:
    import hf_tinybert
    trust = {}

import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline


class Scores(torch.utils.data.Dataset):
    def __init__(self, model, ids):
        self.model, self.ids = model.eval(), ids

    def __len__(self):
        return 1

    def __getitem__(self, row):
        with torch.no_grad():
            return self.model(self.ids)[0]


def scores(source, auto_class=AutoModelForMaskedLM, **settings):
    model = auto_class.from_pretrained(source, **trust, **settings)
    ids = AutoTokenizer.from_pretrained(source, **trust)("我爱北京", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return model(ids)[0].float()


def main():
    told = {}
    expected = torch.load(start / "scores.pt", weights_only=True)
    folder = start / "model"
    for name, source in (
        ("folder", folder),
        ("Hub cache", "someone/model"),
        ("pre-training checkpoint", start / "pretrain" / "checkpoint-2"),
        ("fine-tuning checkpoint", start / "finetune" / "checkpoint-6"),
    ):
        auto_class = AutoModel if "fine" in name else AutoModelForMaskedLM
        told[name] = torch.equal(scores(source, auto_class), expected[name])
    fill = pipeline("fill-mask", model=str(start / "pretrain" / "checkpoint-2"), **trust)
    told["checkpoint in a pipeline"] = len(fill("书[MASK]"))
    classify = pipeline("text-classification", model=str(start / "finetune" / "checkpoint-6"), **trust)
    told["classifier's checkpoint in a pipeline"] = classify("书店很好")[0]["label"]

    AutoModelForMaskedLM.from_pretrained("someone/model", **trust).save_pretrained(start / mode / "saved")
    AutoTokenizer.from_pretrained("someone/model", **trust).save_pretrained(start / mode / "saved")
    told["loaded, saved, loaded"] = torch.equal(scores(start / mode / "saved"), expected["folder"])

    half = scores(folder, dtype=torch.bfloat16)
    told["bfloat16"] = bool(0 < (half - expected["folder"]).abs().max() < 0.2)
    told["device_map"] = torch.equal(scores(folder, device_map="auto"), expected["folder"])
    eager = scores(folder, attn_implementation="eager")
    told["eager"] = torch.allclose(eager, expected["folder"], atol=1e-5)
    told["sdpa"] = torch.equal(scores(folder, attn_implementation="sdpa"), expected["folder"])

    if mode == "remote":  # the same name, other code: the second one doubles the logits
        told["other code"] = torch.equal(scores(start / "other" / "model"), 2 * expected["folder"])
        told["first code again"] = torch.equal(scores(folder), expected["folder"])

    model = AutoModelForMaskedLM.from_pretrained(folder, **trust)
    ids = AutoTokenizer.from_pretrained(folder, **trust)("我爱北京", return_tensors="pt")["input_ids"]
    loader = torch.utils.data.DataLoader(Scores(model, ids), num_workers=1, multiprocessing_context="spawn")
    torch.set_num_threads(1)  # as in a worker: with more of them sums may round otherwise
    told["spawned worker"] = torch.equal(next(iter(loader))[0], Scores(model, ids)[0])
    print(json.dumps(told))


if __name__ == "__main__":
    main()
"""


def into_hub_cache(folder: Path, cache: Path):
    """As huggingface_hub lays a repository out: a snapshot of links to blobs, and the branch that names it."""
    repository = cache / "models--someone--model"
    snapshot = repository / "snapshots" / ("0123456789" * 4)
    for directory in (repository / "blobs", repository / "refs", snapshot):
        directory.mkdir(parents=True)
    (repository / "refs" / "main").write_text(snapshot.name, encoding="utf-8")
    for file in (path for path in folder.rglob("*") if path.is_file()):
        name = sha256(file.read_bytes()).hexdigest()
        shutil.copyfile(file, repository / "blobs" / name)
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(repository / "blobs" / name)


def scores_of(model_class, folder: Path):
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return model_class.from_pretrained(folder)(ids)[0]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder with a model, the same in a Hub cache, one of its name with other code, and checkpoints alone."""
    from transformers import AutoModel

    start = tmp_path_factory.mktemp("loading")
    sentences = make_sentences(200)
    (start / "text.txt").write_text("\n".join(sentences), encoding="utf-8")
    rows = [f"{text}\t{'差' if '讨厌' in text else '好'}" for text in sentences]
    (start / "rows.tsv").write_text("\n".join(["text\tlabel", *rows]), encoding="utf-8")
    pretrain = ["--train_files", f"{start}/text.txt", "--size", "reference", "--max_steps", "2", "--save_steps", "1"]
    assert main(["pretrain", *pretrain, "--output_dir", f"{start}/encoder"]) == 0
    finetune = ["--model", f"{start}/encoder", "--train_file", f"{start}/rows.tsv", "--epochs", "1"]
    assert main(["finetune", *finetune, "--output_dir", f"{start}/labels"]) == 0
    for run, verb, name in (("encoder", "pretrain", "checkpoint-2"), ("labels", "finetune", "checkpoint-6")):
        (start / verb).mkdir()
        (start / f".{run}.training" / name).rename(start / verb / name)
    shutil.copytree(start / "encoder", start / "model")
    into_hub_cache(start / "model", start / "hf_home" / "hub")
    other = shutil.copytree(start / "model", start / "other" / "model")
    code = (other / "modeling_tinybert.py").read_text(encoding="utf-8")
    # transformers tells two codes of one folder name apart by the configuration file, so that is another one as well
    with open(other / "configuration_tinybert.py", "a", encoding="utf-8") as file:
        file.write("\n# another release\n")
    line = "return self.decoder(self.transform(hidden_states))"
    assert code.count(line) == 1
    (other / "modeling_tinybert.py").write_text(
        code.replace(line, line.replace("self.decoder", "2 * self.decoder")), encoding="utf-8"
    )
    of_model = scores_of(TinyBertForMaskedLM, start / "model")
    torch.save(
        {
            "folder": of_model,
            "Hub cache": of_model,
            "pre-training checkpoint": scores_of(TinyBertForMaskedLM, start / "pretrain" / "checkpoint-2"),
            "fine-tuning checkpoint": scores_of(AutoModel, start / "finetune" / "checkpoint-6"),
        },
        start / "scores.pt",
    )
    (start / "program.py").write_text(PROGRAM, encoding="utf-8")
    return start


@pytest.mark.parametrize("mode", ["package", "remote"])
def test_every_source_and_setting_gives_the_same_scores_in_a_clean_process(start, mode):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRANSFORMERS"))}
    environment = kept | {"HF_HOME": str(start / "hf_home"), "HF_HUB_OFFLINE": "1"}
    if mode == "package":
        environment["PYTHONPATH"] = str(ROOT)

    result = subprocess.run(
        [sys.executable, *(["-I"] if mode == "remote" else []), str(start / "program.py"), mode, str(start)],
        cwd=start,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )

    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads(result.stdout)
    assert told.pop("checkpoint in a pipeline") == 5
    assert told.pop("classifier's checkpoint in a pipeline") in ("好", "差")
    assert told and {name for name, same in told.items() if not same} == set()
    lines = result.stderr.replace("\r", "\n").split("\n")
    progress = ("Loading weights", "Writing model shards")
    assert [line for line in lines if line and not line.startswith(progress)] == []
