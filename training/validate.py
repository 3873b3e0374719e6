"""`python -m training validate --model DIR`: everything that a stranger's load could trip over.

The files are checked first, without running anything that lies in the folder. Then a clean process, in which this
package is absent, loads the folder with `trust_remote_code=True` (see `training/stranger.py`), and this process
compares what it sees with what the classes of the package give.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from training import progress
from training.arguments import ValidateArguments
from training.errors import UserError
from training.export import TOLERANCE
from training.folder_checks import failed_to_load, static_checks
from training.next_command import tell_next
from training.onnx_model import MODEL_FILE, ONNX_FOLDER
from training.stranger import (
    CHECKS,
    NUMBERS_FILE,
    REPORT_FILE,
    TEXTS,
    Check,
    CheckError,
    count,
    difference,
    fixed_inputs,
    fixed_outputs,
    head_of,
    model_inputs,
    require,
    run_check,
    same_numbers,
    save_again,
    skip,
    token_ids,
)


CLEAN_PROCESS, *_ = CHECKS
WITH_PACKAGE = ("same numbers", "saved again here", "token ids", "onnx")
SECONDS = 15.0  # what `check_finished` takes on a machine of two cores; most of it is importing transformers
# What a shell may hold that a stranger's does not; HF_TOKEN among it.
OWN_SETTINGS = ("PYTHON", "HF_", "HUGGING", "TRANSFORMERS_")


def main(arguments: ValidateArguments) -> int:
    """Carry out the verb: print the table.

    Returns:
        1 if any check failed, else 0.

    Raises:
        UserError: If there is no such folder.
    """
    if not Path(arguments.model).is_dir():
        raise UserError(f"--model {arguments.model} is no folder; name a folder made by `python -m training pretrain`")
    status = report(check_folder(arguments.model))
    if status == 0:
        tell_next("publish", model=arguments.model, repo_id="OWNER/NAME", dry_run=True)
    return status


def check_folder(folder: str | Path) -> list[Check]:
    """Check a folder in Hub format; it is left as it is.

    Where the files have a fault that stands against loading, or the model code is not that of the package, nothing of
    the folder is run: the checks that would are skipped.

    Returns:
        Every check, in the order of the table.
    """
    folder = Path(os.path.abspath(folder))
    checks = static_checks(folder)
    fault = failed_to_load(checks)
    if fault is not None:
        return checks + [Check(name, None, f"after the failure of: {fault}") for name in (*CHECKS, *WITH_PACKAGE)]
    looking = progress.step("checking as a stranger would load it", own_lines=True)
    with tempfile.TemporaryDirectory() as scratch, _quiet(), looking:
        clean, ids = _ask_stranger(folder, Path(scratch))
        return checks + clean + _compare_with_package(folder, Path(scratch), ids)


def report(checks: list[Check], brief: bool = False) -> int:
    """Print a table of the checks, and how many passed.

    Args:
        brief: Only the lines of the checks that failed or were skipped.

    Returns:
        The exit status: 1 if any failed, else 0.
    """
    states = {True: "ok", False: "FAILED", None: "skipped"}
    width = max(len(check.name) for check in checks)
    for name, passed, detail in checks:
        if not brief or not passed:
            print(f"  {name:<{width}}  {states[passed]:<7}  {detail}")
    passed = [check.passed for check in checks]
    counts = [f"{passed.count(state)} {word}" for state, word in states.items() if passed.count(state)]
    print(f"checked as a stranger would load it: {', '.join(counts)}", flush=True)
    return int(False in passed)


def check_finished(folder: str | Path) -> int:
    """Check the folder that a verb has just made, and print what is not as it should be.

    Returns:
        The exit status of the verb.
    """
    return report(check_folder(folder), brief=True)


@contextlib.contextmanager
def _quiet():
    """Progress bars and notes of transformers would break up the table; the stranger's are what is checked."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    progress.library_bars_off()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _ask_stranger(folder: Path, scratch: Path) -> tuple[list[Check], list[list[int]] | None]:
    """The checks of the clean process, and its token ids; its numbers lie in `scratch`."""
    import torch

    environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN_SETTINGS)}
    environment |= {"HF_HOME": str(scratch / "hf_home"), "HF_HUB_OFFLINE": "1"}
    script = Path(__file__).with_name("stranger.py")
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-I", str(script), str(folder), str(scratch), str(torch.get_num_threads())],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=environment,
        cwd=scratch,
    )
    if result.returncode or not (scratch / REPORT_FILE).is_file():
        words = " ".join(result.stderr.split())[-300:]
        failed = Check(CLEAN_PROCESS, False, f"it ended with exit status {result.returncode}: {words}")
        return [failed, *(Check(name, None, "the clean process ended early") for name in CHECKS[1:])], None
    seen = json.loads((scratch / REPORT_FILE).read_text(encoding="utf-8"))
    first, *others = (Check(*line) for line in seen["checks"])
    first = first._replace(detail=f"{first.detail} ({time.monotonic() - started:.0f} s)")
    return [first, *others], seen["token_ids"]


def _compare_with_package(folder: Path, scratch: Path, ids: list[list[int]] | None) -> list[Check]:
    checks = (
        (_check_numbers, (folder, scratch)),
        (_check_save, (folder,)),
        (_check_token_ids, (folder, ids)),
        (_check_onnx, (folder,)),
    )
    return [run_check(name, check, *given) for name, (check, given) in zip(WITH_PACKAGE, checks, strict=True)]


def _classes(folder: Path) -> tuple[type, type]:
    """The class that was saved, and the Auto class that finds it."""
    import transformers

    import hf_tinybert

    (name,) = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"]
    head = head_of(name)
    assert head is not None  # a static check
    return getattr(hf_tinybert, name, None) or getattr(transformers, name), getattr(transformers, head.auto_class)


def _check_numbers(folder: Path, scratch: Path) -> str:
    from safetensors.torch import load_file

    if not (scratch / NUMBERS_FILE).is_file():
        skip(f"after the failure of: {CLEAN_PROCESS}")
    numbers = [fixed_outputs(model_class.from_pretrained(folder)) for model_class in _classes(folder)]
    by_class, by_auto, remote = *numbers, load_file(scratch / NUMBERS_FILE)
    for other, way in ((by_auto, "its Auto class"), (remote, "its own code in the clean process")):
        require(same_numbers(by_class, other), f"{way} gives other numbers than its class")
    return f"{count(by_class)} by class, by Auto class and by its own code: equal in every bit"


def _check_save(folder: Path) -> str:
    from transformers import AutoTokenizer

    _, auto_class = _classes(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return save_again(auto_class.from_pretrained(folder), tokenizer, auto_class.from_pretrained, folder)


def _check_token_ids(folder: Path, remote: list[list[int]] | None) -> str:
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    if remote is None:
        skip(f"after the failure of: {CLEAN_PROCESS}")
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    raw.no_truncation()
    raw.no_padding()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # A fine-tuned folder takes a typed "[MASK]" for text; tokenizer_config.json says so, tokenizer.json cannot.
    raw.encode_special_tokens = tokenizer.split_special_tokens
    expected = [raw.encode(text).ids for text in TEXTS]
    for found, way in (
        (token_ids(tokenizer), "with hf_tinybert"),
        (remote, "without hf_tinybert"),
    ):
        wrong = next((i for i, ids in enumerate(expected) if found[i] != ids), None)
        if wrong is not None:
            raise CheckError(
                f"AutoTokenizer {way} gives other ids than tokenizer.json, for example for {TEXTS[wrong]!r}"
            )
    return f"{len(TEXTS)} texts, {sum(map(len, expected))} ids: AutoTokenizer with and without us, and tokenizers"


def _check_onnx(folder: Path) -> str:
    files = sorted((folder / ONNX_FOLDER).glob("*.onnx"))
    if not files:
        skip(f"no {ONNX_FOLDER}/ in the folder")
    try:
        import onnxruntime
    except ImportError:
        skip("onnxruntime is not installed (pip install 'hf-tinybert[onnx]')")
    model_class, _ = _classes(folder)
    model = model_class.from_pretrained(folder).float()
    figures = []
    for path in files:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        worst = _onnx_difference(session, model)
        exact = path.name == MODEL_FILE  # others are quantized or of half precision: their figure is only told
        require(worst <= (TOLERANCE if exact else float("inf")), f"{path.name} differs by {worst:.1e}")
        figures.append(f"{path.name} {worst:.1e}")
    return f"largest relative difference from torch: {', '.join(figures)}"


def _onnx_difference(session, model) -> float:
    """The largest difference of any output, over the fixed inputs and a single token."""
    import torch

    batches = fixed_inputs(model.config)
    batches.append((batches[0][0][:1, :1], None))  # another batch size and length
    worst = 0.0
    for ids, mask in batches:
        inputs = model_inputs(model, ids, torch.ones_like(ids) if mask is None else mask)
        with torch.no_grad():
            expected = model(**inputs)
        names = [output.name for output in session.get_outputs()]
        found = session.run(names, {name: value.numpy() for name, value in inputs.items()})
        for name, value in zip(names, found, strict=True):
            apart = difference(expected[name], torch.from_numpy(value))
            worst = max(worst, apart) if apart == apart else float("nan")
    return worst
