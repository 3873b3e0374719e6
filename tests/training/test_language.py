import pytest

from training.language import detect_language


CHINESE = "房间很干净，服务员 very nice，WiFi 也快，下次还会来。"
JAPANESE = "部屋はとてもきれいで、スタッフも親切でした。また来ます。"
ENGLISH = "The room was clean and the staff were kind. We liked that it is near the station, and you have a view."
GERMAN = "Das Zimmer war sauber und die Leute waren sehr nett. Wir kommen in einem Jahr gern wieder an diesen Ort."
DUTCH = "De kamer was schoon en het personeel was vriendelijk. Dit is een goed hotel of je nu lang of kort blijft."
RUSSIAN = "Номер был чистый, персонал вежливый."


@pytest.mark.parametrize(
    "texts, language",
    [
        ([CHINESE], "zh"),
        ([ENGLISH], "en"),
        ([ENGLISH.upper()], "en"),
        ([JAPANESE], None),
        ([GERMAN], None),
        ([DUTCH], None),
        ([RUSSIAN], None),
        (["12345 !!! 😀"], None),
        ([], None),
        ([ENGLISH, CHINESE], None),
    ],
)
def test_only_clear_chinese_and_english_are_named(texts, language):
    assert detect_language(texts) == language
