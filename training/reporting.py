"""`--report_to tensorboard` and `trackio`: metrics kept with the run, in its training folder.

Both would write elsewhere by themselves: beside the date and the name of this machine, or into the user's cache.
Trackio stays on this machine unless its own TRACKIO_SPACE_ID or TRACKIO_SERVER_URL names a server.
"""

import importlib.metadata
import io
import os
from contextlib import redirect_stdout
from pathlib import Path

from packaging.version import Version
from transformers import TrainerCallback, TrainingArguments
from transformers.integrations import TensorBoardCallback, TrackioCallback, get_available_reporting_integrations

from training.clock import say
from training.errors import UserError


OLDEST = {"tensorboard": "2.21", "trackio": "0.43"}  # that were tried; older ones of trackio lack what Trainer calls
PROJECT = "hf-tinybert"  # under which Trackio shows the runs of a folder
INSTALL = "pip install 'hf-tinybert[report]'"


def check_report_to(report_to: str):
    """Raise a `UserError` unless metrics can go there."""
    available = get_available_reporting_integrations()
    if report_to not in ("none", "all", *available):
        hint = f"; {INSTALL}" if report_to in OLDEST else ""
        known = ", ".join(["none", "all", *available])
        raise UserError(f"--report_to {report_to} is unknown or not installed; here there are {known}{hint}")
    for name in OLDEST.keys() & ({*available} if report_to == "all" else {report_to}):
        version = importlib.metadata.version(name)
        if Version(version) < Version(OLDEST[name]):
            raise UserError(f"--report_to {report_to}: {name} {version} is older than {OLDEST[name]}; {INSTALL}")


def own_callbacks(arguments: TrainingArguments) -> list[TrainerCallback]:
    """The callbacks that keep metrics in `output_dir`, in place of those that Trainer would make.

    Args:
        arguments: What is kept is taken out of their `report_to`.
    """
    makers = {"tensorboard": _tensorboard, "trackio": _trackio}
    asked = [name for name in arguments.report_to if name in makers]
    arguments.report_to = [name for name in arguments.report_to if name not in makers]
    return [makers[name](Path(arguments.output_dir) / name) for name in asked]


def _tensorboard(folder: Path) -> TrainerCallback:
    callback = TensorBoardCallback()
    callback.logging_dir = callback.logging_dir or str(folder)  # TENSORBOARD_LOGGING_DIR is the user's word
    say(f"metrics go to {callback.logging_dir} as well; to look at them: tensorboard --logdir {callback.logging_dir}")
    return callback


def _trackio(folder: Path) -> TrainerCallback:
    os.environ.setdefault("TRACKIO_DIR", os.path.abspath(folder))  # read once, when it is imported
    callback = _QuietTrackio()
    where = callback.folder
    say(f"metrics go to {where} as well; to look at them: TRACKIO_DIR={where} trackio show --project {PROJECT}")
    return callback


class _QuietTrackio(TrackioCallback):
    """Trackio without its coloured instructions, which would stand in a log as control characters."""

    @property
    def folder(self) -> Path:
        """Where it writes; that of the first run in a process, also for later ones."""
        from trackio.utils import TRACKIO_DIR

        return TRACKIO_DIR

    def setup(self, args, state, model, **kwargs):
        args.project = PROJECT
        args.run_name = args.run_name or Path(args.output_dir).name.removeprefix(".").removesuffix(".training")
        with redirect_stdout(io.StringIO()):
            super().setup(args, state, model, **kwargs)

    def on_train_end(self, *args, **kwargs):
        with redirect_stdout(io.StringIO()):
            super().on_train_end(*args, **kwargs)
