"""`publish`, spoken to a stand-in for the Hub by the real client."""

import ast
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import transformers
from huggingface_hub import SpaceCard, constants
from transformers import TrainingArguments

import hf_tinybert
from hf_tinybert import TinyBertForMaskedLM
from tests.hub_server import DROP, LOSE, READ_TOKEN, TOKEN, HubServer
from training import finetune, folder_checks
from training.__main__ import main
from training.card import write_card
from training.stranger import Check
from training.trainer import PublicTrainer
from training.validate import check_folder


ROOT = Path(__file__).parents[2]
REPO = "owner/tiny"
RESULTS = {
    "task": "masked-lm",
    "results": {"loss": 5.0, "unigram_loss": 7.0, "accuracy": 0.2, "unigram_accuracy": 0.1},
}
CODE = ("configuration_tinybert.py", "modeling_tinybert.py")
EXPECTED = {
    *(
        "README.md",
        "config.json",
        "eval_results.json",
        "pictures/loss_curve.png",
        "model.safetensors",
        "onnx/model.onnx",
    ),
    *("tokenizer.json", "tokenizer_config.json", *CODE),
}


@pytest.fixture(autouse=True)
def verdict(monkeypatch):
    """What `validate` says of any folder: nothing wrong, unless a test puts other `checks` there."""
    said = types.SimpleNamespace(checks=[])
    monkeypatch.setattr("training.validate.check_folder", lambda folder: said.checks)
    return said


@pytest.fixture
def static_checks(verdict, monkeypatch):
    """Has `validate` say what can be told without a process of its own."""
    monkeypatch.setattr("training.validate.check_folder", folder_checks.static_checks)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tiny_tokenizer):
    """A finished run folder. Not to be changed."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    torch.manual_seed(0)
    config = hf_tinybert.TinyBertConfig(vocab_size=50, hidden_size=16, num_attention_heads=2)
    TinyBertForMaskedLM(config).save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    (folder / "eval_results.json").write_text(json.dumps(RESULTS), encoding="utf-8")
    write_card(folder)
    (folder / "pictures").mkdir()
    (folder / "pictures" / "loss_curve.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"\x08\x0a" * 50)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "tiny")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The stand-in, as if HF_ENDPOINT, HF_HUB_DISABLE_XET and a login had been there from the start; no waiting."""
    with HubServer() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        yield server


class Said(NamedTuple):
    status: int
    out: str
    error: str


@pytest.fixture
def publish(capsys):
    """Carries out the verb; what it says must never hold a token."""

    def run(folder, *options) -> Said:
        capsys.readouterr()
        status = main(["publish", "--model", str(folder), "--repo_id", REPO, *options])
        out, err = capsys.readouterr()
        assert TOKEN not in out + err and READ_TOKEN not in out + err
        error = [line for line in err.splitlines() if line.startswith("python -m training publish: error: ")]
        assert len(error) == (status == 2)
        return Said(status, out, error[0] if error else "")

    return run


def on_disk(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_published(hub: HubServer, folder: Path, revision: str = "main"):
    """The repository holds the folder, byte for byte but for the card, and nothing else."""
    there, here = hub.repos[REPO].contents(revision), on_disk(folder)
    assert there.keys() == here.keys()
    assert {path for path in here if there[path] != here[path]} == {"README.md"}
    assert_whole_commits(hub)


def assert_whole_commits(hub: HubServer):
    """No commit of ours holds a part of a model."""
    for name, repo in hub.repos.items():
        for commit in repo.commits.values() if not name.startswith("spaces/") else ():
            ours = commit.title not in ("initial commit", "before", "theirs")
            assert not ours or commit.files.keys() >= EXPECTED - {"onnx/model.onnx"}


# What is published


def test_one_commit_holds_the_folder_and_nothing_else(hub, publish, folder, static_checks):
    said = publish(folder)

    assert said.status == 0
    assert set(on_disk(folder)) == EXPECTED
    assert_published(hub, folder)
    repo = hub.repos[REPO]
    assert [commit.title for commit in repo.commits.values()] == ["initial commit", "Publish the model"]
    assert not repo.private
    assert said.out.splitlines()[-2:] == [
        f"published in one commit: {hub.url}/{REPO}/commit/{repo.head.oid}",
        f'Next, anywhere: AutoModelForMaskedLM.from_pretrained("{REPO}", trust_remote_code=True)',
    ]
    assert repo.head.files["model.safetensors"].lfs and not repo.head.files["config.json"].lfs


def test_card_names_the_repository_and_the_hash_of_the_code_that_is_the_packages(hub, publish, folder):
    publish(folder)

    there = hub.repos[REPO].contents()
    card = there["README.md"].decode()
    package = Path(hf_tinybert.__file__).parent
    for name in CODE:
        assert there[name] == (package / name).read_bytes()
        assert f"| `{name}` | `{hashlib.sha256(there[name]).hexdigest()}` |" in card
    assert f'model="{REPO}"' in card and "OWNER/NAME" not in card
    assert card.startswith((folder / "README.md").read_text(encoding="utf-8").replace("OWNER/NAME", REPO).rstrip())


def test_card_published_before_gets_no_second_code_section(hub, publish, folder):
    publish(folder)
    card = hub.repos[REPO].contents()["README.md"]
    (folder / "README.md").write_bytes(card)

    assert "nothing to do" in publish(folder).out
    (folder / "README.md").write_bytes(card + b"\n## Thanks\n\nTo all.\n")
    publish(folder)

    new = hub.repos[REPO].contents()["README.md"].decode()
    assert new.count("## The code in this repository") == 1 and "## Thanks\n\nTo all." in new


def test_folder_without_a_card_is_refused(hub, publish, folder, static_checks):
    (folder / "README.md").unlink()

    assert "is not fit to be published: files: missing: README.md" in publish(folder).error
    assert not hub.requests


STATE = [
    *("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin", "model.pkl"),
    *("model.ckpt", "arrays.npz", "trainer_state.json", "token", ".env", "checkpoint-5/model.safetensors"),
    *("arguments.json", "journal.jsonl", "notes.txt", ".git/config", "onnx/model.pt", "onnx/deep/model.onnx"),
    *("model.safetensors.bak", "MODEL.SAFETENSORS", "data.csv", "evil.py", "tokenizer.json~", "Model.PT\n"),
]


def test_training_state_pickles_and_strangers_are_refused_by_name(hub, publish, folder, static_checks):
    for name in STATE:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(b"x")

        said = publish(folder)

        shown = name.replace("\n", "\\n")
        assert f"not to be published: {shown}" in said.error or f"unknown or hidden: {shown}" in said.error
        (folder / name).unlink()
        shutil.rmtree((folder / name).parent) if not any((folder / name).parent.iterdir()) else None
    assert not hub.requests


def test_only_what_is_known_by_name_goes_up_whatever_validate_says(hub, publish, folder):
    for name in (*STATE, ".gitattributes", ".cache/huggingface/download/config.json.metadata"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(b"hf_secret")
    (folder / "onnx" / "linked").symlink_to(folder.parent)

    said = publish(folder)

    assert said.status == 0
    assert set(hub.repos[REPO].contents()) == EXPECTED
    assert b"hf_secret" not in b"".join(blob.content for blob in hub.repos[REPO].head.files.values())
    left_out = set(re.findall("^left out: (.+)$", said.out, re.MULTILINE))
    assert left_out == {ascii(name) if "\n" in name else name for name in STATE} | {
        ".gitattributes",
        ".cache/huggingface/download/config.json.metadata",
    }


def test_dry_run_lists_what_would_be_sent_and_opens_no_connection(publish, folder, monkeypatch, hub):
    monkeypatch.delenv("HF_TOKEN")
    with monkeypatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        patch.setattr(socket.socket, "connect", lambda *address: pytest.fail("a connection"))
        said = publish(folder, "--dry_run")

    assert said.status == 0
    listed = re.findall(r"^([0-9a-f]{64}) +([\d,]+)  (.+)$", said.out, re.MULTILINE)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert not hub.requests
    publish(folder)
    sent = hub.repos[REPO].contents()
    assert {name: (sha256, int(size.replace(",", ""))) for sha256, size, name in listed} == {
        name: (hashlib.sha256(content).hexdigest(), len(content)) for name, content in sent.items()
    }


def test_code_that_is_not_the_packages_is_refused(hub, publish, folder, static_checks):
    with (folder / "modeling_tinybert.py").open("a", encoding="utf-8") as file:
        file.write("import os\n")
    assert (
        f"code: not the file of hf_tinybert {hf_tinybert.__version__}: modeling_tinybert.py" in publish(folder).error
    )

    (folder / "modeling_tinybert.py").unlink()
    assert "files: missing: modeling_tinybert.py" in publish(folder).error
    assert not hub.requests


@pytest.mark.parametrize("secret", ["/home/someone/reviews.txt", "hf_" + "a" * 34])
@pytest.mark.parametrize("name", ["README.md", "eval_results.json", "tokenizer_config.json", "onnx/model.onnx"])
def test_path_or_token_in_a_file_is_refused(hub, publish, folder, static_checks, name, secret):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content.rstrip(b"}\n") + json.dumps(f" {secret}").encode() + content[-2:])

    said = publish(folder)

    assert f"private: {name}, line" in said.error
    assert "a" * 34 not in said.error
    assert not hub.requests


def test_what_validate_finds_stops_it_before_any_request(hub, publish, folder, verdict):
    verdict.checks = [Check("tokenizer", True, ""), Check("weights", False, "3 are missing"), Check("onnx", None, "")]

    said = publish(folder)

    assert f"--model {folder} is not fit to be published: weights: 3 are missing. Mend it;" in said.error
    assert publish(folder, "--dry_run").status == 2
    assert not hub.requests


@pytest.mark.parametrize(
    "options, message",
    [
        (["--repo_id", "tiny"], "--repo_id tiny must be owner/name"),
        (["--repo_id", "owner/a--b"], "--repo_id owner/a--b cannot be a name on the Hub"),
        (["--repo_id", "a/b/c"], "--repo_id a/b/c cannot be a name on the Hub"),
        (["--create_pr", "--revision", "next"], "give no --revision"),
        (["--model", "nowhere"], "--model nowhere is no folder"),
    ],
)
def test_impossible_arguments_are_refused_before_any_request(hub, publish, folder, options, message):
    assert message in publish(folder, *options).error
    assert not hub.requests


def test_another_librarys_model_is_refused(hub, publish, folder):
    (folder / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")

    assert "is of the type bert, not tinybert" in publish(folder).error


@pytest.mark.slow
def test_folder_that_passes_every_check_is_published(hub, publish, folder, monkeypatch):
    monkeypatch.setattr("training.validate.check_folder", check_folder)
    shutil.rmtree(folder / "onnx")  # not a real one

    assert publish(folder).status == 0
    assert_published(hub, folder)

    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert "is not fit to be published: tokenizer: " in publish(folder).error


# Where it goes


def test_same_folder_again_has_nothing_to_do(hub, publish, folder):
    publish(folder)
    head = hub.repos[REPO].head.oid
    hub.requests.clear()

    said = publish(folder)

    assert said.status == 0 and "nothing to do" in said.out
    assert hub.repos[REPO].head.oid == head
    assert not hub.requests.keys() & {"commit", "preupload", "lfs_batch", "lfs_upload", "create_repo"}


def change_weights(folder: Path):
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)


def test_new_weights_of_the_same_model_are_an_update(hub, publish, folder):
    publish(folder)
    before = hub.repos[REPO].head
    change_weights(folder)
    hub.requests.clear()

    assert publish(folder, "--commit_message", "More steps").status == 0

    assert_published(hub, folder)
    head = hub.repos[REPO].head
    assert (head.parent, head.title) == (before.oid, "More steps")
    assert hub.requests["lfs_upload"] == 1, "the other large files are there already"


def test_another_model_is_not_overwritten_unless_told(hub, publish, folder):
    other = {"config.json": b'{"model_type": "bert"}', "pytorch_model.bin": b"x", "tokenizer.json": b"{}"}
    hub.make_repo(REPO, other)

    said = publish(folder)

    assert "owner/tiny holds another model (model_type: 'bert' there, 'tinybert' here)" in said.error
    assert "--overwrite" in said.error
    assert hub.repos[REPO].contents() == other

    assert publish(folder, "--overwrite").status == 0
    assert_published(hub, folder)


@pytest.mark.parametrize("config", [b"[]", b"\xff", b"{}"])
def test_config_that_is_none_is_another_models(hub, publish, folder, config):
    hub.make_repo(REPO, {"config.json": config})

    assert "holds another model (model_type: None there" in publish(folder).error


def test_same_classes_of_another_shape_are_another_model(hub, publish, folder):
    theirs = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    hub.make_repo(REPO, {"config.json": json.dumps(theirs | {"hidden_size": 32}).encode()})
    assert "holds another model (hidden_size: 32 there, 16 here)" in publish(folder).error

    hub.make_repo(REPO, {"config.json": json.dumps(theirs | {"transformers_version": "5.0"}).encode()})
    assert publish(folder).status == 0


def test_files_that_are_no_part_of_the_model_are_not_removed_unless_told(hub, publish, folder):
    hub.make_repo(REPO, {"notes.md": b"mine", "onnx/old.onnx": b"1"})

    said = publish(folder)

    assert "holds files that are no part of this model: notes.md, onnx/old.onnx" in said.error
    assert publish(folder, "--overwrite").status == 0
    assert_published(hub, folder)


def test_ignore_file_of_the_repository_takes_nothing_out_of_the_commit(hub, publish, folder):
    hub.make_repo(REPO, {".gitignore": b"*.safetensors\n*.json\n"})

    assert publish(folder, "--overwrite").status == 0
    assert_published(hub, folder)


def test_private_repository_is_made_private(hub, publish, folder):
    assert publish(folder, "--private").status == 0
    assert hub.repos[REPO].private
    assert publish(folder, "--private").status == 0


def test_private_is_refused_where_the_repository_is_public(hub, publish, folder):
    repo = hub.make_repo(REPO)

    assert "exists and is public" in publish(folder, "--private").error
    assert repo.contents() == {}


def test_new_branch_is_made_and_main_stays(hub, publish, folder):
    assert publish(folder, "--revision", "v2").status == 0
    assert hub.repos[REPO].contents() == {}
    assert_published(hub, folder, "v2")

    change_weights(folder)
    assert publish(folder, "--revision", "v2").status == 0
    assert_published(hub, folder, "v2")
    assert set(hub.repos[REPO].refs) == {"main", "v2"}


def test_refused_branch_is_not_made(hub, publish, folder):
    hub.make_repo(REPO, {"config.json": b'{"model_type": "bert"}'})

    assert publish(folder, "--revision", "v2").status == 2
    assert set(hub.repos[REPO].refs) == {"main"}


def test_pull_request_leaves_main_alone_and_is_not_made_twice(hub, publish, folder):
    hub.make_repo(REPO)

    said = publish(folder, "--create_pr")

    assert said.out.endswith(f"{REPO}/discussions/1\nNext: merge it there\n")
    assert hub.repos[REPO].contents() == {}
    assert_published(hub, folder, "refs/pr/1")
    assert "nothing to do" in publish(folder, "--create_pr").out
    assert len(hub.repos[REPO].pull_requests) == 1


# Faults: a try that fails leaves the repository as it was, and the next one finishes.

ROUTES = ["whoami", "info", "create_repo", "tree", "preupload", "lfs_batch", "lfs_upload", "validate_yaml", "commit"]


@pytest.mark.parametrize("how", [500, 503, DROP, LOSE])
@pytest.mark.parametrize("route", ROUTES)
def test_fault_that_passes_is_waited_for(hub, publish, folder, route, how):
    hub.fail(route, how, times=2)

    assert publish(folder).status == 0
    assert_published(hub, folder)
    assert len(hub.repos[REPO].commits) == 2


@pytest.mark.parametrize("how", [503, DROP])
@pytest.mark.parametrize("route", ROUTES)
def test_fault_that_stays_is_one_line_and_the_next_try_finishes(hub, publish, folder, route, how):
    hub.fail(route, how, times=40)

    said = publish(folder)

    assert ("has a fault (503)" if how == 503 else f"connection to {hub.url} failed") in said.error
    assert REPO not in hub.repos or hub.repos[REPO].contents() == {}
    hub._faults.clear()
    assert publish(folder).status == 0
    assert_published(hub, folder)


def test_connection_cut_in_an_upload_stores_nothing_and_what_was_stored_is_not_sent_again(hub, publish, folder):
    hub.fail("lfs_upload", DROP, times=1000)
    assert publish(folder).status == 2
    assert hub.lfs == {} and hub.repos[REPO].contents() == {}

    hub._faults.clear()
    hub.fail("commit", 503, times=1000)
    assert publish(folder).status == 2
    stored = dict(hub.lfs)
    assert len(stored) == 3 and hub.repos[REPO].contents() == {}

    hub._faults.clear()
    hub.requests.clear()
    assert publish(folder).status == 0
    assert hub.requests["lfs_upload"] == 0
    assert_published(hub, folder)


@pytest.mark.parametrize("options", [[], ["--create_pr"], ["--revision", "v2"]])
def test_lost_answer_to_the_commit_is_success_without_a_second_commit(hub, publish, folder, options):
    hub.fail("commit", LOSE)

    said = publish(folder, *options)

    repo = hub.repos[REPO]
    made = list(repo.commits.values())
    assert said.status == 0
    assert len(made) == 2 and len(repo.pull_requests) == (options == ["--create_pr"])
    assert said.out.splitlines()[-2] == f"published in one commit: {hub.url}/{REPO}/commit/{made[-1].oid}"
    assert "nothing to do" in publish(folder, *options).out


def test_answer_lost_while_the_hub_goes_down_is_found_by_the_next_try(hub, publish, folder):
    hub.fail("commit", LOSE)
    hub.before("commit", lambda: hub.fail("tree", 503, times=100))

    assert publish(folder).status == 2
    assert_published(hub, folder)
    hub._faults.clear()
    assert "nothing to do" in publish(folder).out
    assert len(hub.repos[REPO].commits) == 2


def test_commit_of_someone_else_meanwhile_is_kept(hub, publish, folder):
    repo = hub.make_repo(REPO)
    hub.before("commit", lambda: repo.commit("main", "theirs", repo.head.files, repo.head.oid))

    said = publish(folder)

    assert "someone else changed owner/tiny meanwhile (412)" in said.error
    assert repo.head.title == "theirs" and hub.requests["commit"] == 1
    assert publish(folder).status == 0
    assert_published(hub, folder)


def test_file_that_changes_after_it_was_listed_is_noticed(hub, publish, folder):
    hub.before("preupload", lambda: change_weights(folder))

    assert "does not hold what was sent" in publish(folder).error


def test_answer_that_is_not_the_hubs_is_one_line(hub, publish, folder, monkeypatch):
    monkeypatch.setattr("tests.hub_server._Routes.whoami", lambda self, **kwargs: (b"<html>", {}, 200))
    monkeypatch.setattr("tests.hub_server._Handler._send", send_html)

    assert "gave an answer that is not the Hub's" in publish(folder).error


def send_html(handler, answer):
    handler.send_response(200)
    handler.send_header("Content-Length", "6")
    handler.end_headers()
    handler.wfile.write(b"<html>")


# Who may


def test_without_a_token_it_says_how_to_log_in(hub, publish, folder, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")

    said = publish(folder)

    assert "not logged in" in said.error and "`hf auth login`" in said.error and "HF_TOKEN" in said.error
    assert not hub.requests


def test_offline_says_so(hub, publish, folder, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    assert "HF_HUB_OFFLINE is set" in publish(folder).error


@pytest.mark.parametrize("token", ["hf_revoked", READ_TOKEN])
def test_token_that_will_not_do_is_one_line(hub, publish, folder, monkeypatch, token):
    monkeypatch.setenv("HF_TOKEN", token)

    said = publish(folder)

    assert ("does not accept the token (401)" if token == "hf_revoked" else "may not write") in said.error
    assert token not in said.out + said.error
    assert REPO not in hub.repos


@pytest.mark.parametrize("token", ["hf_a\x01b", "hf_ü"])
def test_token_that_cannot_be_sent_is_not_shown(hub, publish, folder, monkeypatch, token):
    monkeypatch.setenv("HF_TOKEN", token)

    said = publish(folder)

    assert "a character that no token has" in said.error
    assert token not in said.error and repr(token)[1:-1] not in said.error


def test_namespace_of_someone_else_is_one_line(hub, publish, folder):
    said = publish(folder, "--repo_id", "stranger/tiny")

    assert "may not write to stranger/tiny (403)" in said.error
    hub.make_repo("stranger/tiny", private=True)
    assert "stranger/tiny" in publish(folder, "--repo_id", "stranger/tiny").error
    assert hub.repos["stranger/tiny"].contents() == {}


@pytest.mark.parametrize(
    "status, words",
    [(403, "may not write"), (404, "does not know"), (409, "something else is changing"), (400, "fault 400")],
)
def test_refused_commit_is_plain_words_and_not_tried_again(hub, publish, folder, status, words):
    hub.fail("commit", status)

    said = publish(folder)

    assert words in said.error and f"{status}" in said.error
    assert hub.requests["commit"] == 1 and hub.repos[REPO].contents() == {}


def test_card_that_the_hub_refuses_is_one_line(hub, publish, folder):
    hub.fail("validate_yaml", 400)

    assert "the Hub refuses (400)" in publish(folder).error
    assert hub.repos[REPO].contents() == {}


# The page that goes along

SPACE = "owner/page"


def constants_of(program: bytes) -> dict:
    """The constants at the top of a program, which is parsed and not run."""
    assigned = [node for node in ast.parse(program).body if isinstance(node, ast.Assign)]
    values = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    return {name: value.value for name, value in values.items() if isinstance(value, ast.Constant)}


def test_space_holds_the_filled_page_and_nothing_else_in_one_commit(hub, publish, folder):
    said = publish(folder, "--space", SPACE, "--space_models", "owner/encoder", "--space_language", "zh")

    assert said.status == 0
    assert_published(hub, folder)
    space = hub.repos[f"spaces/{SPACE}"]
    assert [commit.title for commit in space.commits.values() if commit.title != "initial commit"] == [
        "Publish the page"
    ]
    there = space.contents()
    assert there.keys() == {"README.md", "app.py", "requirements.txt"}
    program = constants_of(there["app.py"])
    assert (program["MODELS"], program["LANGUAGE"]) == (f"{REPO},owner/encoder", "zh")
    card = SpaceCard(there["README.md"].decode())
    assert (card.data.sdk, card.data.app_file, card.data.models) == ("gradio", "app.py", [REPO, "owner/encoder"])
    assert f"MODELS={REPO},owner/encoder python app.py" in card.text
    assert "OWNER/NAME" not in b"".join(there.values()).decode()
    assert said.out.splitlines()[-2] == f"published in one commit: {hub.url}/spaces/{SPACE}/commit/{space.head.oid}"


def test_page_follows_the_browser_and_shows_the_one_model_unless_told(hub, publish, folder):
    publish(folder, "--space", SPACE)

    program = constants_of(hub.repos[f"spaces/{SPACE}"].contents()["app.py"])
    assert (program["MODELS"], program["LANGUAGE"]) == (REPO, "")


def test_dry_run_lists_the_files_of_the_page_as_they_would_be_sent(hub, publish, folder):
    listed = publish(folder, "--space", SPACE, "--dry_run").out
    assert not hub.requests
    assert f"this goes to {REPO} in one commit and spaces/{SPACE} in one commit" in listed

    publish(folder, "--space", SPACE)
    for name, content in hub.repos[f"spaces/{SPACE}"].contents().items():
        assert re.search(rf"^{hashlib.sha256(content).hexdigest()} +{len(content):,}  {name}$", listed, re.MULTILINE)


def test_same_page_again_has_nothing_to_do(hub, publish, folder):
    publish(folder, "--space", SPACE)
    head = hub.repos[f"spaces/{SPACE}"].head

    assert publish(folder, "--space", SPACE).out.count("nothing to do") == 2
    assert hub.repos[f"spaces/{SPACE}"].head == head


@pytest.mark.parametrize("theirs", [{"app.py": b"print()"}, {"data.csv": b"1"}])
def test_space_that_holds_something_else_is_left_alone_unless_told(hub, publish, folder, theirs):
    hub.make_repo(f"spaces/{SPACE}", theirs)

    said = publish(folder, "--space", SPACE)

    assert f"spaces/{SPACE} holds" in said.error and next(iter(theirs)) in said.error
    assert "name another --space, or give --overwrite" in said.error
    assert theirs.items() <= hub.repos[f"spaces/{SPACE}"].contents().items()
    publish(folder, "--space", SPACE, "--overwrite")
    assert hub.repos[f"spaces/{SPACE}"].contents().keys() == {"README.md", "app.py", "requirements.txt"}


def test_space_that_changes_meanwhile_is_not_overwritten(hub, publish, folder):
    publish(folder)  # so that the commit below is that of the page
    space = hub.make_repo(f"spaces/{SPACE}")
    hub.before("commit", lambda: space.commit("main", "theirs", space.head.files, space.head.oid))

    said = publish(folder, "--space", SPACE)

    assert "someone else changed" in said.error and "412" in said.error
    assert space.head.title == "theirs"


def test_private_space_says_what_it_needs(hub, publish, folder):
    said = publish(folder, "--space", SPACE, "--private")

    assert hub.repos[f"spaces/{SPACE}"].private and hub.repos[REPO].private
    assert "give the Space a secret HF_TOKEN" in said.out


@pytest.mark.parametrize(
    "options, message",
    [
        (["--space", "page"], "--space page must be owner/name"),
        (["--space", SPACE, "--space_models", "a--b/c"], "--space_models a--b/c cannot be a name"),
        (["--space", SPACE, "--create_pr"], "--space shows what is on main"),
        (["--space", SPACE, "--revision", "next"], "--space shows what is on main"),
        (["--space_language", "zh"], "say where it goes with --space"),
    ],
)
def test_impossible_pages_are_refused_before_any_request(hub, publish, folder, options, message):
    assert message in publish(folder, *options).error
    assert not hub.requests


def test_page_asks_for_the_versions_it_is_tested_with():
    template = ROOT / "model_cards" / "space"
    pins = dict(
        re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    pins["torch"] = re.search(r"^TORCH \?= torch==(\S+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)[1]
    asked = (template / "requirements.txt").read_text(encoding="utf-8").split()
    assert asked == [f"{name}=={pins[name]}" for name in ("torch", "transformers")]
    card = SpaceCard.load(template / "README.md")
    assert card.data.sdk_version == pins["gradio"] and f"gradio=={pins['gradio']}" in card.text


# The library's own ways


def test_model_and_tokenizer_push_to_hub(hub, finished, tiny_tokenizer):
    model = TinyBertForMaskedLM.from_pretrained(finished)

    model.push_to_hub(REPO)
    tiny_tokenizer.push_to_hub(REPO)

    there = hub.repos[REPO].contents()
    here = on_disk(finished)
    assert there.keys() == EXPECTED - {"eval_results.json", "pictures/loss_curve.png", "onnx/model.onnx"}
    assert {name: there[name] for name in CODE} == {name: here[name] for name in CODE}
    assert there["model.safetensors"] == here["model.safetensors"]


@pytest.mark.parametrize("trainer_class", ["ours", "finetune", "library"])
def test_push_to_hub_of_our_trainers_uploads_no_training_state(hub, finished, tmp_path, tiny_tokenizer, trainer_class):
    trainer_class = {
        "ours": PublicTrainer,
        "finetune": finetune._trainer_class(0.3, 0.1),
        "library": transformers.Trainer,
    }[trainer_class]
    output = tmp_path / ".tiny.training"
    output.mkdir()
    (output / "arguments.json").write_text(json.dumps({"train_files": [str(tmp_path)]}), encoding="utf-8")
    arguments = TrainingArguments(
        str(output), hub_model_id=REPO, hub_token=TOKEN, report_to="none", use_cpu=True, disable_tqdm=True
    )
    model = TinyBertForMaskedLM.from_pretrained(finished)
    trainer = trainer_class(model, arguments, processing_class=tiny_tokenizer)

    trainer.push_to_hub()

    there = hub.repos[REPO].contents()
    model_files = EXPECTED - {"eval_results.json", "pictures/loss_curve.png", "onnx/model.onnx"}
    if trainer_class is transformers.Trainer:  # what this test guards against
        assert there.keys() == model_files | {"arguments.json", "training_args.bin"}
        assert TOKEN.encode() in there["training_args.bin"]
        return
    assert there.keys() == model_files
    assert not any(text in content for content in there.values() for text in (TOKEN.encode(), str(tmp_path).encode()))
    assert trainer.args.output_dir == str(output) and set(on_disk(output)) == {"arguments.json"}
    assert "\n# tiny\n" in there["README.md"].decode()


def test_checkpoints_pushed_while_training_hold_no_training_state(hub, finished, tmp_path, tiny_tokenizer):
    arguments = TrainingArguments(
        str(tmp_path / "out"),
        **{"push_to_hub": True, "hub_model_id": REPO, "hub_token": TOKEN, "save_strategy": "steps", "save_steps": 1},
        **{"max_steps": 2, "report_to": "none", "use_cpu": True, "disable_tqdm": True},
    )
    row = {**tiny_tokenizer("我爱你"), "labels": [5, 6, 7, 8, 9]}
    model = TinyBertForMaskedLM.from_pretrained(finished)
    trainer = PublicTrainer(model, arguments, train_dataset=[row] * 2, processing_class=tiny_tokenizer)

    trainer.train()

    repo = hub.repos[REPO]
    titles = [commit.title for commit in repo.commits.values()]
    assert "Training in progress, step 1" in titles
    assert not any(name.endswith((".bin", ".pt", ".pth")) for commit in repo.commits.values() for name in commit.files)
    assert list((tmp_path / "out").glob("checkpoint-*")) and not list((tmp_path / "out").rglob("training_args.bin"))


# What a stranger does: all of it in processes of their own

LOAD_WITH_REMOTE_CODE = """
import sys

sys.modules["hf_tinybert"] = None  # the package cannot be imported, wherever it is installed
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

repo, revision = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(repo, revision=revision, trust_remote_code=True)
model = AutoModelForMaskedLM.from_pretrained(repo, revision=revision, trust_remote_code=True)
assert type(model).__module__.startswith("transformers_modules.")
with torch.no_grad():
    print(model(**tokenizer("我爱你", return_tensors="pt")).logits.double().sum().item())
try:
    AutoModelForMaskedLM.from_pretrained(repo, trust_remote_code=False)
except ValueError as error:
    print("trust_remote_code" in str(error))
"""
PUBLISH_AND_LOAD_WITH_PACKAGE = """
import sys

import hf_tinybert
import torch
import training.folder_checks, training.validate
from transformers import AutoModelForMaskedLM, AutoTokenizer
from training.__main__ import main

repo, folder = sys.argv[1:]
training.validate.check_folder = training.folder_checks.static_checks  # the clean process is this one
assert main(["publish", "--model", folder, "--repo_id", repo]) == 0
model = AutoModelForMaskedLM.from_pretrained(repo)
assert type(model) is hf_tinybert.TinyBertForMaskedLM
with torch.no_grad():
    print(model(**AutoTokenizer.from_pretrained(repo)("我爱你", return_tensors="pt")).logits.double().sum().item())
"""


def run_clean(hub: HubServer, home: Path, arguments: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(home), "PYTHONPATH": str(ROOT)}
    environment |= {"HF_TOKEN": TOKEN, "PYTHONIOENCODING": "utf-8"}
    result = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=home, capture_output=True, text=True, encoding="utf-8"
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_published_model_loads_from_the_hub_with_and_without_the_package(hub, publish, folder, tmp_path):
    """One load by a commit, with the code of the repository; one of what HF_ENDPOINT and HF_TOKEN alone published."""
    publish(folder)
    revision = hub.repos[REPO].head.oid
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        logits = TinyBertForMaskedLM.from_pretrained(folder)(**tokenizer("我爱你", return_tensors="pt")).logits
    expected = str(logits.double().sum().item())

    assert run_clean(hub, tmp_path, ["-c", LOAD_WITH_REMOTE_CODE, REPO, revision]).split() == [expected, "True"]
    said = run_clean(hub, tmp_path, ["-c", PUBLISH_AND_LOAD_WITH_PACKAGE, "owner/again", str(folder)])
    assert said.split()[-1] == expected
    assert hub.repos["owner/again"].contents().keys() == EXPECTED
