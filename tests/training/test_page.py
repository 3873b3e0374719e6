"""The page to try models on: its answers against transformers' own pipelines, and in a browser."""

import json
import re
import shutil
import time
import urllib.request

import pytest
import torch
from transformers import pipeline

from hf_tinybert import (
    TinyBertConfig,
    TinyBertForMaskedLM,
    TinyBertForSequenceClassification,
    TinyBertForTokenClassification,
)
from training.__main__ import main
from training.page import load_app


SENTENCE = "我们喜欢这本书，no 7 ok。"
GAP = "我们[MASK]这本书。"


@pytest.fixture(scope="module")
def app():
    return load_app()


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tokenizer):
    """Folders of untrained models whose weights are large enough for their answers to differ from text to text."""
    root = tmp_path_factory.mktemp("models")
    size = {"vocab_size": len(tokenizer), "initializer_range": 0.3, "max_position_embeddings": 96}
    labels = {"id2label": {0: "差<b>", 1: "好"}, "label2id": {"差<b>": 0, "好": 1}}
    models = {
        "encoder": TinyBertForMaskedLM(TinyBertConfig(**size)),
        "sentiment": TinyBertForSequenceClassification(TinyBertConfig(**size, **labels)),
        "several": TinyBertForSequenceClassification(
            TinyBertConfig(**size, **labels, problem_type="multi_label_classification", num_hidden_layers=3)
        ),
        "stars": TinyBertForSequenceClassification(TinyBertConfig(**size, num_labels=1, problem_type="regression")),
        "tags": TinyBertForTokenClassification(TinyBertConfig(**size)),
    }
    for name, model in models.items():
        torch.manual_seed(0)
        model.init_weights()
        model.save_pretrained(root / name)
        tokenizer.save_pretrained(root / name)
    return {name: str(root / name) for name in models}


@pytest.fixture(scope="module")
def encoders(app, folders):
    return {name: app.load(folder) for name, folder in folders.items()}


def ask(app, encoder, kind, text, *choices, language="en") -> str:
    return app.answer(kind, {"it": encoder}, language, "it", text, *choices)


# The answers


def test_folder_offers_the_head_that_it_was_saved_with(app, encoders):
    offers = {name: encoder.offers for name, encoder in encoders.items()}
    classify = dict.fromkeys(("sentiment", "several", "stars"), app.CLASSIFY)
    assert offers == {"encoder": app.FILL, "tags": None} | classify


@pytest.mark.parametrize("written", ["[MASK]", "[mask]", "【MASK】", "__", "_____"])
def test_gap_is_filled_as_by_the_pipeline_however_it_is_written(app, encoders, folders, written):
    (answers,), read, all_tokens = app.fill_mask(encoders["encoder"], GAP.replace("[MASK]", written))

    expected = pipeline("fill-mask", model=folders["encoder"], top_k=app.ANSWERS)(GAP)
    assert [name for name, _ in answers] == [answer["token_str"].strip() for answer in expected]
    assert [score for _, score in answers] == pytest.approx([answer["score"] for answer in expected], rel=1e-4)
    assert read == all_tokens


def test_each_of_several_gaps_has_its_answers(app, encoders):
    shown = ask(app, encoders["encoder"], "fill", "我[MASK]这[MASK]。")
    assert shown.count('class="bar"') == 2 * app.ANSWERS and "Gap 1" in shown and "Gap 2" in shown


@pytest.mark.parametrize("name", ["sentiment", "several", "stars"])
def test_scores_are_those_of_the_pipeline(app, encoders, folders, name):
    verdict = app.classify(encoders[name], SENTENCE)

    (expected,) = pipeline("text-classification", model=folders[name], top_k=None)([SENTENCE])
    assert [label for label, _ in verdict.scores] == [answer["label"] for answer in expected]
    assert [score for _, score in verdict.scores] == pytest.approx([answer["score"] for answer in expected], rel=1e-4)
    assert (verdict.explained is None) == (name == "stars")


def test_what_a_token_adds_is_the_log_odds_lost_where_it_is_hidden(app, encoders):
    encoder = encoders["sentiment"]
    verdict = app.classify(encoder, SENTENCE)

    ids = torch.tensor([encoder.tokenizer(SENTENCE)["input_ids"]])
    masks = torch.ones(ids.shape[1] - 1, ids.shape[1], dtype=torch.long)
    masks[1:, 1:-1].fill_diagonal_(0)
    with torch.no_grad():
        whole, *without = (
            encoder.model(input_ids=ids, attention_mask=mask[None]).logits[0].softmax(-1) for mask in masks
        )
    label = int(whole.argmax())
    odds = [torch.log(row[label] / (1 - row[label])).item() for row in (whole, *without)]
    assert [value for *_, value in verdict.contributions] == pytest.approx(
        [odds[0] - value for value in odds[1:]], abs=1e-3
    )
    assert max(abs(value) for *_, value in verdict.contributions) > 0.1
    pieces = [SENTENCE[start:end] for start, end, _ in verdict.contributions]
    assert "".join(pieces) == SENTENCE.replace(" ", "") or "".join(pieces) == SENTENCE


def test_long_text_is_hidden_in_at_most_so_many_parts_that_cover_what_is_read(app, encoders, monkeypatch):
    monkeypatch.setattr(app, "MAX_HIDDEN", 10)
    text = SENTENCE * 20
    verdict = app.classify(encoders["sentiment"], text)

    assert 5 <= len(verdict.contributions) <= 10
    assert verdict.num_read == 96 < verdict.num_tokens
    starts, ends = zip(*[(start, end) for start, end, _ in verdict.contributions], strict=True)
    assert starts[0] == 0 and all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert f"Only the first 96 of {verdict.num_tokens} tokens are read" in ask(
        app, encoders["sentiment"], "classify", text
    )


@pytest.mark.parametrize("layer, head", [(0, 0), (1, 3), (1, None)])
def test_attention_is_that_of_the_layer_and_head(app, encoders, layer, head):
    encoder = encoders["encoder"]
    tokens, weights, num_tokens = app.attend(encoder, SENTENCE, layer, head)

    batch = encoder.tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad():
        expected = encoder.model(**batch, output_attentions=True).attentions[layer][0]
    expected = expected[head] if head is not None else expected.sum(0) / 4
    torch.testing.assert_close(torch.tensor(weights), expected)
    assert [sum(row) for row in weights] == pytest.approx([1.0] * num_tokens, abs=1e-4)
    assert tokens[0] == "[CLS]" and tokens[-1] == "[SEP]" and len(tokens) == num_tokens


def test_attention_of_a_long_text_shows_its_beginning_and_says_so(app, encoders):
    shown = ask(app, encoders["tags"], "attention", SENTENCE * 5, 0, -1)
    assert shown.count("<rect") == app.MAX_SHOWN**2
    assert f"The first {app.MAX_SHOWN} of" in shown


@pytest.mark.parametrize("kind, name", [("fill", "encoder"), ("classify", "sentiment"), ("attention", "tags")])
@pytest.mark.parametrize(
    "text, message",
    [("", "write a text first"), (" \n", "write a text first"), ("好" * 10_000, "10,000 characters")],
)
def test_text_that_will_not_do_gets_a_sentence(app, encoders, kind, name, text, message):
    choices = (0, 0) if kind == "attention" else ()
    shown = ask(app, encoders[name], kind, text, *choices)
    assert 'class="complaint"' in shown and message in shown
    assert re.search("[一-龥]", ask(app, encoders[name], kind, text, *choices, language="zh"))


def test_gap_that_is_missing_or_cut_off_gets_a_sentence(app, encoders):
    assert "Please write [MASK]" in ask(app, encoders["encoder"], "fill", SENTENCE)
    assert "too far back: the model reads 96 tokens" in ask(app, encoders["encoder"], "fill", SENTENCE * 9 + GAP)


def test_what_readers_and_labels_say_is_never_html(app, encoders):
    text = "<script>alert(1)</script>我喜欢[MASK]"
    for kind, name, choices in (("fill", "encoder", ()), ("classify", "sentiment", ()), ("attention", "tags", (0, 0))):
        shown = ask(app, encoders[name], kind, text, *choices)
        assert "<script" not in shown and "<b>" not in shown and "complaint" not in shown


def test_both_languages_say_the_same_things(app):
    fields = {language: {key: set(re.findall(r"{(\w+)}", text)) for key, text in said.items()}
              for language, said in app.TEXTS.items()}  # fmt: skip
    assert fields["en"] == fields["zh"]


# The command


@pytest.fixture
def no_waiting(monkeypatch):
    """Has the verb return instead of waiting for Ctrl-C; the pages that it served, which are closed at the end."""
    import gradio

    pages = []
    monkeypatch.setattr(gradio.Blocks, "block_thread", lambda page: pages.append(page))
    yield pages
    for page in pages:
        page.close(verbose=False)


def test_demo_page_serves_this_machine_and_tells_nobody(folders, no_waiting, capsys):
    assert main(["demo", "--page", "--model", folders["encoder"], folders["sentiment"]]) == 0

    url = re.search(r"http://127\.0\.0\.1:\d+/", capsys.readouterr().out)[0]
    with urllib.request.urlopen(url) as answer:
        assert answer.status == 200
    (page,) = no_waiting
    assert page.server.config.host == "127.0.0.1"
    assert not page.share and page.share_url is None and not page.analytics_enabled


def test_page_without_its_folders_is_one_line(tmp_path, capsys):
    assert main(["demo", "--page", "--output_dir", str(tmp_path / "none")]) == 2
    error = capsys.readouterr().err
    assert f"--model {tmp_path}/none/encoder is no folder; name a folder made by" in error and error.count("\n") == 1

    assert main(["demo", "--model", str(tmp_path)]) == 2
    assert "give --page with it" in capsys.readouterr().err


# In a browser

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1000, "height": 900, "deviceScaleFactor": 1, "mobile": False}


class Browser:
    """A headless Chromium that looks at the page."""

    def __init__(self, url: str, language: str):
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", f"accept-lang={language}"):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)
        self.url = url
        self.driver.get(url)

    def wait(self, condition, seconds: float = 120.0):
        """What `condition` gives once it gives something; elements may vanish meanwhile."""
        from selenium.common.exceptions import WebDriverException

        end = time.monotonic() + seconds
        while True:
            try:
                if found := condition():
                    return found
            except WebDriverException:
                pass
            assert time.monotonic() < end, self.driver.find_element("tag name", "body").text
            time.sleep(0.05)

    def find(self, selector: str):
        return self.wait(lambda: self.driver.find_element("css selector", selector))

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.driver.find_elements("css selector", selector)]

    def size(self, **metrics):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open_tab(self, kind: str):
        self.wait(lambda: self.find(f"#tab-{kind}-button").click() or True)
        self.wait(lambda: self.find(f"#run-{kind}").is_displayed())

    def ask(self, kind: str, text: str):
        """Type a text and press the button."""
        self.open_tab(kind)
        # As if pasted: 10,000 key strokes take their time.
        self.driver.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            self.find(f"#text-{kind} textarea"),
            text,
        )
        self.wait(lambda: self.find(f"#run-{kind}").click() or True)

    def answer(self, kind: str) -> str:
        return self.find(f"#answer-{kind} .answer").get_attribute("innerHTML")

    def requests(self) -> set[str]:
        said = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"] for event in said if event["method"] == "Network.requestWillBeSent"]
        return {event["request"]["url"] for event in sent}


@pytest.fixture(scope="module")
def served(app, folders):
    names = [folders[name] for name in ("encoder", "sentiment", "several")]
    page = app.build(names)
    _, url, _ = app.serve(page, server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
    yield url
    page.close(verbose=False)


@pytest.fixture(scope="module")
def browser(served):
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    browser = Browser(served, "zh-CN")
    yield browser
    browser.driver.quit()


def test_page_speaks_the_language_of_the_browser_and_switches(browser):
    browser.wait(lambda: "填空" in browser.texts("[role=tab]"))
    assert browser.find("#title h1").text == "一个小小的 BERT 学到了什么"
    browser.wait(lambda: browser.texts("#answer-fill .bar"))  # it has answered its first example already

    def speaks_english() -> bool:
        browser.find("#language input[value=en]").click()  # again if it came before the page was ready for it
        return {"Fill the gap", "Classify", "Attention"} <= set(browser.texts("[role=tab]"))

    browser.wait(speaks_english)
    browser.wait(lambda: browser.find("#run-fill").text == "Fill")
    assert browser.find("#title h1").text == "What a small BERT has learnt"


def test_typed_gap_is_filled_with_bars(browser, app, encoders):
    browser.ask("fill", GAP)

    (expected,), *_ = app.fill_mask(encoders["encoder"], GAP)
    browser.wait(lambda: browser.texts("#answer-fill .name") == [" ".join(name.split()) for name, _ in expected])
    assert browser.texts("#answer-fill .number") == [f"{score:.1%}" for _, score in expected]
    widths = [bar.size["width"] for bar in browser.driver.find_elements("css selector", "#answer-fill .track div")]
    assert widths == sorted(widths, reverse=True) and widths[0] > 3


def test_typed_text_is_classified_and_explained(browser, app, encoders):
    browser.ask("classify", SENTENCE)

    verdict = app.classify(encoders["sentiment"], SENTENCE)
    # The strongest tokens carry a number.
    browser.wait(
        lambda: re.sub(r"[^\w]|[\d]", "", "".join(browser.texts("#answer-classify .tokens"))).startswith(SENTENCE[:2])
    )
    assert browser.texts("#answer-classify .name") == [label for label, _ in verdict.scores]
    spans = browser.driver.find_elements("css selector", "#answer-classify .tokens span")
    assert [float(span.get_attribute("title")) for span in spans] == [
        pytest.approx(value, abs=0.006) for *_, value in verdict.contributions
    ]
    (heading,) = browser.texts("#answer-classify h4")
    assert heading.endswith(f"“{verdict.explained}”")  # in the language of the page


def test_attention_follows_layer_and_head(browser, encoders):
    browser.ask("attention", SENTENCE)
    squares = len(encoders["encoder"].tokenizer(SENTENCE)["input_ids"]) ** 2
    browser.wait(lambda: browser.answer("attention").count("<rect") == squares)

    for selector in ("#layer input[value='1']", "#head input[value='2']", "#head input[value='-1']"):
        before = browser.answer("attention")
        browser.find(selector).click()
        browser.wait(lambda before=before: browser.answer("attention") != before)


@pytest.mark.parametrize(
    "kind, text, message",
    [
        ("fill", SENTENCE, "Please write [MASK]"),
        ("fill", "", "Please write a text first."),
        ("classify", "好" * 10_000, "This text has 10,000 characters; please give at most 1,000."),
        ("attention", "", "Please write a text first."),
    ],
)
def test_bad_input_is_told_in_a_sentence(browser, kind, text, message):
    browser.ask(kind, text)

    browser.wait(lambda: any(message in said for said in browser.texts(f"#answer-{kind} .complaint")))
    assert not browser.texts(".toast-body") and "Traceback" not in browser.driver.page_source


@pytest.mark.parametrize("kind", ["fill", "classify", "attention"])
def test_page_fits_a_phone_and_a_desktop(browser, kind):
    text = GAP if kind == "fill" else SENTENCE * 3 + "averyveryveryveryveryveryveryveryveryveryverylongword" * 2
    try:
        for metrics in (PHONE, DESKTOP):
            browser.size(**metrics)
            before = browser.answer(kind)
            browser.ask(kind, text if metrics is PHONE else SENTENCE + GAP)
            browser.wait(lambda before=before: browser.answer(kind) != before)
            width = browser.driver.execute_script("return document.documentElement.scrollWidth")
            assert width <= metrics["width"]
            right = browser.driver.execute_script(
                f"return document.querySelector('#answer-{kind} .answer').getBoundingClientRect().right"
            )
            assert right <= metrics["width"]
    finally:
        browser.size(**DESKTOP)


def test_nothing_is_fetched_from_elsewhere_and_nothing_fails(browser):
    asked = browser.requests()
    assert asked and all(url.startswith((browser.url, "data:")) for url in asked), asked
    assert [entry["message"] for entry in browser.driver.get_log("browser") if entry["level"] == "SEVERE"] == []
