"""The runner of transformers' own suite; the suite itself is run by `make test`, after these."""

from types import SimpleNamespace

import pytest

from tests.conformance.__main__ import Count
from tests.conformance.skips import why


def report(outcome, when="call", reason=""):
    return SimpleNamespace(
        when=when,
        outcome=outcome,
        passed=outcome == "passed",
        skipped=outcome == "skipped",
        longrepr=("suite.py", 1, f"Skipped: {reason}"),
        nodeid="suite.py::test",
    )


@pytest.mark.parametrize(
    ("reason", "known"),
    [
        ("test requires accelerator", True),
        ("This model is not composite", True),
        ("test requires accelerator and luck", False),
        ("the weather is bad", False),
    ],
)
def test_skip_is_counted_and_named_unless_its_reason_is_in_the_table(reason, known):
    count = Count()

    count.pytest_runtest_logreport(report("skipped", when="setup", reason=reason))

    assert count.outcomes["skipped"] == 1
    assert count.unknown == ({} if known else {reason: "suite.py::test"})
    assert (why(reason) is not None) is known


def test_test_counts_once_and_a_failing_setup_counts_as_a_failure():
    count = Count()

    for when in ("setup", "call", "teardown"):
        count.pytest_runtest_logreport(report("passed", when))
    count.pytest_runtest_logreport(report("failed", "setup"))
    count.pytest_deselected([1, 2])

    assert count.outcomes == {"passed": 1, "failed": 1, "skipped": 0, "deselected": 2}
