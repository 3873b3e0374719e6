import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.__main__ import SUITE, fetch_suite


@pytest.mark.slow
def test_transformers_own_suite_passes_on_our_classes():
    if not SUITE.exists():
        try:
            fetch_suite()
        except subprocess.CalledProcessError:
            pytest.skip("the source distribution of transformers cannot be fetched")

    result = subprocess.run(
        [sys.executable, "-m", "tests.conformance", "-W", "ignore"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )

    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
