"""`python -m training bench --suite SUITE`: this project beside its peers, on this machine, in one run."""

import importlib

from training.arguments import BenchArguments
from training.errors import UserError
from training.predict import check_output


SUITES = ("train", "learning", "inference", "corpus")


def main(arguments: BenchArguments):
    """Carry out the verb `bench`: measure, print tables, and write the same figures as JSON if asked.

    Raises:
        UserError: If an argument or the text cannot be used, or a peer died.
    """
    _check(arguments)
    suite = importlib.import_module(f"training.bench.{arguments.suite}")
    from training.bench import report

    report.write(arguments, suite.run(arguments))


def _check(arguments: BenchArguments):
    for name, least in (("rounds", 1), ("max_tokens", 1), ("batch_size", 1)):
        if getattr(arguments, name) < least:
            raise UserError(f"--{name} is {getattr(arguments, name)}, but must be at least {least}")
    if not arguments.seconds > 0:
        raise UserError(f"--seconds is {arguments.seconds}, but must be above 0")
    if arguments.suite == "inference" and arguments.labelled is None:
        raise UserError("--suite inference needs --labelled FILE: texts to answer for, with labels to fit TF-IDF on")
    if arguments.labelled is not None and arguments.suite != "inference":
        raise UserError(f"--labelled is for --suite inference; leave it out with --suite {arguments.suite}")
    if arguments.json is not None:
        check_output(arguments.json, arguments.text, "--json")
