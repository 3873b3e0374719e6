"""What a user's own program sees: every load and pipeline in one clean process, without a warning."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.reference_model import make_reference_model
from training.__main__ import main


ROOT = Path(__file__).parents[1]
PROGRAM = """
import sys

import hf_tinybert
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline

masked_lm, classifier = sys.argv[1:]
AutoModelForMaskedLM.from_pretrained(masked_lm)
AutoModelForSequenceClassification.from_pretrained(classifier)
for folder in (masked_lm, classifier):
    batch = AutoTokenizer.from_pretrained(folder)("我爱你", "天气很好", return_tensors="pt")
    print(*AutoModel.from_pretrained(folder)(**batch).last_hidden_state.shape)

texts = ["我爱[MASK]", "我爱[MASK]" + "你" * 1000, "[MASK]。"]
for task, folder in (
    ("fill-mask", masked_lm),
    ("text-classification", classifier),
    ("feature-extraction", masked_lm),
    ("feature-extraction", classifier),
):
    pipe = pipeline(task, model=folder)
    print(task, len(pipe(texts)), len(pipe(texts, batch_size=4)), bool(pipe(texts[1])))
"""


def test_loads_and_pipelines_give_no_warning_in_a_clean_process(tmp_path, tokenizer_dir):
    torch.save(make_reference_model(vocab_size=30, max_len=24).state_dict(), tmp_path / "model.pt")
    given = ["import", "--state_dict", str(tmp_path / "model.pt"), "--tokenizer", str(tokenizer_dir)]
    folders = [str(tmp_path / head) for head in ("masked-lm", "classification")]
    for folder in folders:
        assert main([*given, "--head", Path(folder).name, "--output_dir", folder]) == 0
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRANSFORMERS"))
    }
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "HF_HUB_OFFLINE": "1"}

    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), *folders],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        cwd=tmp_path,
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n") == [
        *["1 10 64"] * 2,
        "fill-mask 3 3 True",
        "text-classification 3 3 True",
        *["feature-extraction 3 3 True"] * 2,
        "",
    ]
    told = [line for line in result.stderr.replace("\r", "\n").split("\n") if not line.startswith("Loading weights")]
    assert "".join(told) == ""
