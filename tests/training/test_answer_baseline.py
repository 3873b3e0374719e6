from training.answer_baseline import overlap_answers
from training.squad import Question


def ask(question, context):
    return overlap_answers([Question("1", question, context, None, None)])[0]


def test_the_sentence_most_like_the_question_gives_its_longest_new_run():
    context = "李明喜欢下棋。张伟在1988年，出生于哈尔滨市。王芳出生于北京，是一名图书管理员。"
    assert ask("张伟出生于哪里？", context) == "在1988年"
    assert ask("王芳出生于哪里？", context) == "是一名图书管理员"


def test_words_between_spaces_are_compared_without_case():
    context = "Paris is large. The tower was built by Gustave Eiffel in 1889."
    assert ask("Who built the TOWER?", context) == "by Gustave Eiffel in 1889"


def test_a_blank_context_and_one_that_says_nothing_new_have_an_answer_of_their_own():
    assert ask("何处？", " ") == ""
    assert ask("？", "。") == ""
    assert ask("北京在哪", "北京。") == "北京。"
