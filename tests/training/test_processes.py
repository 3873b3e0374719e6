"""Several processes that train one model: shards that each streams, recipes for accelerate, divided weights."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate.commands.config.config_args import load_config_from_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import hf_tinybert
from hf_tinybert import TinyBertForMaskedLM
from tests import stress
from tests.training.test_streaming import argv_of, write_shards
from training import arguments, pretrain
from training.schedule import Journal


ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "training" / "recipes" / "accelerate").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_a_recipe_for_accelerate_is_read_by_accelerate_and_its_command_by_us(path):
    config = load_config_from_file(str(path))
    command = shlex.split(path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# "))
    assert command[:3] == ["accelerate", "launch", "--config_file"] and ROOT / command[3] == path
    at = command.index("-m")
    assert command[at : at + 3] == ["-m", "training", "pretrain"]
    arguments.parse_arguments("pretrain", arguments.PretrainArguments, command[at + 3 :])
    if config.distributed_type == "FSDP":
        assert hasattr(hf_tinybert.modeling_tinybert, config.fsdp_config["fsdp_transformer_layer_cls_to_wrap"])
        assert config.fsdp_config["fsdp_version"] == 2
    else:
        assert (config.distributed_type, config.num_processes) == ("MULTI_GPU", 2)  # MULTI_CPU would start one


@pytest.fixture
def one_process_group(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_weights_that_fsdp_has_divided_are_put_together_and_others_left_alone(one_process_group, tiny_model):
    plain = tiny_model(TinyBertForMaskedLM)
    assert pretrain._whole(plain) is plain
    divided = tiny_model(TinyBertForMaskedLM)
    mesh = init_device_mesh("cpu", (1,))
    for layer in divided.tinybert.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(divided, mesh=mesh)
    assert all(isinstance(weight, DTensor) for weight in divided.parameters())
    whole = pretrain._whole(divided)
    assert type(whole) is TinyBertForMaskedLM
    for name, weight in plain.state_dict().items():
        assert torch.equal(whole.state_dict()[name].cpu(), weight), name


def shards_noted(folder, rank):
    """Which shards a process has noted, by pass."""
    noted: dict[int, list[int]] = {}
    for entry in Journal(folder / f"stream-{rank}-of-2.jsonl").of("shard"):
        noted.setdefault(entry["epoch"], []).append(entry["state"]["shard"])
    return noted


@pytest.mark.slow
def test_two_processes_launched_by_accelerate_stream_a_pass_of_shards_each_its_own(tmp_path, tokenizer):
    paths = write_shards(tmp_path / "text", [20] * 4)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    argv = argv_of(paths, tmp_path / "tokenizer", tmp_path / "run")
    launch = [
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        str(ROOT / "training/recipes/accelerate/ddp.yaml"),
    ]
    result = subprocess.run(
        [sys.executable, *launch, "-m", "training", *argv],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.count("streaming 4 files") == 1  # the main process alone prints
    first, second = (shards_noted(tmp_path / ".run.training", rank) for rank in range(2))
    assert sorted(first[0] + second[0]) == [0, 1, 2, 3]
    assert len(first[0]) == 2
    assert json.loads((tmp_path / "run" / "eval_results.json").read_text(encoding="utf-8"))["steps"] == 24


@pytest.mark.slow
def test_two_streaming_processes_killed_resume_to_the_same_bits(tmp_path, tokenizer):
    paths = write_shards(tmp_path / "text", [20] * 5)
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    for name, moments in (("whole", []), ("killed", [2.0, 4.0, 6.0])):
        argv = argv_of(paths, tmp_path / "tokenizer", tmp_path / name, "--max_steps", "60", "--save_steps", "7")
        stress.run_with_kills(argv, tmp_path / f"{name}.log", 2, moments)
    assert stress.weights(tmp_path / "killed") == stress.weights(tmp_path / "whole")
