"""Generated requests to the admin API of a broker (admin_fuzz.py): seconds of them, and a minute in `make soak`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from magnetar_testing.standalone_process import StandaloneProcess
from tests.integration.admin_fuzz import SENTINELS, fuzz_admin_api


def _fuzz(folder: Path, seconds: float, seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 (pytest shows it if the test fails)
    with StandaloneProcess(folder / "data") as server:
        report = fuzz_admin_api(server, seconds, seed)
    assert not report.problems, "\n".join(report.problems)
    assert report.refused_on_sentinels > 0
    assert len(report.changed) < SENTINELS, "no sentinel is left that could have changed"


@pytest.mark.slow
def test_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    """ADM-1: no request breaks the broker, and what is refused changes nothing."""
    _fuzz(tmp_path, seconds=4, seed=7)


@pytest.mark.soak
def test_a_minute_of_generated_requests(tmp_path: Path) -> None:
    _fuzz(tmp_path, seconds=60, seed=time.time_ns() % 2**32)
