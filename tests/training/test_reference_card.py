import re

import pytest

from training.reference_card import reference_card, verdict, write_reference_card


SUMS = {
    "mini-zh.tar.gz": "ab" * 32,
    "mini-zh-hotels.tar.gz": "cd" * 32,
    "mini-zh-signs.tar.gz": "12" * 32,
    "mini-zh-signs-names.tar.gz": "34" * 32,
}


@pytest.fixture
def report():
    held_out = {"loss": 4.384, "unigram_loss": 7.573, "accuracy": 0.297, "unigram_accuracy": 0.101}
    corpus = {"documents": 132063, "characters": 6300000, "train_documents": 130000, "train_tokens": 3900000}
    row = {
        **{"task": "hotels", "split": "clean", "metric": "accuracy", "baseline_name": "TF-IDF", "baseline": 86.58},
        "pretrained": "mini-zh",
        **{"model": [89.25, 89.58, 89.17], "encoder": [88.42, 89.0, 87.75], "seeds": [0, 1, 2], "rows": 1200},
        **{"median_seed": 0, "median_run": "hotels-clean-0", "lead": {"mean": 2.75, "low": 1.42, "high": 4.11}},
        "command": "python -m training finetune --model mini-zh --seed S",
    }
    run = {
        **{"seed": 0, "parameters": 5100000, "encoder_parameters": 4980000, "steps": 9741, "tokens": 39900000},
        **{"epochs": 10.2, "seconds": 3600.4, "versions": {"torch": "2.13.0", "transformers": "5.24.0"}},
        **{"held_out": held_out, "corpus": {**corpus, "held_out_documents": 2063}, "precision": "bfloat16"},
    }
    names = {
        **row,
        **{
            "task": "names",
            "split": "published",
            "pretrained": "mini-zh-signs",
            "metric": "entity F1",
            "encoder": None,
        },
        "command": "python -m training finetune --model mini-zh-signs --seed S",
    }
    encoder = {
        **{"name": "mini-zh", "text": "zh_reviews/pretrain.txt.gz", "tasks": ["hotels"], "runs": [run]},
        "recipe": {"file": "mini-zh.yaml", "text": "# a comment\nsize: mini\ntime_budget: 60m\n"},
        "command": "python -m training pretrain one",
    }
    signs = {
        **{"name": "mini-zh-signs", "text": "news.txt", "tasks": ["names"]},
        "runs": [{**run, "steps": 8000, "encoder_parameters": 4020000}],
        "recipe": {"file": "mini-zh-signs.yaml", "text": "size: mini\nchinese_tokens: characters\n"},
        "command": "python -m training pretrain other",
    }
    return {
        **{"name": "mini-zh", "quality": "", "budget": "60m", "max_length": 128},
        "news": {"news": 18977, "rows": 19804, "repeated": 505, "shared": 198},
        "news_command": "python -m training.news",
        "inputs": {"zh_reviews/pretrain.txt.gz": {"bytes": 9876543, "sha256": "ef" * 32}},
        "overlap": {
            "zh_reviews/pretrain.txt.gz": {"hotels": 0},
            "hotels/train.tsv": {"hotels": 340},
            "news.txt": {"names": 0},
        },
        **{"encoders": [encoder, signs], "rows": [row, names]},
    }


def test_the_card_says_what_the_result_files_hold(report):
    card = reference_card(report, SUMS, {"mini-zh": "mini-zh-loss.png"})

    for words in (
        "# mini-zh\n\nEncoders from raw text",
        "- `mini-zh`, for hotels: 4,980,000 parameters, embeddings included (5,100,000 with its masked-LM head).\n"
        "- `mini-zh-signs`, for names: 4,020,000 parameters",
        "make quality-zh DATA=FOLDER\n```",
        "| hotels, clean | mini-zh | accuracy | 89.33 ± 0.22 | 88.39 ± 0.63 | 86.58 (TF-IDF) | +2.75 (+1.42 to ",
        "- hotels, clean: beats TF-IDF on 1,200 rows. Seeds 0, 1, 2: 89.25, 89.58, 89.17; its encoder alone 88.42,",
        "| zh_reviews/pretrain.txt.gz | 9,876,543 | `efefefefefefefef…` |",
        "- `mini-zh`: zh_reviews/pretrain.txt.gz, 132,063 documents, 6,300,000 characters",
        "- `mini-zh-signs`: news.txt, 132,063 documents",
        "(18,977 paragraphs), and the raw\ntext of the training rows of entities (19,804); left out are 505 repeated",
        "| training text | hotels | names |\n|---|---|---|\n| zh_reviews/pretrain.txt.gz | 0 |  |\n"
        "| hotels/train.tsv | 340 |  |\n| news.txt |  | 0 |\n",
        "Recipe `mini-zh.yaml`, with a budget of 60m:\n\n```yaml\n# a comment\nsize: mini\ntime_budget: 60m\n```",
        "### mini-zh-signs\n\nRecipe `mini-zh-signs.yaml`",
        "| 0 | 8,000 |",
        "| 0 | 9,741 | 39,900,000 | 10.2 | 1:00:00 | 4.384 (7.573) | 29.7 % (10.1 %) |",
        "Matrix products in bfloat16; torch 2.13.0, transformers 5.24.0.",
        "(mini-zh-loss.png)",
        f"| `mini-zh.tar.gz` | the pre-trained encoder for hotels | `{'ab' * 32}` |",
        f"| `mini-zh-signs.tar.gz` | the pre-trained encoder for names | `{'12' * 32}` |",
        f"| `mini-zh-signs-names.tar.gz` | fine-tuned on names, published, seed 0: entity F1 89.25 | `{'34' * 32}` |",
        "python -m training.news\npython -m training pretrain one\npython -m training pretrain other\n"
        "python -m training finetune --model mini-zh --seed S\n",
        f"| `mini-zh-hotels.tar.gz` | fine-tuned on hotels, clean, seed 0: accuracy 89.25 | `{'cd' * 32}` |",
        "start from one pre-training",
    ):
        assert words in card
    assert "\n\n\n" not in card and "{" not in card and card.endswith("\n")
    assert not re.search(r"\|\n[^|\n]", card), "a table ends with a blank line"


def test_options_pre_trainings_and_a_missing_curve_show(report):
    report["quality"] = "--budget 10m"
    for encoder in report["encoders"]:
        encoder["runs"] *= 2
    card = reference_card(report, SUMS, {})
    assert 'make quality-zh DATA=FOLDER QUALITY="--budget 10m"\n```' in card
    assert "starts from pre-training i modulo 2" in card
    assert "![" not in card and "\n\n\n" not in card


@pytest.mark.parametrize(
    "low, high, words", [(0.1, 2, "beats a CRF"), (-1, 1, "cannot be told from a CRF"), (-2, -0.1, "LOSES to a CRF")]
)
def test_the_verdict_heeds_the_interval(low, high, words):
    assert verdict({"mean": 0, "low": low, "high": high}, "a CRF") == words


def test_the_card_is_written_with_its_curve_and_always_the_same(report, tmp_path):
    (tmp_path / "encoder" / "pictures").mkdir(parents=True)
    (tmp_path / "encoder" / "pictures" / "loss_curve.png").write_bytes(b"a picture")
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        encoders = {"mini-zh": tmp_path / "encoder", "mini-zh-signs": tmp_path / "none"}
        path = write_reference_card(report, SUMS, encoders, tmp_path / name)
        assert sorted(each.name for each in path.parent.iterdir()) == ["mini-zh-loss.png", "mini-zh.md"]
        written.append(path.read_bytes())
    assert written[0] == written[1] == reference_card(report, SUMS, {"mini-zh": "mini-zh-loss.png"}).encode("utf-8")
