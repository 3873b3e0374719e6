"""The notebook runs from its first cell to its last, and shows what it did on a machine that nobody is named by."""

import getpass
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient


ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "from_text_to_classifier.ipynb"
LAST = "import json; print(json.dumps({'losses': losses, 'filled': answers, 'said': answer, 'scores': scores}))"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_notebook_learns_and_answers(notebook, tmp_path, monkeypatch):
    """Cut short; a cell at its end tells what it has come to."""
    monkeypatch.setenv("NOTEBOOK_QUICK", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook.cells.append(nbformat.v4.new_code_cell(LAST))

    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()

    (told,) = notebook.cells[-1].outputs
    told = json.loads(told.text)
    assert len(told["losses"]) == 6
    assert told["losses"][-1] < told["losses"][0] - 0.3
    assert len(told["filled"]) == 5 and all(answer["token_str"] for answer in told["filled"])
    assert told["said"]["label"] in ("好", "差")
    assert told["scores"]["this model"] > 0.5
    assert (tmp_path / "runs" / "notebook" / "classifier" / "modeling_tinybert.py").is_file()


def test_notebook_shows_a_whole_run_and_no_trace_of_the_machine(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    shown = json.dumps(outputs, ensure_ascii=False)
    for words in ("parameters; ln V is", "TF-IDF + logistic regression", "好 ", "差 ", "'loss'"):
        assert words in shown
    assert not re.search(r"/(home|root|tmp|work|Users|usr|opt|var|mnt)\b|[A-Z]:\\\\|site-packages", shown)
    assert len(getpass.getuser()) < 4 or not re.search(rf"\b{re.escape(getpass.getuser())}\b", shown)
    assert NOTEBOOK.stat().st_size < 300_000


def test_notebook_explains_itself_in_both_languages(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            assert re.search("[a-z]{4}", cell.source) and re.search("[一-龥]{2}", cell.source)
