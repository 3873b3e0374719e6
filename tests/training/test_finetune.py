import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, BertConfig, BertForMaskedLM, pipeline

from hf_tinybert import TinyBertForSequenceClassification
from tests.training import toy
from training import classification, finetune
from training.__main__ import main
from training.errors import UserError


FAST = ["--epochs", "4", "--batch_size", "8", "--learning_rate", "3e-3", "--max_length", "32"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return toy.save_pretrained(tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    return toy.write_tsv(tmp_path_factory.mktemp("data") / "reviews.tsv", toy.make_rows(80))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pretrained, train_file):
    """A finished run; tests only read it."""
    folder = tmp_path_factory.mktemp("runs") / "model"
    assert run(pretrained, train_file, folder) == 0
    return folder


def run(model, train_file, output_dir, *more):
    words = ["finetune", "--model", model, "--train_file", train_file, "--output_dir", output_dir, *FAST, *more]
    return main([str(word) for word in words])


def results(folder):
    return json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))


def weights(folder):
    return load_file(folder / "model.safetensors")


def same_weights(one, other):
    one, other = weights(one), weights(other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_separable_text_is_learnt_well_above_the_most_frequent_class(finished):
    (scores,) = results(finished)["scores"].values()
    assert scores["majority"]["accuracy"] == 0.5
    assert scores["model"]["accuracy"] >= 0.9
    assert {*scores["model"]} == {*scores["tfidf"]} == {"accuracy", "macro_f1"}


def test_the_pipeline_answers_with_the_labels_of_the_user(finished):
    classify = pipeline("text-classification", model=str(finished))
    assert [answer["label"] for answer in classify(["房间喜欢书", "早餐讨厌"])] == ["好评", "差评"]


def test_the_pipeline_cuts_long_texts_whatever_class_the_tokenizer_came_in(finished, pretrained, log):
    config = json.loads((pretrained / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config["tokenizer_class"] != "TinyBertTokenizer"
    classify = pipeline("text-classification", model=str(finished))
    answers = classify(["喜欢" + "书" * 100, "讨厌"], batch_size=2)
    assert [answer["label"] for answer in answers] == ["好评", "差评"]
    assert log.text == ""


def test_the_folder_holds_what_is_published_and_no_path(finished, train_file):
    assert {path.name for path in finished.iterdir()} >= {
        "config.json",
        "configuration_tinybert.py",
        "eval_results.json",
        "model.safetensors",
        "modeling_tinybert.py",
        "task.json",
        "tokenizer.json",
    }
    for path in finished.glob("*.json"):
        assert str(train_file.parent) not in path.read_text(encoding="utf-8")
    assert not list(finished.glob("checkpoint*")) and not list(finished.glob("*.bin"))


def test_the_tokenizer_is_published_as_it_was_pretrained_with(finished, pretrained):
    old, new = (
        json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")) for folder in (pretrained, finished)
    )
    assert old == new


def test_the_same_seed_gives_the_same_weights_and_another_does_not(finished, pretrained, train_file, tmp_path):
    assert run(pretrained, train_file, tmp_path / "same") == 0
    assert run(pretrained, train_file, tmp_path / "other", "--seed", "1") == 0
    assert same_weights(finished, tmp_path / "same")
    assert not same_weights(finished, tmp_path / "other")


def test_an_interrupted_run_resumes_to_the_same_weights(
    finished, pretrained, train_file, tmp_path, monkeypatch, capsys
):
    def interrupt(*_):
        raise KeyboardInterrupt

    folder = tmp_path / "model"
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "publish", interrupt)
        assert run(pretrained, train_file, folder) == 130
    assert not folder.exists()
    checkpoints = sorted(tmp_path.glob(".model.training/checkpoint-*"), key=lambda path: int(path.name[11:]))
    assert len(checkpoints) == 2
    # epochs 3 and 4 of 4
    shutil.rmtree(checkpoints[-1])
    assert run(pretrained, train_file, folder, "--resume") == 0
    assert f"going on from {checkpoints[0].name}" in capsys.readouterr().out
    assert same_weights(finished, folder)


def test_resume_with_nothing_to_resume_says_so_and_starts_afresh(pretrained, train_file, tmp_path, capsys):
    assert run(pretrained, train_file, tmp_path / "model", "--resume", "--epochs", "0.5") == 0
    assert "nothing to resume: starting afresh" in capsys.readouterr().out
    assert (tmp_path / "model" / "config.json").exists()


def test_resume_with_other_settings_is_refused(pretrained, train_file, tmp_path, capsys):
    folder = tmp_path / ".model.training"
    folder.mkdir()
    (folder / "arguments.json").write_text('{"model": "another"}', encoding="utf-8")
    assert run(pretrained, train_file, tmp_path / "model", "--resume") == 2
    assert "--model was another, is" in capsys.readouterr().err


def test_the_report_says_in_plain_words_that_the_model_loses(pretrained, train_file, tmp_path, capsys):
    assert (
        run(
            pretrained,
            train_file,
            tmp_path / "model",
            "--epochs",
            "0.2",
            "--learning_rate",
            "1e-9",
            "--ngram_buckets",
            "0",
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "the model does NOT beat TF-IDF + logistic regression: accuracy 50.00 < 100.00" in out
    assert 'pipeline("text-classification"' in out


def test_cut_texts_blank_rows_and_shared_rows_are_counted(pretrained, tmp_path, capsys):
    rows = toy.make_rows(20)
    train_file = toy.write_tsv(tmp_path / "train.tsv", [*rows, ("好评", "书" * 40 + "喜欢"), ("好评", " ")])
    dev_file = toy.write_tsv(tmp_path / "dev.tsv", rows[:3])
    assert run(pretrained, train_file, tmp_path / "model", "--validation_file", dev_file, "--epochs", "1") == 0
    out = capsys.readouterr().out
    assert "1 training texts are cut at 32 tokens" in out
    assert "21 of train.tsv, 1 with a blank text dropped" in out
    assert "3 validation rows have the very text of a training row" in out
    assert results(tmp_path / "model")["scores"]["dev.tsv"]["also_in_training"] == 3


def test_several_labels_and_numbers_are_learnt(pretrained, tmp_path):
    for problem_type, labels, metric in (
        ("multi_label_classification", {"好评": "好|全", "差评": "差|全"}, "subset_accuracy"),
        ("regression", {"好评": "1.5", "差评": "-1.5"}, "pearson"),
    ):
        rows = [(labels[label], text) for label, text in toy.make_rows(80)]
        train_file = toy.write_tsv(tmp_path / "train.tsv", rows)
        folder = tmp_path / problem_type
        assert run(pretrained, train_file, folder, "--problem_type", problem_type, "--epochs", "8") == 0
        (scores,) = results(folder)["scores"].values()
        assert scores["model"][metric] > 0.9
        assert scores["majority"][metric] in (0.5, None)
        assert AutoModelForSequenceClassification.from_pretrained(folder).config.problem_type == problem_type


def test_pairs_are_told_apart_by_their_second_text(pretrained, tmp_path):
    rows = [(label, "书店", text) for label, text in toy.make_rows(80)]
    train_file = toy.write_tsv(tmp_path / "train.tsv", rows, header="label\ttext\tother")
    assert run(pretrained, train_file, tmp_path / "model", "--text_pair_column", "other", "--epochs", "8") == 0
    (scores,) = results(tmp_path / "model")["scores"].values()
    assert scores["model"]["accuracy"] >= 0.9


def test_a_bert_folder_is_finetuned_as_well(pretrained, train_file, tmp_path, capsys):
    tokenizer = toy.make_tokenizer()
    shape = dict.fromkeys(("hidden_size", "intermediate_size"), 32) | dict.fromkeys(
        ("num_hidden_layers", "num_attention_heads"), 1
    )
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    assert run(tmp_path / "bert", train_file, tmp_path / "model", "--epochs", "1") == 0
    assert "newly initialised: bert.pooler.dense.bias, bert.pooler.dense.weight" in capsys.readouterr().out


def test_a_checkpoint_that_lacks_weights_of_the_encoder_is_refused(pretrained, tmp_path):
    from safetensors.torch import save_file

    folder = tmp_path / "broken"
    shutil.copytree(pretrained, folder)
    kept = {name: value for name, value in weights(folder).items() if "layers.1" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"lacks \d+ weights of the encoder.*layers\.1"):
        finetune.load_pretrained(str(folder), classification.AUTO_CLASS, {"num_labels": 2}, 0.1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", "rubbish" * 10, "no safetensors"),
        ("config.json", "{", "cannot read"),
        ("config.json", '{"model_type": "tinybert", "hidden_size": 63}', "not a multiple"),
        ("tokenizer.json", "{}", "tokenizer of --model"),
        ("tokenizer.json", '{"added_tokens": [], "model": {"type": "None"}}', "tokenizer of --model"),
        ("tokenizer_config.json", "[]", "tokenizer of --model"),
    ],
)
def test_a_damaged_model_folder_is_one_line(pretrained, train_file, tmp_path, capsys, name, content, message):
    folder = tmp_path / "damaged"
    shutil.copytree(pretrained, folder)
    (folder / name).write_text(content, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    assert run(folder, train_file, tmp_path / "model") == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_tokenizer_without_a_padding_token_is_one_line(pretrained, train_file, tmp_path, capsys):
    folder = tmp_path / "lacking"
    shutil.copytree(pretrained, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    del config["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    assert run(folder, train_file, tmp_path / "model") == 2
    error = capsys.readouterr().err
    assert "no padding token" in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lacking"]


@pytest.mark.parametrize("label, rate", [("1.5", "1e20"), ("1e300", "1e-3")])
def test_a_run_that_ran_away_is_one_line_and_leaves_nothing(pretrained, tmp_path, capsys, label, rate):
    rows = [(label if name == "好评" else "-1", text) for name, text in toy.make_rows(20)]
    train_file = toy.write_tsv(tmp_path / "train.tsv", rows)
    words = ["--problem_type", "regression", "--learning_rate", rate]
    assert run(pretrained, train_file, tmp_path / "model", *words) == 2
    error = capsys.readouterr().err
    assert f"--learning_rate {float(rate)} is likely too high" in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["train.tsv"]


def test_weights_decay_but_not_biases_and_norms(pretrained, train_file, tmp_path):
    from training.arguments import FinetuneArguments

    arguments = FinetuneArguments(
        model=str(pretrained), train_file=str(train_file), output_dir=str(tmp_path / "m"), dropout=0.3
    )
    training, _ = classification.load_split(arguments)
    fields = classification.config_fields(arguments, training)
    model, tokenizer = finetune.load_pretrained(str(pretrained), classification.AUTO_CLASS, fields, 0.3)
    assert model.config.hidden_dropout_prob == model.config.attention_probs_dropout_prob == 0.3
    dataset, _, _ = classification.encode_training(tokenizer, training, 32)
    trainer = finetune.make_trainer(arguments, model, tokenizer, dataset, tmp_path, 1)
    decaying = set(trainer.get_decay_parameter_names(model))
    assert {name for name, value in model.named_parameters() if value.ndim > 1} == decaying


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "{tmp}/none"], "none is no folder"),
        (["--model", "{tmp}"], "holds no model"),
        (["--train_file", "{tmp}/none.tsv"], "none.tsv"),
        (["--text_column", "txt"], "has no column 'txt'"),
        (["--label_column", "labels"], "did you mean 'label'?"),
        (["--train_file", "{tmp}/one.tsv"], "holds one class only"),
        (["--train_file", "{tmp}/same.tsv", "--problem_type", "regression"], "holds one number only (1.5)"),
        (["--train_file", "{tmp}/gap.tsv"], "gap.tsv, line 3: no label"),
        (["--validation_file", "{tmp}/new.tsv"], "'新' (line 2)"),
        (["--problem_type", "regression"], "is not a number"),
        (["--epochs", "0", "--dropout", "1"], "--epochs is 0.0, but must be above 0; --dropout is 1.0"),
        (["--max_length", "2"], "leaves no room for text"),
        (["--report_to", "nowhere"], "--report_to nowhere"),
        (["--output_dir", "{tmp}/taken"], "already holds a model"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_folder(pretrained, train_file, tmp_path, capsys, words, message):
    toy.write_tsv(tmp_path / "one.tsv", [("好评", "喜欢"), ("好评", "书")])
    toy.write_tsv(tmp_path / "same.tsv", [("1.5", "喜欢"), ("1.5", "书")])
    toy.write_tsv(tmp_path / "gap.tsv", [("好评", "喜欢"), ("", "书")])
    toy.write_tsv(tmp_path / "new.tsv", [("新", "书")])
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "config.json").write_text("{}", encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))
    assert run(pretrained, train_file, tmp_path / "model", *(word.format(tmp=tmp_path) for word in words)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_share_of_the_tokens_is_hidden_and_special_ones_stay(tokenizer):
    torch.manual_seed(0)
    words = [i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids]
    input_ids = torch.tensor(words)[torch.randint(len(words), (200, 100))]
    input_ids[:, 0], input_ids[:, 90:] = tokenizer.cls_token_id, tokenizer.pad_token_id
    attention_mask = (input_ids != tokenizer.pad_token_id).long()
    seen = finetune.hide_tokens(input_ids, attention_mask, tokenizer, 0.3)
    assert seen[:, 0].all() and not seen[:, 90:].any()
    assert seen[:, 1:90].float().mean() == pytest.approx(0.7, abs=0.01)
    assert attention_mask[:, :90].all()  # not changed in place


def test_a_hidden_token_leaves_no_trace_in_the_answer(tiny_model, tiny_tokenizer):
    model = tiny_model(TinyBertForSequenceClassification, classifier_pooling="mean").eval()
    batch = tiny_tokenizer(["我爱北京天气很好"], return_tensors="pt")
    seen = finetune.hide_tokens(batch["input_ids"], batch["attention_mask"], tiny_tokenizer, 0.5)
    assert 2 < seen.sum() < seen.numel()
    other = torch.where(seen == 0, tiny_tokenizer.convert_tokens_to_ids("good"), batch["input_ids"])
    assert not torch.equal(other, batch["input_ids"])
    with torch.no_grad():
        logits = [model(input_ids=ids, attention_mask=seen).logits for ids in (batch["input_ids"], other)]
    assert torch.equal(*logits)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_without_its_hidden_tokens_teaches_the_same(tiny_model, tiny_tokenizer, positions, pooling, side):
    torch.manual_seed(0)
    model = tiny_model(
        TinyBertForSequenceClassification, classifier_pooling=pooling, position_embedding_type=positions
    ).double()
    texts = ["我爱北京天气很好", "good book, bad hotel", "很好"]
    batch = dict(tiny_tokenizer(texts, padding=True, padding_side=side, return_tensors="pt"))
    seen = finetune.hide_tokens(batch["input_ids"], batch["attention_mask"], tiny_tokenizer, 0.5)
    labels = {"labels": torch.tensor([0, 1, 1])}

    shorter = finetune.leave_out(batch | labels, seen)

    assert shorter["input_ids"].shape[1] == seen.sum(dim=1).max() < batch["input_ids"].shape[1]
    found = []
    for inputs in (batch | labels | {"attention_mask": seen}, shorter):
        model.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        found.append([loss, *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)])
    assert len(found[0]) == len(found[1]) > 10
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_token_embeddings_learn_at_their_share_of_the_rate(tiny_model):
    model = tiny_model(TinyBertForSequenceClassification)
    embedding = model.get_input_embeddings().weight
    groups = [
        {"params": [weight for weight in model.parameters() if weight.ndim > 1], "weight_decay": 0.01},
        {"params": [weight for weight in model.parameters() if weight.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.5)
    count = sum(len(group["params"]) for group in optimizer.param_groups)

    finetune.slow_down(optimizer, embedding, 0.1)

    assert sum(len(group["params"]) for group in optimizer.param_groups) == count
    rates = {
        id(weight): (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for weight in group["params"]
    }
    assert rates.pop(id(embedding)) == (0.05, 0.01)
    assert {rate for rate, _ in rates.values()} == {0.5}


def test_embeddings_stay_where_their_share_of_the_rate_is_zero(pretrained, train_file, tmp_path):
    assert run(pretrained, train_file, tmp_path / "still", "--embedding_rate", "0", "--weight_decay", "0") == 0
    assert run(pretrained, train_file, tmp_path / "moved", "--embedding_rate", "1") == 0
    name = "tinybert.embeddings.token_embeddings.weight"
    before, still, moved = (weights(folder)[name] for folder in (pretrained, tmp_path / "still", tmp_path / "moved"))
    assert torch.equal(still, before)
    assert not torch.equal(moved, before)


def test_model_is_scored_as_it_computes_when_it_is_loaded(pretrained, train_file, tmp_path, monkeypatch):
    """And not in the precision of training."""
    scored = []
    score_all = classification.score_all
    monkeypatch.setattr("training.precision.fastest_precision", lambda device: "bfloat16")
    monkeypatch.setattr(
        classification,
        "score_all",
        lambda finetuned, *rest: scored.append(finetuned.model) or score_all(finetuned, *rest),
    )
    assert run(pretrained, train_file, tmp_path / "model") == 0
    loaded, ids = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model"), torch.arange(5, 13)[None]
    assert torch.equal(scored[0].eval()(ids).logits, loaded(ids).logits)
