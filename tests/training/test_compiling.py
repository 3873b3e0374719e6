import shutil
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM
from tests import stress
from training import pretrain
from training.__main__ import main
from training.arguments import PretrainArguments
from training.compiling import compiled_layers, reason
from training.errors import UserError
from training.schedule import Journal
from training.trainer import SaveCallback


needs_compiler = pytest.mark.skipif(not shutil.which("c++"), reason="compiles for the processor")
BATCH, LENGTH, VOCABULARY = 4, 32, 97


def make_model():
    torch.manual_seed(0)
    config = TinyBertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_attention_heads=2, num_hidden_layers=3, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, position_embedding_type="rotary",
    )  # fmt: skip
    return TinyBertForMaskedLM(config).train()


def batch_of(labelled: int):
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH), generator=torch.Generator().manual_seed(labelled))
    labels = torch.full_like(ids, -100).flatten()
    labels[:labelled] = ids.flatten()[:labelled]
    positions = torch.arange(LENGTH).expand(BATCH, -1)
    mask = torch.ones(BATCH, 1, LENGTH, LENGTH, dtype=torch.bool).tril(8)
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask, "labels": labels.view_as(ids)}


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@needs_compiler
def test_compiled_layers_compute_what_plain_ones_do_for_any_number_of_labels():
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    plain, compiled = make_model(), make_model()
    for model in (plain, compiled):
        model.set_attn_implementation("eager")
    with compiled_layers(compiled):
        for labelled in (40, 70, 100):  # 64, 96 and 128 rows
            losses = [model(**batch_of(labelled)).loss for model in (plain, compiled)]
            for loss in losses:
                loss.backward()
            torch.testing.assert_close(losses[1], losses[0])
            assert graphs() == 2  # a layer within, and the last one
    for (name, weight), (_, other) in zip(plain.named_parameters(), compiled.named_parameters(), strict=True):
        torch.testing.assert_close(other.grad, weight.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_layers_are_plain_again_afterwards():
    model = make_model()
    names = {name: set(vars(module)) for name, module in model.named_modules()}
    with pytest.raises(KeyError), compiled_layers(model):
        assert "forward" in vars(model.tinybert.layers[0])
        raise KeyError
    assert {name: set(vars(module)) for name, module in model.named_modules()} == names


def choose(journal, seconds, **options):
    """The choice where a step takes so many seconds, (without, with) compiling; and which of these were measured."""
    arguments = PretrainArguments(output_dir="x", **options)
    measured = []

    def measure(compiled):
        measured.append(compiled)
        if isinstance(seconds[compiled], Exception):
            raise seconds[compiled]
        return seconds[compiled]

    prepared = SimpleNamespace(facts={"block_size": 128})
    return pretrain._choose_compiling(arguments, prepared, journal, measure), measured


@pytest.mark.parametrize(
    ("options", "seconds", "compiled", "measured"),
    [
        ({"time_budget": "9m"}, (1.0, 0.1), False, []),  # too short to try
        ({"time_budget": "1h"}, (1.0, 0.9), True, [True, False]),
        ({"time_budget": "1h"}, (1.0, 0.99), False, [True, False]),  # hardly faster
        ({"time_budget": "1h"}, (1.0, 1.2), False, [True, False]),
        ({"time_budget": "1h", "compile": False}, (1.0, 0.1), False, []),
        ({"max_steps": 500}, (100.0, 0.1), False, []),
        ({"max_steps": 5000}, (0.1, 0.01), False, [False]),
        ({"max_steps": 5000}, (0.2, 0.1), True, [False, True, False]),
        ({"max_tokens": 32 * 128 * 5000}, (0.2, 0.1), True, [False, True, False]),
        ({"max_steps": 8, "compile": True}, (0.1, 0.2), True, [True, False]),  # as told
    ],
)
def test_layers_are_compiled_if_that_is_measured_to_pay(tmp_path, options, seconds, compiled, measured):
    journal = Journal(tmp_path / "journal.jsonl")
    assert choose(journal, seconds, **options) == (compiled, measured)
    # A resumed run does as the first one did, also where it would pay no more.
    again = Journal(tmp_path / "journal.jsonl")
    assert choose(again, (1.0, 1.0), **options) == (compiled, [True] if compiled else [])
    assert len(again.of("compiling")) == 1


def test_a_machine_that_cannot_compile_is_told_of_in_a_line(tmp_path, capsys):
    broken = (0.2, RuntimeError("\nno C++ compiler found\nmore"))
    assert choose(Journal(tmp_path / "1"), broken, time_budget="1h") == (False, [True])
    assert "layers not compiled: RuntimeError: no C++ compiler found\n" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--compile: .* RuntimeError: no C"):
        choose(Journal(tmp_path / "2"), broken, time_budget="1h", compile=True)
    journal = Journal(tmp_path / "3")
    journal.write("compiling", compiled=True)
    assert choose(journal, broken, time_budget="1h") == (False, [True])
    assert "though this run began so" in capsys.readouterr().out
    assert reason(RuntimeError()) == "RuntimeError"


@needs_compiler
def test_a_compiled_run_that_was_stopped_ends_in_the_weights_of_one_that_was_not(tmp_path, capsys, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    stress.make_data(data)
    argv = partial(stress.ARGVS["pretrain"], data)
    options = ["--max_steps", "6", "--save_steps", "2", "--compile"]
    for name in ("whole", "stopped"):
        torch.compiler.reset()  # as a new process has it
        with monkeypatch.context() as patch:
            if name == "stopped":
                save = SaveCallback.on_step_end

                def stop(self, args, state, control, save=save, **kwargs):
                    save(self, args, state, control, **kwargs)
                    if state.global_step == 5:
                        raise KeyboardInterrupt

                patch.setattr(SaveCallback, "on_step_end", stop)
            assert main([*argv(tmp_path / name), *options]) == (0 if name == "whole" else 130)
    torch.compiler.reset()
    assert main([*argv(tmp_path / "stopped"), *options, "--resume"]) == 0
    out = capsys.readouterr().out
    assert out.count("layers compiled: ") == 2 and "going on from checkpoint-4" in out
    assert stress.weights(tmp_path / "stopped") == stress.weights(tmp_path / "whole")
