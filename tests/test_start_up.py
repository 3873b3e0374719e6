"""How long a newcomer waits before anything happens."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
ROUNDS = 5
# What the package needs of transformers, loaded as transformers loads it.
CLASSES = """
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForMultipleChoice
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification
from transformers import AutoModelForTokenClassification, AutoTokenizer, PreTrainedModel, PreTrainedConfig
from transformers import PreTrainedTokenizerFast, initialization
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils.output_capturing import capture_outputs
from torch.nn.attention.flex_attention import create_block_mask
"""


def seconds(*words: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


@pytest.mark.slow
def test_importing_the_package_costs_no_more_than_the_classes_of_transformers_that_it_needs():
    ours, theirs = [], []
    for _ in range(ROUNDS):  # in turn, so that a busy machine slows both
        theirs.append(seconds("-c", CLASSES))
        ours.append(seconds("-c", "import hf_tinybert"))
    assert statistics.median(ours) < 1.15 * statistics.median(theirs) + 0.3


@pytest.mark.slow
def test_help_answers_within_a_second():
    assert min(seconds("-m", "training", "--help") for _ in range(ROUNDS)) < 1
