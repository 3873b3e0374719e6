"""What Trainer does not do by itself for pre-training: a plan that may change, plain lines, a checkpoint journal."""

import math
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_utils import HubStrategy

from training.clock import as_text, elapsed, say
from training.errors import UserError
from training.schedule import Journal, Plan, learning_rate_factor


LOG_SECONDS = 15.0
# Shares of the budget at which a time budget is compared with the clock again; closer together towards the end.
REPLAN_AT = (0.02, 0.05, *(share / 20 for share in range(2, 20)), 0.96, 0.97, 0.98, 0.99, 0.995)
PLATEAU_SHARE = 0.25  # of the budget, after which a loss on the plateau is worth a warning
PLATEAU_MARGIN = 0.2  # nats below the unigram entropy that a model must reach before it has learnt to use context


class PublicTrainer(Trainer):
    """Trainer that uploads the model and its tokenizer, never what it keeps for itself.

    Trainer pushes its whole output folder: here that is the training folder, with paths of this machine in it. And it
    saves a `training_args.bin`, a pickle that nothing reads again, with the access token in clear if it was given one.
    """

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None):
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            Path(output_dir or self.args.output_dir, TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def push_to_hub(self, *args, **kwargs):
        """As `Trainer.push_to_hub`, out of a folder that holds nothing else; returns when the upload is done."""
        if self.hub_model_id is None:  # named after the output folder, if the arguments name no repository
            self.init_hf_repo(token=kwargs.get("token"), private=kwargs.get("private"))
        kept, name = self.args.output_dir, (self.hub_model_id or "").rpartition("/")[2]
        with tempfile.TemporaryDirectory() as folder:
            self.args.output_dir = folder
            try:
                return super().push_to_hub(*args, **{"model_name": name, **kwargs, "blocking": True})
            finally:
                self.args.output_dir = kept

    def _push_from_checkpoint(self, checkpoint_folder: str):
        if self.args.hub_strategy != HubStrategy.END:
            self.push_to_hub(commit_message=f"Training in progress, step {self.state.global_step}")


class PretrainingTrainer(PublicTrainer):
    """Trainer whose learning rate follows a `Plan` rather than a number of steps fixed at the start."""

    def __init__(self, *args, plan: Plan, warmup_share: float, **kwargs):
        super().__init__(*args, **kwargs)
        self.plan = plan
        self.warmup_share = warmup_share

    def create_scheduler(self, num_training_steps: int, optimizer=None):
        """A schedule over the progress of the plan; `num_training_steps` may change on the way."""
        if self.lr_scheduler is None:
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer,
                # A step's rate is that of its end: the last step's is 0, however abruptly the plan had to end.
                lambda step: learning_rate_factor(self.plan.progress(step + 1), self.warmup_share),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler


@dataclass
class Deadline:
    """When the optimizer must stop: the budget less what evaluation and saving will take."""

    budget_seconds: float
    reserve_seconds: float
    already_spent: float = 0.0  # by the run that this one resumes

    def seconds_left(self) -> float:
        return self.budget_seconds - self.reserve_seconds - self.already_spent - elapsed()


class PlanCallback(TrainerCallback):
    """Keeps the run on its plan, and with a time budget the plan on the clock."""

    def __init__(self, plan: Plan, journal: Journal, deadline: Deadline | None):
        self.plan = plan
        self.journal = journal
        self.deadline = deadline
        self._checks: list[float] = []
        self._measured_from: tuple[int, float] = (0, 0.0)

    def on_train_begin(self, args, state, control, **kwargs):
        state.max_steps = self.plan.max_steps
        self._measured_from = (state.global_step, time.monotonic())
        done = max([self.plan.progress(state.global_step), *(entry["progress"] for entry in self.journal.of("plan"))])
        self._checks = [share for share in REPLAN_AT if share > done]

    def on_step_end(self, args, state, control, **kwargs):
        step = state.global_step
        if self.deadline is None or step >= self.plan.max_steps:
            return
        if self._checks and self.plan.progress(step) >= self._checks[0]:
            while self._checks and self.plan.progress(step) >= self._checks[0]:
                self._checks.pop(0)
            self._replan(state)

    def _replan(self, state):
        step, (since_step, since) = state.global_step, self._measured_from
        step_seconds = (time.monotonic() - since) / (step - since_step)
        self._measured_from = (step, time.monotonic())
        max_steps = step + max(1, int(self.deadline.seconds_left() / step_seconds))
        if abs(max_steps - self.plan.max_steps) > 0.01 * (self.plan.max_steps - step):
            progress = self.plan.progress(step)
            self.plan.replan(step, max_steps)
            self.journal.write("plan", step=step, max_steps=max_steps, progress=progress)
            state.max_steps = max_steps


class SaveCallback(TrainerCallback):
    """Saves every `save_steps` steps (or every tenth of the run) and notes each finished checkpoint in the journal.

    A checkpoint that the journal does not name was cut while it was written, and is not resumed from.
    """

    def __init__(self, plan: Plan, journal: Journal, save_steps: int | None, already_spent: float):
        self.plan = plan
        self.journal = journal
        self.save_steps = save_steps
        self.already_spent = already_spent
        self._tenths = 0

    def on_train_begin(self, args, state, control, **kwargs):
        self._tenths = int(10 * self.plan.progress(state.global_step))

    def on_step_end(self, args, state, control, **kwargs):
        if self.save_steps:
            control.should_save = state.global_step % self.save_steps == 0
        elif int(10 * self.plan.progress(state.global_step)) > self._tenths:
            self._tenths = int(10 * self.plan.progress(state.global_step))
            control.should_save = state.global_step < self.plan.max_steps

    def on_save(self, args, state, control, **kwargs):
        self.journal.write("checkpoint", step=state.global_step, seconds=self.already_spent + elapsed())


@dataclass
class ProgressCallback(TrainerCallback):
    """A plain line every few seconds: step, loss beside what guessing would give, speed, time left."""

    plan: Plan
    tokens_per_step: int
    vocab_size: int
    unigram_entropy: float
    journal: Journal  # a resumed run keeps the curve from its beginning
    loss_curve: list[dict] = field(default_factory=list)
    _last: tuple[int, float] = (0, 0.0)
    _warned: bool = False

    def on_train_begin(self, args, state, control, **kwargs):
        self._last = (state.global_step, time.monotonic())
        self._warned = self.plan.progress(state.global_step) >= PLATEAU_SHARE
        # Points after the checkpoint come again.
        points = {entry["step"]: entry for entry in self.journal.of("loss") if entry["step"] <= state.global_step}
        for step, entry in sorted(points.items()):
            self.loss_curve.append({"step": step, "tokens": entry["tokens"], "loss": entry["loss"]})

    def on_step_end(self, args, state, control, **kwargs):
        due = time.monotonic() - self._last[1] >= LOG_SECONDS
        quarter = not self._warned and self.plan.progress(state.global_step) >= PLATEAU_SHARE
        control.should_log = due or quarter or state.global_step in (1, self.plan.max_steps)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not logs or "loss" not in logs:
            return
        loss, step = logs["loss"], state.global_step
        if not math.isfinite(loss):
            raise UserError(
                f"the loss became {loss} before step {step} (tokens {(step - 1) * self.tokens_per_step:,}): "
                f"--learning_rate {args.learning_rate} is likely too high; give a lower one"
            )
        since_step, since = self._last
        now = time.monotonic()
        self._last = (step, now)
        speed = (step - since_step) * self.tokens_per_step / max(now - since, 1e-9)
        left = (self.plan.max_steps - step) * self.tokens_per_step / max(speed, 1e-9)
        progress = self.plan.progress(step)
        point = {"step": step, "tokens": step * self.tokens_per_step, "loss": loss}
        self.loss_curve.append(point)
        self.journal.write("loss", **point)
        say(
            f"step {step:,}/{self.plan.max_steps:,} ({progress:.0%})  loss {loss:.3f} (ln V "
            f"{math.log(self.vocab_size):.2f}, unigram {self.unigram_entropy:.2f})  {speed:,.0f} tokens/s  "
            f"{as_text(left)} left"
        )
        if progress >= PLATEAU_SHARE and not self._warned:
            self._warned = True
            if loss > self.unigram_entropy - PLATEAU_MARGIN:
                say(
                    f"{progress:.0%} of the budget is spent and the loss ({loss:.2f}) is still on the unigram plateau "
                    f"({self.unigram_entropy:.2f}): the model has learnt at best which words are frequent, and "
                    "nothing from context. Give it a larger budget, or a smaller --size or --vocab_size."
                )


def last_checkpoint(training_dir: Path, journal: Journal) -> Path | None:
    """The newest finished checkpoint, or `None`; checkpoints that were cut while written are removed."""
    finished = {entry["step"] for entry in journal.of("checkpoint")}
    found = {}
    for path in training_dir.glob("checkpoint-*"):
        step = int(path.name.rpartition("-")[2])
        if step in finished:
            found[step] = path
        else:
            say(f"{path.name} was cut while it was written; going back to the one before it")
            shutil.rmtree(path)
    return found[max(found)] if found else None


def keep_memory_between_steps():
    """Have glibc keep freed buffers: fresh pages cost as much as the arithmetic of a small model.

    Elsewhere than on glibc this does nothing. Measured at 2/128, vocabulary 8,000, 64 x 128 tokens, 2 cores: 309 ms a
    step without, 245 ms with.
    """
    import ctypes
    import platform

    if platform.libc_ver()[0] == "glibc" and "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_mmap_threshold, forever = -1, -3, 2**30  # malloc.h
        libc.mallopt(m_mmap_threshold, forever)
        libc.mallopt(m_trim_threshold, forever)
