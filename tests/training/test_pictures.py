import threading

import numpy as np
import pytest

from tests.training.pictures import assert_publishable
from training.attribution import Attribution
from training.lengths import BINS, length_histogram
from training.pictures import canvas
from training.pictures.attention import attention_pictures, draw_attention
from training.pictures.confusion import draw_confusion
from training.pictures.explanation import draw_explanation
from training.pictures.lengths import draw_lengths
from training.pictures.loss_curve import draw_loss_curve
from training.pictures.visibility import causal, draw_visibility


needs_font = pytest.mark.skipif(
    canvas.chinese_font() is None, reason="no Chinese font is installed (apt install fonts-noto-cjk)"
)
PRETRAINED = {
    "results": {"loss": 5.4, "unigram_loss": 7.7, "accuracy": 0.23, "unigram_accuracy": 0.1},
    "ln_vocab": 9.4,
    "unigram_entropy": 7.6,
    "loss_curve": [{"tokens": 4096, "loss": 8.1}, {"tokens": 8_675_328, "loss": 4.5}],
}
TOKENS = ["[CLS]", "很干净", "ok", "$5$", "\U0001f600", "\U0001f9a4", "[SEP]"]


@pytest.fixture
def no_chinese_font(monkeypatch):
    monkeypatch.setattr(canvas, "chinese_font", lambda: None)
    canvas._say_no_chinese_font.cache_clear()


def attribution(tokens, scores):
    return Attribution(tokens, list(range(1, len(tokens) - 1)), scores, "好评", 0.9, 2.2, False)


def draw_all(folder, language):
    draw_loss_curve(PRETRAINED, folder / "loss_curve.png", language)
    draw_lengths(length_histogram([3, 50, 300], 128, "cut"), folder / "lengths.png", language)
    draw_confusion([[8, 2], [1, 9]], ["好评", "差评"], "dev.tsv", folder / "confusion.png", language)
    n = len(TOKENS)
    weights = np.random.default_rng(0).dirichlet(np.ones(n), size=(2, 2, n))
    draw_attention(weights, TOKENS, [0, 1], 30, folder / "attention.png", language)
    mask = np.arange(n) < n - 2
    draw_visibility(np.outer(mask, mask), mask, TOKENS, folder / "visibility.png", language)
    draw_explanation(attribution(TOKENS, [0, 1.5, -0.5, 0.1, 0, 0, 0]), folder / "explanation.png", language)
    return sorted(folder.iterdir())


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_picture_is_small_and_holds_nothing_but_itself(tmp_path, language, recwarn):
    paths = draw_all(tmp_path, language)
    assert len(paths) == 6
    for path in paths:
        assert_publishable(path)
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]  # a box in place of a character


def test_the_largest_pictures_are_small_too(tmp_path):
    n, labels = 24, 20
    weights = np.random.default_rng(0).dirichlet(np.full(n, 0.2), size=(12, 12, n))
    (name, layers), *others = attention_pictures(12, 12).items()
    assert (name, layers, len(others)) == ("attention_layer_1.png", [0], 11)
    draw_attention(weights, ["房间"] * n, layers, 80, tmp_path / name, "en")
    confusion = np.random.default_rng(0).integers(0, 999, (labels, labels)).tolist()
    draw_confusion(confusion, ["一个很长很长的标签名字还没有完"] * labels, "dev.tsv", tmp_path / "confusion.png", "en")
    explained = attribution(["房间"] * 128, np.random.default_rng(0).normal(size=128).tolist())
    draw_explanation(explained, tmp_path / "explanation.png", "zh")
    for path in tmp_path.iterdir():
        assert_publishable(path)


def test_threads_that_draw_at_once_do_not_disturb_one_another(tmp_path):
    def draw(name):
        (tmp_path / name).mkdir()
        draw_loss_curve(PRETRAINED, tmp_path / name / "loss_curve.png", "zh")
        draw_confusion([[8, 2], [1, 9]], ["好评", "差评"], "dev.tsv", tmp_path / name / "confusion.png", "en")

    draw("alone")
    threads = [threading.Thread(target=draw, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for path in (tmp_path / "alone").iterdir():
        for name in ("first", "second"):
            assert (tmp_path / name / path.name).read_bytes() == path.read_bytes()


def rendered(text):
    figure = canvas.new_figure(2, 2)
    figure.text(0.5, 0.5, canvas.readable(text), size=40)
    return figure


@needs_font
def test_chinese_characters_are_drawn_each_in_its_own_shape(tmp_path):
    for index, char in enumerate("中国好，。"):  # boxes would all look the same
        canvas.save(rendered(char), tmp_path / f"{index}.png")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 5
    assert canvas.readable("房间很干净，Ok $5 😀") == "房间很干净，Ok $5 😀"
    assert canvas.label_language("zh") == "zh"


def test_characters_that_no_font_has_are_written_as_codes():
    assert canvas.readable("\U0001f9a4") == "\\U0001f9a4"  # a dodo, of Unicode 13
    assert canvas.readable("a\tb\u200b") == "a\\tb\\u200b"


def test_without_a_chinese_font_codes_and_english_labels_are_drawn_and_it_is_said_once(
    tmp_path, no_chinese_font, recwarn, capsys
):
    assert canvas.readable("很ok") == "\\u5f88ok"
    assert canvas.label_language("zh") == "en"
    draw_all(tmp_path, "zh")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]
    canvas.say_if_unreadable(["ok", "很好"])
    canvas.say_if_unreadable(["很好"])
    (line,) = capsys.readouterr().out.splitlines()
    assert "no Chinese font is installed" in line and "apt install fonts-noto-cjk" in line


def test_nothing_is_said_about_fonts_where_no_chinese_is_drawn(no_chinese_font, capsys):
    canvas.say_if_unreadable(["plain", "caf\u00e9"])
    assert capsys.readouterr().out == ""


def test_a_histogram_counts_every_text_once_and_those_beyond_the_limit():
    lengths = [3, 5, 17, 128, 129, 130, 4000]
    histogram = length_histogram(lengths, 128, "cut")
    assert (histogram["texts"], histogram["longer"], histogram["longest"]) == (7, 3, 4000)
    assert histogram["median"] == 128
    assert sum(histogram["counts"]) == 7 and len(histogram["counts"]) == BINS
    width = histogram["width"]
    for at, count in enumerate(histogram["counts"][:-1]):
        assert count == sum(at * width <= length < (at + 1) * width for length in lengths)
    assert histogram["counts"][-1] == sum(length >= (BINS - 1) * width for length in lengths)


def test_the_causal_triangle_leaves_padding_out():
    mask = np.array([True, True, True, False])
    assert causal(mask).astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
