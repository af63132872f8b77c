"""A share of the rounds of killed_launcher.py."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.killed_launcher import run_round


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_launcher_that_is_killed_leaves_what_another_goes_on_from(tmp_path: Path, seed: int) -> None:
    run_round(tmp_path, random.Random(seed))
