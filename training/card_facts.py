"""What a model card says beyond what a run measured: languages, licence, origins on the Hub, runs of other seeds."""

import re
from pathlib import Path

from training.arguments import CardArguments
from training.errors import UserError
from training.run_folder import RESULTS_FILE, read_json


LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*|multilingual|code")
LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
CARD_FIELDS = ("card_language", "language", "license", "sibling_runs")
# Each seed may have an encoder and a tokenizer of its own, and another machine, which chooses how it computes.
MAY_DIFFER = ("seed", "model", "tokenizer", "precision", "compile")


def check_card(arguments: CardArguments, settings: dict):
    """Raise a `UserError` for a language or licence that the Hub would refuse, or a sibling run of other settings.

    Args:
        settings: Of this run, as its results will hold them.
    """
    if arguments.language is not None and not LANGUAGE.fullmatch(arguments.language):
        raise UserError(f"--language {arguments.language} is no code; write for example zh or en")
    if arguments.license is not None and not LICENSE.fullmatch(arguments.license):
        raise UserError(f"--license {arguments.license} is no name of the Hub's; write for example apache-2.0 or mit")
    _read_siblings(arguments, settings)


def card_facts(
    arguments: CardArguments, settings: dict, detected: str | None, **origins: str | list[str] | None
) -> dict:
    """What goes into the results for the card, and a line for what is left out.

    Args:
        settings: Of this run.
        detected: The language of the text; `None` if it was not recognised.
        origins: `base_model` and `datasets`; `None` unless they are ids of the Hub.

    Returns:
        `card`: `card_language` and, as far as known, `language`, `license` and the origins; and `siblings`: seed and
        scores of each run of `--sibling_runs`.
    """
    language = arguments.language or detected
    if language is None:
        print("the card states no language: the text is neither clearly Chinese nor English; --language names it")
    if arguments.license is None:
        print("the card states no licence: give --license, or write it into README.md before you publish")
    known = {"language": language, "license": arguments.license, **origins}
    card = {"card_language": arguments.card_language} | {name: value for name, value in known.items() if value}
    siblings = _read_siblings(arguments, settings)
    return {"card": card, **({"siblings": siblings} if siblings else {})}


def model_scores(results: dict) -> dict[str, dict]:
    """The scores of a model by the name of what it was scored on; masked language models are scored on held-out text
    alone, here called ""."""
    if results["task"] == "masked-lm":
        return {"": {name: results["results"][name] for name in ("loss", "accuracy")}}
    return {source: scores["model"] for source, scores in results["scores"].items()}


def without_card_fields(settings: dict) -> dict:
    """Settings of a run without the fields that only shape its card."""
    return {name: value for name, value in settings.items() if name not in CARD_FIELDS}


def _read_siblings(arguments: CardArguments, settings: dict) -> list[dict]:
    """Seed and scores of each sibling run.

    Raises:
        UserError: If one is no finished run, has other settings, or a seed that another one has.
    """
    siblings: list[dict] = []
    for folder in arguments.sibling_runs or []:
        path = Path(folder) / RESULTS_FILE
        if not path.is_file():
            raise UserError(f"--sibling_runs {folder} is no finished run: it holds no {RESULTS_FILE}")
        results = read_json(path)
        theirs = results.get("settings", {})
        names = sorted((settings.keys() | theirs.keys()) - set(MAY_DIFFER))
        other = [name for name in names if settings.get(name) != theirs.get(name)]
        if other:
            raise UserError(
                f"--sibling_runs {folder} differs in more than the seed: {other[0]} is {theirs.get(other[0])!r} "
                f"there, {settings.get(other[0])!r} here"
            )
        taken = [settings["seed"], *(sibling["seed"] for sibling in siblings)]
        if theirs["seed"] in taken:
            raise UserError(f"--sibling_runs {folder} has the seed {theirs['seed']}, as another of these runs")
        siblings.append({"seed": theirs["seed"], "scores": model_scores(results)})
    return siblings
