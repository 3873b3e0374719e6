import json
import re

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from tests.training import toy
from tests.training.pictures import assert_publishable
from training import card, finetune
from training.arguments import FinetuneArguments, PretrainArguments
from training.card_facts import CARD_FIELDS, card_facts, check_card
from training.card_words import CHINESE
from training.errors import UserError
from training.folder_checks import static_checks
from training.lengths import length_histogram
from training.run_folder import training_dir, write_json
from training.tasks import TASKS, task_module


LENGTHS = length_histogram([3, 50, 300], 128, "packed")
PRETRAINED = {
    "task": "masked-lm",
    "results": {"loss": 5.4321, "unigram_loss": 7.7, "accuracy": 0.234, "unigram_accuracy": 0.1},
    "unigram_entropy": 7.6,
    "ln_vocab": 9.4,
    "steps": 2118,
    "tokens": 8_675_328,
    "epochs": 12.2,
    "seconds": 340.0,
    "loss_curve": [{"tokens": 4096, "loss": 8.1}, {"tokens": 8_675_328, "loss": 4.5}],
    "corpus": {
        "files": [{"name": "reviews.txt.gz"}], "documents": 15_321, "characters": 1_126_773,
        "dropped": {"blank": 0, "without a value": 2, "exact duplicates": 1_234},
        "train_documents": 15_173, "held_out_documents": 148, "train_tokens": 679_219, "lengths": LENGTHS,
    },
    "settings": {"train_files": ["reviews.txt.gz"], "size": "tiny", "seed": 3},
    "versions": {"torch": "2.13.0"},
}  # fmt: skip


def scored(accuracy, **more):
    both = {"model": accuracy, "tfidf": 0.8, "majority": 0.5}
    return {
        "rows": 2000, "blank": 0, "cut": 1,
        **{who: {"accuracy": value, "macro_f1": value - 0.01} for who, value in both.items()},
        **more,
    }  # fmt: skip


def classified(**more):
    mistake = {"row": 7, "label": "好|评", "answer": "差评", "probability": 0.99}
    return {
        "task": "sequence-classification",
        "problem_type": "single_label_classification",
        "rows": {"training": 15_321, "blank_dropped": 3, "lengths": LENGTHS | {"beyond": "cut"}},
        "steps": 1916,
        "settings": {"model": "encoder", "train_file": "train.tsv", "seed": 0, "text_pair_column": None},
        "scores": {
            "dev.tsv": scored(0.9, confusion=[[9, 1], [2, 8]], mistakes=[mistake], also_in_training=12),
            "test.tsv": scored(0.7, also_in_training=0),
        },
        **more,
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with two labels; cards are written into copies of what the card needs of it."""
    folder = toy.save_pretrained(tmp_path_factory.mktemp("model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["id2label"] = {"0": "好|评", "1": "差评"}
    write_json(folder / "config.json", config)
    return folder


def write(model, folder, results, card_language="en", **known):
    folder.mkdir()
    for name in ("config.json", "tokenizer_config.json", "model.safetensors"):
        (folder / name).write_bytes((model / name).read_bytes())
    card.write_card(folder, results | {"card": {"card_language": card_language, **known}})
    return (folder / "README.md").read_text(encoding="utf-8")


def check_text(text, folder):
    """What holds of every card."""
    loaded = ModelCard(text)  # the parser of the Hub's own library
    assert loaded.data.library_name == "transformers" and {"tinybert", "custom_code"} <= set(loaded.data.tags)
    assert not re.search(r"\bnull\b|\bNone\b|\bnan\b|Undefined|\{\{|\{%", text)
    assert str(folder.parent) not in text and not re.search(r"(?<![\w.:/])/(home|tmp|work|root|Users)/", text)
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    pictures = {path.relative_to(folder).as_posix() for path in folder.rglob("*.png")}
    assert set(links) == pictures and len(links) == len(pictures)
    for link in links:
        assert_publishable(folder / link)
    return loaded.data


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_pretrained_model_has_a_whole_card_in_either_language(model, tmp_path, language):
    known = {"language": "zh", "license": "apache-2.0", "datasets": ["owner/reviews"]}
    text = write(model, tmp_path / "m", PRETRAINED, language, **known)
    data = check_text(text, tmp_path / "m")
    assert (data.language, data.license, data.pipeline_tag) == ("zh", "apache-2.0", "fill-mask")
    assert data.datasets == ["owner/reviews"] and data.base_model is None
    assert all("[MASK]" in example["text"] for example in data.widget)
    loss, accuracy = data.eval_results
    assert (loss.metric_type, loss.metric_value) == ("loss", 5.4321)
    assert (accuracy.metric_type, accuracy.metric_value) == ("accuracy", 0.234)
    assert "guessing by frequency: 7.7000" in loss.metric_name and "0.1000" in accuracy.metric_name
    assert (loss.dataset_type, loss.dataset_name) == ("owner/reviews", "owner/reviews")
    facts = ("15,321", "1,126,773", "1,234", "679,219", "2,118", "8,675,328", "5:40", "torch 2.13.0", "`size`: tiny")
    for fact in facts:
        assert fact in text, fact
    assert ("种子（3）" if language == "zh" else "One seed (3)") in text
    for way in ('pipeline("fill-mask"', "import hf_tinybert", "hf download OWNER/NAME"):
        assert way in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_classifier_has_a_whole_card_in_either_language(model, tmp_path, language):
    text = write(model, tmp_path / "m", classified(), language, language="en", base_model="owner/base")
    data = check_text(text, tmp_path / "m")
    assert (data.pipeline_tag, data.base_model) == ("text-classification", "owner/base")
    assert data.license is None and data.datasets is None
    found = [(one.dataset_name, one.dataset_type, one.metric_type, one.metric_value) for one in data.eval_results]
    assert found == [
        ("dev.tsv", "csv", "accuracy", 0.9), ("dev.tsv", "csv", "f1", 0.89),
        ("test.tsv", "csv", "accuracy", 0.7), ("test.tsv", "csv", "f1", 0.69),
    ]  # fmt: skip
    assert "TF-IDF + logistic regression: 0.8000; most frequent answer: 0.5000" in data.eval_results[0].metric_name
    assert (tmp_path / "m" / "pictures" / "confusion_1.png").is_file()
    assert "| 7 | 好\\|评 | 差评 | 0.9900 |" in text
    for line in {
        "en": (
            "On dev.tsv, the model beats TF-IDF + logistic regression: accuracy 90.00 > 80.00.",
            "On test.tsv, the model does NOT beat TF-IDF + logistic regression: accuracy 70.00 < 80.00.",
            "12 of the 2,000 rows of dev.tsv have the very text of a training row",
        ),
        "zh": (
            "dev.tsv：本模型优于TF-IDF + 逻辑回归：准确率 90.00 > 80.00。",
            "test.tsv：本模型**没有**优于TF-IDF + 逻辑回归：准确率 70.00 < 80.00。",
            "dev.tsv 的 2,000 行中有 12 行与某个训练文本完全相同",
        ),
    }[language]:
        assert line in text
    assert text.count("very text of a training row" if language == "en" else "完全相同") == 1


def test_a_chinese_card_has_no_english_sentence(model, tmp_path):
    for name, results in (("a", PRETRAINED), ("b", classified())):
        text = write(model, tmp_path / name, results, "zh")
        prose = re.sub(r"```.*?```|`[^`]*`|^---\n.*?\n---$|\([^)]*\)", "", text, flags=re.DOTALL | re.MULTILINE)
        words = re.findall(r"\b(?:the|of|this|model|and|rows|texts|answer|frequency|other)\b", prose)
        assert words == []


def test_the_tasks_have_chinese_words_for_all_that_they_show():
    """The headers and verdicts of every task, with scores made up."""
    for name in TASKS:
        module = task_module(name)
        figures = {"accuracy": 0.5, "macro_f1": 0.5, "precision": 0.5, "recall": 0.5, "f1": 0.5, "exact_match": 0.5}
        who = {"model", "tfidf", "majority", "crf", "overlap", "no_answer"}
        if name == "sequence-classification":
            figures = {"accuracy": 0.5, "macro_f1": 0.5}
        scores = {one: {**figures, "types": {}} if name == "token-classification" else figures for one in who}
        problem_type = "single_label_classification"
        header, rows = module.card_table({"scores": {"dev.tsv": scores}, "problem_type": problem_type})
        for words in [*header, *(row[1] for row in rows)]:
            assert words in CHINESE or words == "F1" or words.startswith("CRF, "), words
        for line in module.verdict(scores, problem_type):
            assert card.verdict_in(line, "zh") != line and "the model" not in card.verdict_in(line, "zh")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_was_never_measured_is_not_made_up(model, tmp_path, language):
    text = write(model, tmp_path / "m", {"task": "masked-lm"}, language)
    data = check_text(text, tmp_path / "m")
    assert (data.language, data.license, data.eval_results, data.get("widget")) == (None, None, None, None)
    assert ("Nothing has been measured yet" if language == "en" else "还没有做过任何测量") in text
    assert not (tmp_path / "m" / "pictures").exists()


def test_the_card_shows_the_spread_over_the_seeds_of_sibling_runs(model, tmp_path):
    siblings = [
        {"seed": seed, "scores": {"dev.tsv": {"accuracy": accuracy, "macro_f1": accuracy}}}
        for seed, accuracy in ((1, 0.88), (2, 0.92))
    ]
    text = write(model, tmp_path / "m", classified(siblings=siblings))
    mean, deviation = np.mean([0.9, 0.88, 0.92]), np.std([0.9, 0.88, 0.92], ddof=1)
    assert f"| dev.tsv | accuracy | {mean:.4f} ± {deviation:.4f} | 0.9000, 0.8800, 0.9200 |" in text
    assert "Over 3 seeds (0, 1, 2), of which this model is 0" in text and "One seed" not in text
    assert "| test.tsv | accuracy | 0.7000 | 0.8000 | 0.5000 |" in text  # not measured in the others: no spread
    assert not re.search(r"test\.tsv.*±", text)


def arguments(**told):
    return FinetuneArguments(model="owner/base", train_file="train.tsv", output_dir="out", **told)


def sibling(folder, settings, **more):
    folder.mkdir()
    write_json(folder / "eval_results.json", classified(settings=settings) | more)
    return str(folder)


def test_wrong_card_options_are_refused_before_any_work(tmp_path):
    settings = {"seed": 0, "epochs": 4.0, "model": "zh-0"}
    other_epochs = sibling(tmp_path / "other", settings | {"seed": 1, "epochs": 2.0})
    same_seed = sibling(tmp_path / "same", settings)
    (tmp_path / "empty").mkdir()
    for told, line in (
        ({"language": "Chinese"}, "--language Chinese is no code"),
        ({"license": "My Licence"}, "--license My Licence is no name of the Hub's"),
        ({"sibling_runs": [other_epochs]}, "epochs is 2.0 there, 4.0 here"),
        ({"sibling_runs": [same_seed]}, "has the seed 0"),
        ({"sibling_runs": [str(tmp_path / "empty")]}, "is no finished run: it holds no eval_results.json"),
    ):
        with pytest.raises(UserError, match=re.escape(line)):
            check_card(arguments(**told), settings)
    good = sibling(tmp_path / "good", settings | {"seed": 1, "model": "zh-1"})
    check_card(arguments(sibling_runs=[good], language="zh", license="apache-2.0"), settings)
    facts = card_facts(arguments(sibling_runs=[good]), settings, "zh")
    (read,) = facts["siblings"]
    assert read["seed"] == 1 and read["scores"]["dev.tsv"] == {"accuracy": 0.9, "macro_f1": pytest.approx(0.89)}


def test_what_is_not_known_is_said_and_left_out(capsys):
    assert card_facts(arguments(), {"seed": 0}, None, base_model=None) == {"card": {"card_language": "en"}}
    language, licence = capsys.readouterr().out.splitlines()
    assert "states no language" in language and "--language" in language
    assert "states no licence" in licence and "--license" in licence
    told = arguments(language="ja", license="mit", card_language="zh")
    known = {"card_language": "zh", "language": "ja", "license": "mit", "base_model": "owner/base"}
    assert card_facts(told, {"seed": 0}, "zh", base_model="owner/base") == {"card": known}
    assert capsys.readouterr().out == ""


def test_both_verbs_take_the_same_card_options():
    for verb in (PretrainArguments, FinetuneArguments):
        assert set(CARD_FIELDS) <= set(verb.__dataclass_fields__)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A classifier fine-tuned on rows of which some are labelled wrong, with a Chinese card."""
    folder = tmp_path_factory.mktemp("runs")
    pretrained = toy.save_pretrained(folder / "pretrained")
    train = toy.write_tsv(folder / "train.tsv", toy.make_rows(40))
    rows = toy.make_rows(24, seed=1)
    rows = [("差评" if index < 4 else label, text) for index, (label, text) in enumerate(rows)]
    validation = toy.write_tsv(folder / "dev.tsv", rows)
    told = FinetuneArguments(
        model=str(pretrained), train_file=str(train), validation_file=str(validation), epochs=6, batch_size=8,
        learning_rate=3e-3, max_length=16, card_language="zh", license="apache-2.0", output_dir=str(folder / "model"),
    )  # fmt: skip
    torch.manual_seed(0)
    results = finetune.finetune(told)
    return folder / "model", results, rows


def test_a_fine_tuned_folder_has_card_and_pictures_that_pass_every_check_of_files(finished):
    folder, results, _ = finished
    text = (folder / "README.md").read_text(encoding="utf-8")
    data = check_text(text, folder)
    assert (data.language, data.license) == ("zh", "apache-2.0")
    assert data.base_model is None  # a folder, not an id of the Hub
    assert {path.name for path in (folder / "pictures").iterdir()} == {"lengths.png", "confusion_1.png"}
    assert [check for check in static_checks(folder) if check.passed is False] == []
    scores = results["scores"]["dev.tsv"]
    assert sum(map(sum, scores["confusion"])) == 24
    assert data.eval_results[0].metric_value == pytest.approx(scores["model"]["accuracy"], abs=1e-4)
    assert card.refresh_card(folder, results)  # as it was written: not taken for one edited by hand


def test_texts_that_were_got_wrong_stay_in_the_training_folder(finished):
    folder, results, rows = finished
    wrong = results["scores"]["dev.tsv"]["mistakes"]
    texts = [rows[one["row"] - 1][1] for one in wrong]
    assert wrong and len(set(texts)) == len(texts)
    table = (training_dir(folder) / "mistakes.tsv").read_text(encoding="utf-8")
    assert_publishable(training_dir(folder) / "explanation.png")
    for text in texts:
        assert text in table
        for path in folder.glob("*.*"):
            assert text.encode() not in path.read_bytes(), path.name
