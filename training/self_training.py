"""A student that learns a teacher's answers to raw text beside the labelled rows.

A few thousand labelled rows are learnt by heart. So a first model, the teacher, is fine-tuned on them and answers raw
texts of the same kind; the student starts from the same encoder again and learns the rows and these answers, as
probabilities (Hinton et al. 2015, "Distilling the Knowledge"; with words hidden from the student but not from the
teacher, Xie et al. 2020, "Self-training with Noisy Student"). training/EXPERIMENTS.md has the figures.
"""

import hashlib
import typing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training import processes, run_folder
from training.arguments import FinetuneArguments
from training.clock import say
from training.errors import UserError
from training.labelled import SINGLE_LABEL, LabelledData


if typing.TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

TEACHER = "teacher"  # its checkpoints, in the training folder
ANSWERS_FILE = "answers.npy"
MOST_TEXTS = 100_000


@dataclass(frozen=True)
class RawTexts:
    """Texts without a label.

    Args:
        texts: `n` of them, in the order of their files.
        fingerprint: Of the texts in their order.
    """

    texts: list[str]
    fingerprint: str


def check_arguments(arguments: FinetuneArguments):
    """Raise a `UserError` unless a teacher's answers are a label's probabilities for one text."""
    if not arguments.raw_files:
        if arguments.raw_texts is not None:
            raise UserError("--raw_texts is of no use without --raw_files; leave it out")
        return
    if arguments.task != "sequence-classification":
        raise UserError(f"--raw_files is of no use to --task {arguments.task}; leave it out")
    if arguments.text_pair_column is not None:
        raise UserError("--raw_files holds single texts; with --text_pair_column leave it out")
    if (arguments.problem_type or SINGLE_LABEL) != SINGLE_LABEL:
        raise UserError(f"--raw_files is of no use to --problem_type {arguments.problem_type}; leave it out")


def read_raw_texts(arguments: FinetuneArguments, training: LabelledData, validation: LabelledData) -> RawTexts:
    """The raw texts to learn from, evenly chosen if there are more than `arguments.raw_texts` or `MOST_TEXTS`.

    Says what was left out.

    Those that stand in the labelled rows are left out: in the validation rows since learning from them would flatter
    the score, in the training rows since their labels are known.

    Raises:
        UserError: If a file cannot be read, or no text is left.
    """
    from training.corpus import clean_text, load_corpus  # seconds: after every check

    corpus, report = load_corpus(arguments.raw_files, None, arguments.text_column, arguments.encoding)
    for line in report.lines():
        print(line)
    known = {clean_text(text)[0] for data in (training, validation) for text in data.texts}
    texts = [text for text in corpus["text"] if text not in known]
    names = ", ".join(arguments.raw_files or [])
    if not texts:
        raise UserError(f"--raw_files {names}: every text of it stands in the labelled rows; give others")
    if len(texts) < report.documents:
        print(f"left out: {report.documents - len(texts):,} raw texts that stand in the labelled rows")
    most = arguments.raw_texts or MOST_TEXTS
    if len(texts) > most:
        print(f"taken: {most:,} of {len(texts):,} raw texts, evenly (--raw_texts)")
        chosen = np.linspace(0, len(texts), most, endpoint=False).astype(int)
        texts = [texts[index] for index in chosen]
    return RawTexts(texts, hashlib.blake2b("\n".join(texts).encode("utf-8"), digest_size=16).hexdigest())


def load_answers(folder: Path) -> np.ndarray | None:
    """The answers that `keep_answers` left in a training folder, if they are whole."""
    kept = folder / run_folder.PREPARED
    if not kept.exists():
        return None
    damaged = run_folder.find_damage(kept)
    if damaged is not None:
        say(f"the teacher's answers are damaged ({damaged}): it answers again")
        return None
    return np.load(kept / ANSWERS_FILE, allow_pickle=False)


def keep_answers(folder: Path, answers: np.ndarray):
    """Keep the teacher's probabilities `(n, num_labels)` in a training folder, for a run that is resumed."""
    with run_folder.written_whole(folder / run_folder.PREPARED) as kept:
        np.save(kept / ANSWERS_FILE, answers, allow_pickle=False)


def teacher_answers(folder: Path, answer: typing.Callable[[], np.ndarray]) -> np.ndarray:
    """The kept answers, or those that `answer` gives, the same in all processes; only the main one keeps them."""
    answers = processes.from_main(load_answers(folder) if processes.is_main() else None)
    if answers is None:
        answers = answer()
        if processes.is_main():
            keep_answers(folder, answers)
    return answers


def with_answers(
    rows: "Dataset",
    raw: RawTexts,
    answers: np.ndarray,
    tokenizer: "PreTrainedTokenizerBase",
    max_length: int,
    epochs: float,
) -> "Dataset":
    """What a student learns, which is printed: the labelled rows, several times, and the raw texts, once.

    Args:
        rows: Encoded, `label` a class id.
        answers: Probabilities (n, num_labels) of the raw texts.
        max_length: Longest text in tokens; longer ones are cut.
        epochs: How often the labelled rows come, rounded, at least once.

    Returns:
        Rows whose `label` is a list of probabilities.
    """
    from datasets import Dataset, concatenate_datasets

    from training.classification import encode

    certain = np.eye(answers.shape[1], dtype=np.float32)[np.asarray(rows["label"])]
    encoded, _ = encode(tokenizer, raw.texts, None, max_length)
    labelled_rows = rows.remove_columns("label").add_column("label", certain.tolist())
    answered = Dataset.from_dict({**encoded, "label": answers.astype(np.float32).tolist()})
    times = max(1, round(epochs))
    print(f"the student learns the training rows {times} times and {len(answered):,} answers once")
    return concatenate_datasets([*[labelled_rows] * times, answered.cast(labelled_rows.features)])
