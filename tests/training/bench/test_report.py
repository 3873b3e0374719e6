import json

from training.arguments import BenchArguments
from training.bench.report import Goal, Report, Spread, table, write


def test_a_spread_is_median_and_range():
    assert Spread.of([3, 1, 2, 10]) == Spread(2.5, 1, 10)
    assert Spread.of([1234.5]).text("x", 1) == "1,234.5x (1,234.5-1,234.5)"


def test_goals_are_met_at_their_limit_missed_beyond_it_and_open_where_nothing_was_measured():
    assert [Goal("a", value, at_least=2).met for value in (1.9, 2, None)] == [False, True, None]
    assert [Goal("a", value, at_most=2).met for value in (2.1, 2)] == [False, True]
    assert "MISSED" in Goal("a", 1.9, at_least=2).line() and "not measured" in Goal("a", None, at_least=2).line()


def test_the_json_holds_machine_goals_and_figures_and_no_path(tmp_path, capsys):
    file = tmp_path / "f.json"
    arguments = BenchArguments(suite="corpus", text=str(tmp_path / "text.txt"), json=str(file))
    write(arguments, Report({"x": 1}, [Goal("speed", 3.0, at_least=2)], {"more": 2}))
    content = json.loads(file.read_text(encoding="utf-8"))
    assert set(content) == {"suite", "machine", "settings", "seconds", "figures", "goals"}
    assert content["figures"] == {"x": 1} and content["settings"]["more"] == 2
    assert content["goals"] == [{"what": "speed", "value": 3.0, "at_least": 2, "at_most": None, "met": True}]
    assert content["settings"]["text"] == "text.txt" and str(tmp_path) not in file.read_text(encoding="utf-8")
    assert "torch" in content["machine"]["versions"] and content["machine"]["cores"] >= 1
    assert "met" in capsys.readouterr().out


def test_columns_are_aligned(capsys):
    table("t", ("", "a"), [("long name", "1"), ("b", "22")])
    assert capsys.readouterr().out == "\nt\n              a\n  long name   1\n  b          22\n"
