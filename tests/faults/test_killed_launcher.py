"""A share of the rounds of killed_launcher.py."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.killed_launcher import run_round


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_cluster_of_killed_launcher_is_recovered_by_next_up(tmp_path: Path, seed: int) -> None:
    run_round(tmp_path, random.Random(seed))
