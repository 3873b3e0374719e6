"""`python -m training evaluate`: the scores of a fine-tuned model on labelled text."""

import dataclasses
from pathlib import Path

from training import card, labelled, progress, run_folder
from training.arguments import EvaluateArguments, FinetuneArguments
from training.errors import UserError
from training.predict import Task, check_output, load_finetuned, read_task, tell_how_to_predict
from training.review import review
from training.run_folder import CARD_FILE, RESULTS_FILE, read_json
from training.tasks import task_module


def refit_baselines(folder: str | Path, results: dict):
    """The baselines of the task, fitted anew on the rows that `folder` was fine-tuned on.

    Fitting takes seconds; a stored fit would have to be unpickled.

    Args:
        folder: The model folder; beside it lies what its run was told.
        results: Its `eval_results.json`, which knows the fingerprint of the training rows.

    Returns:
        As `fit_baselines` of the task. `None` where the run's arguments or its training file are gone, or hold other
        rows now.
    """
    path = run_folder.training_dir(folder) / run_folder.ARGUMENTS_FILE
    if not path.is_file():
        return None
    known = {field.name for field in dataclasses.fields(FinetuneArguments)}
    arguments = FinetuneArguments(**{name: value for name, value in read_json(path).items() if name in known})
    module = task_module(arguments.task)
    try:
        training, _ = module.load_split(arguments)
    except UserError:  # a file is gone, or has become another one
        return None
    if labelled.fingerprint(training) != results.get("rows", {}).get("fingerprint"):
        return None
    return module.fit_baselines(training, results["problem_type"])


def main(arguments: EvaluateArguments):
    """Carry out the verb: score the model, print the table, write the scores.

    They go into `eval_results.json` of the model folder, under `scores` and the name of the test file, in place of an
    earlier entry of that name, and from there into the model card; with `--output_file` only there.

    Raises:
        UserError: If the model, the test file or the output file is not as it must be.
    """
    task = read_task(arguments.model)
    folder, name = Path(arguments.model), Path(arguments.test_file).name
    results_path = folder / RESULTS_FILE
    if arguments.output_file is not None:
        results_path = check_output(arguments.output_file, arguments.test_file, "--output_file")
    results = read_json(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else {}
    module = task_module(task.task)
    with progress.step("reading labelled text"):
        data = module.load_test(arguments.test_file, task, arguments.encoding)
    finetuned = load_finetuned(folder)  # before the baselines: a damaged model is told first
    with progress.step("fitting what the model is compared with"):
        baselines = refit_baselines(folder, results)
    scores = module.score_all(finetuned, baselines, data)
    if arguments.output_file is not None:
        results = {"model": folder.name, "problem_type": task.problem_type}
    before = {**results}
    replaced = name in results.get("scores", {})
    results["scores"] = {**results.get("scores", {}), name: scores}
    run_folder.write_json(results_path, results)
    print_scores(name, scores, task)
    if run_folder.training_dir(folder).is_dir():  # a downloaded model has none
        language = results.get("card", {}).get("card_language", "en")
        review(run_folder.training_dir(folder), finetuned, data, scores, language)
    if baselines is None and module.BASELINE:
        print(f"the rows it was fine-tuned on are no longer there: {module.BASELINE} cannot be fitted to compare")
    if arguments.output_file is None and "task" in before and not card.refresh_card(folder, before):
        print(f"{folder / CARD_FILE} was edited by hand and stays as it is, without these scores")
    print(f"written to {results_path}{f', in place of an earlier {name}' if replaced else ''}")
    tell_how_to_predict(folder, task)


def print_scores(name: str, scores: dict, task: Task):
    """The rows scored on and what is particular about them, the table, the verdict."""
    module = task_module(task.task)
    rows = f"{scores['rows']:,} rows"
    print(f"scores on {name}: {', '.join([rows, *module.notes(scores, task)])}")
    print("\n".join(f"  {line}" for line in module.table(scores, task.problem_type)))
    print("\n".join(module.verdict(scores, task.problem_type)))
