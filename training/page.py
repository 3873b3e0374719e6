"""The page to try models on, `model_cards/space/app.py`, on this machine: `python -m training demo --page`."""

import importlib.util
from pathlib import Path
from types import ModuleType

from training.clock import say
from training.errors import UserError
from training.loading import check_folder, check_own
from training.run_folder import read_json
from training.space import TEMPLATE
from training.upload import APP_FILE, CONFIG_FILE


LOOPBACK = "127.0.0.1"


def show(folders: list[str]):
    """Serve the page to this machine alone, on a free port, until Ctrl-C.

    Args:
        folders: Of models; the page shows what they offer together.

    Raises:
        UserError: If a folder holds no model of this project, or Gradio is not installed.
    """
    for folder in folders:
        check_folder(folder, "demo")
        check_own(folder, read_json(Path(folder) / CONFIG_FILE))
    app = load_app()
    page = app.build(folders)
    _, url, _ = app.serve(page, server_name=LOOPBACK, share=False, prevent_thread_lock=True, quiet=True)
    say(f"the page is at {url} on this machine alone; Ctrl-C ends it")
    page.block_thread()


def load_app() -> ModuleType:
    """The program of the page as a module.

    Raises:
        UserError: If Gradio is not installed.
    """
    if importlib.util.find_spec("gradio") is None:
        raise UserError("the page needs Gradio: pip install 'hf-tinybert[demo]'")
    import hf_tinybert  # noqa: F401 - with it loaded, the code that lies in the folders is not run

    spec = importlib.util.spec_from_file_location("tinybert_page", TEMPLATE / APP_FILE)
    assert spec is not None and spec.loader is not None
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    return app
