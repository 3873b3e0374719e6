"""`model_cards/ablations.md` against the experiment log that it sums up."""

import re
from pathlib import Path


ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "model_cards" / "ablations.md").read_text(encoding="utf-8")
LOG = (ROOT / "training" / "EXPERIMENTS.md").read_text(encoding="utf-8")
GROUPS = ["Vocabulary", "Masking", "Architecture", "Optimisation", "Text", "Fine-tuning", "Distillation"]


def test_each_group_is_one_table_of_what_change_figure_and_whether_it_was_kept():
    assert re.findall(r"^## (.+)$", TABLES, flags=re.M) == GROUPS
    for group in re.split(r"^## .+$", TABLES, flags=re.M)[1:]:
        header, rule, *rows = group.strip().splitlines()
        assert (header, rule) == ("| what | change | figure | kept |", "|---|---|---|---|")
        assert rows and all(len(row.split("|")) == 6 and row.split("|")[3].strip() for row in rows), group


def test_every_figure_stands_in_the_log():
    figures = set(re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", TABLES.partition("## ")[2]))
    logged = set(re.findall(r"(?<![\d.])\d+\.\d+(?![\d.]\d)", LOG))
    assert len(figures) > 80 and figures <= logged, sorted(figures - logged)
