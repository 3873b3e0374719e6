"""The page of a model as a Gradio Space holds it: the template of `model_cards/space/`, filled."""

from pathlib import Path

from huggingface_hub import SpaceCard

from training.arguments import PublishArguments
from training.card import MODEL_ID
from training.errors import UserError
from training.run_folder import CARD_FILE
from training.upload import APP_FILE, Files, from_bytes


TEMPLATE = Path(__file__).parent.parent / "model_cards" / "space"
REQUIREMENTS = "requirements.txt"


def space_files(arguments: PublishArguments) -> Files:
    """The files of a Space that shows the published model, and the others of `--space_models`.

    Raises:
        UserError: If the template cannot be read.
    """
    models = list(dict.fromkeys([arguments.repo_id, *(arguments.space_models or [])]))
    try:
        app, card, requirements = (
            (TEMPLATE / name).read_text(encoding="utf-8") for name in (APP_FILE, CARD_FILE, REQUIREMENTS)
        )
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; the template of the page is part of a clone") from error
    files = {
        APP_FILE: filled_app(app, models, arguments.space_language),
        CARD_FILE: _filled_card(card, models),
        REQUIREMENTS: requirements,
    }
    return {name: from_bytes(text.encode("utf-8")) for name, text in sorted(files.items())}


def filled_app(app: str, models: list[str], language: str | None) -> str:
    """The program of the page, for these models; `None` as its language follows the browser."""
    for line, value in ((f'MODELS = "{MODEL_ID}"', ",".join(models)), ('LANGUAGE = ""', language or "")):
        assert app.count(f"\n{line}") == 1, line
        app = app.replace(f"\n{line}", f'\n{line.partition(" = ")[0]} = "{value}"')
    return app


def _filled_card(text: str, models: list[str]) -> str:
    card = SpaceCard(text)
    card.data.models = models
    card.text = card.text.replace(f"models: {MODEL_ID}", "models: " + ", ".join(models))
    card.text = card.text.replace(MODEL_ID, ",".join(models))
    return str(card)
