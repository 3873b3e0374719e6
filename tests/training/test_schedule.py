import pytest

from training.schedule import Journal, Plan, learning_rate_factor


def test_a_plan_that_is_kept_is_a_straight_line():
    plan = Plan(10)
    assert [plan.progress(step) for step in (0, 5, 10, 12)] == [0, 0.5, 1, 1]


@pytest.mark.parametrize("new_end", [60, 200])
def test_a_changed_plan_goes_on_without_a_jump_and_still_ends_at_one(new_end):
    plan = Plan(100)
    plan.replan(40, new_end)
    assert plan.max_steps == new_end
    assert plan.progress(40) == pytest.approx(0.4)
    assert plan.progress(40 + (new_end - 40) / 2) == pytest.approx(0.7)
    assert plan.progress(new_end) == 1
    assert plan.progress(20) == pytest.approx(0.2)  # the past stays as it was


def test_a_plan_always_has_a_next_step():
    plan = Plan(100)
    plan.replan(40, 3)
    assert plan.max_steps == 41


def test_learning_rate_rises_then_decays_to_nothing():
    assert [learning_rate_factor(p, 0.1) for p in (0, 0.05, 0.1, 0.55, 1)] == pytest.approx([0, 0.5, 1, 0.5, 0])


@pytest.mark.parametrize(
    "rest", ['{"event": "chec', '{"event": "x"}', "\0\0\0\n", '"书'.encode()[:-1].decode("latin-1")]
)
def test_what_follows_the_cut_is_written_on_a_line_of_its_own(tmp_path, rest):
    path = tmp_path / "journal.jsonl"
    Journal(path).write("plan", step=0)
    with path.open("a", encoding="latin-1") as file:
        file.write(rest)
    Journal(path).write("checkpoint", step=5)
    assert path.read_text(encoding="utf-8").count("\n") == 2
    assert [entry["event"] for entry in Journal(path).entries] == ["plan", "checkpoint"]


def test_a_journal_is_read_back_without_its_cut_last_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("plan", step=0, max_steps=10)
    journal.write("checkpoint", step=5)
    path.write_text(path.read_text(encoding="utf-8") + '{"event": "chec', encoding="utf-8")
    again = Journal(path)
    assert [entry["event"] for entry in again.entries] == ["plan", "checkpoint"]
    again.write("plan", step=5, max_steps=8)
    assert [entry["max_steps"] for entry in Journal(path).of("plan")] == [10, 8]
