"""Two processes by accelerate (gloo, DDP) train every head as one process does on the same rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.tools.heads import HEADS, batch_for


pytest.importorskip("accelerate", reason="accelerate is not installed")
ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys

import torch
from accelerate import Accelerator

import hf_tinybert

accelerator = Accelerator(cpu=True)
given = torch.load(sys.argv[1], weights_only=True)
gradients = {}
for name, halves in given["batches"].items():
    torch.manual_seed(0)
    model = getattr(hf_tinybert, name).from_pretrained(f"{sys.argv[2]}/{name}").train()
    model = accelerator.prepare(model)
    for _ in range(2):  # an unused parameter is told at the second step
        model.zero_grad()
        accelerator.backward(model(**halves[accelerator.process_index], num_items_in_batch=given["items"][name]).loss)
    model = accelerator.unwrap_model(model)
    gradients[name] = {key: parameter.grad for key, parameter in model.named_parameters()}
if accelerator.is_main_process:
    torch.save(gradients, sys.argv[3])
    print("processes", accelerator.num_processes, accelerator.distributed_type.value)
accelerator.end_training()
"""


def halves_of(batch):
    return [{name: values[rows] for name, values in batch.items()} for rows in (slice(0, 2), slice(2, 4))]


def test_two_processes_give_the_gradients_of_one_without_looking_for_unused_parameters(
    tiny_model, tiny_tokenizer, tmp_path
):
    batches, items, expected = {}, {}, {}
    for model_class in HEADS:
        name = model_class.__name__
        model = tiny_model(model_class, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model.save_pretrained(tmp_path / name)
        batch = batch_for(model_class, tiny_tokenizer)
        if "labels" in batch and batch["labels"].shape == batch["input_ids"].shape:
            batch["labels"][2:] = -100  # the second process has none
        items[name] = int((batch.get("labels", torch.ones(4)) != -100).sum())
        model.train()(**batch).loss.backward()
        expected[name] = {key: parameter.grad / 2 for key, parameter in model.named_parameters()}  # DDP takes the mean
        batches[name] = halves_of(batch)
    torch.save({"batches": batches, "items": items}, tmp_path / "given.pt")
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]

    result = subprocess.run(
        [*launch, *(str(tmp_path / name) for name in ("program.py", "given.pt", ".", "gradients.pt"))],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )

    assert result.returncode == 0, result.stderr[-3000:]
    assert "processes 2 MULTI_CPU" in result.stdout
    gradients = torch.load(tmp_path / "gradients.pt", weights_only=True)
    for name, of_model in expected.items():
        for key, gradient in of_model.items():
            torch.testing.assert_close(gradients[name][key], gradient, rtol=0, atol=1e-5, msg=f"{name} {key}")


FSDP_PROGRAM = """
import sys

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin

import hf_tinybert

plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["TinyBertLayer"]
)
accelerator = Accelerator(fsdp_plugin=plugin)
for name, batch in torch.load(sys.argv[1], weights_only=True).items():
    model = getattr(hf_tinybert, name).from_pretrained(f"{sys.argv[2]}/{name}").train()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for _ in range(3):
        loss = model(**{key: values.to(accelerator.device) for key, values in batch.items()}).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    accelerator.print(name, *losses)
accelerator.end_training()
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="accelerate shards models on CUDA only: untested here")
def test_sharded_training_starts_from_the_loss_of_one_process_and_lowers_it(tiny_model, tiny_tokenizer, tmp_path):
    batches, expected = {}, {}
    for model_class in HEADS:
        model = tiny_model(model_class, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model.save_pretrained(tmp_path / model_class.__name__)
        batches[model_class.__name__] = batch_for(model_class, tiny_tokenizer)
        expected[model_class.__name__] = model.train()(**batches[model_class.__name__]).loss.item()
    torch.save(batches, tmp_path / "batches.pt")
    (tmp_path / "program.py").write_text(FSDP_PROGRAM, encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "gpu"]

    result = subprocess.run(
        [*launch, *(str(tmp_path / name) for name in ("program.py", "batches.pt", "."))],
        env=os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )

    assert result.returncode == 0, result.stderr[-3000:]
    losses = {name: list(map(float, rest)) for name, *rest in map(str.split, result.stdout.splitlines())}
    assert losses.keys() == expected.keys()
    for name, (first, *_, last) in losses.items():
        assert first == pytest.approx(expected[name], rel=1e-4) and last < first
