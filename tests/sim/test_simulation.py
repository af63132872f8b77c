"""The ledger protocol's code, whole clusters of it, under every fault that a seed can draw."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from tests.mutants import PROJECT
from tests.sim.__main__ import available_cores, run_seeds
from tests.sim.invariants import never_looked_at
from tests.sim.run import run_seed

# A seed takes half a second of one core. The first sixty run each check of the checker, and each kind of fault.
_SEEDS = 150
_PARTS = [
    range(60),
    *(
        pytest.param(range(first, (first // _SEEDS + 1) * _SEEDS), marks=pytest.mark.soak)
        for first in (60, *range(_SEEDS, 8 * _SEEDS, _SEEDS))
    ),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", _PARTS, ids=lambda seeds: f"from {seeds.start}")
def test_nothing_that_must_not_happen_happens(seeds: range) -> None:
    """CHK-1, CHK-2, CHK-3, CHK-4, CHK-5, CHK-6, CHK-62 and what else the checker asserts, in every step of each run."""
    outcomes = list(run_seeds(seeds, available_cores()))
    failed = [str(outcome) for outcome in outcomes if outcome.failure]
    assert not failed, "\n".join([*failed, "replay one with: make sim SEED=…"])
    assert sum(outcome.counts.get("entries acknowledged", 0) for outcome in outcomes) > 20 * len(seeds)
    assert not never_looked_at([items for outcome in outcomes for items in outcome.looked])


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (7, 19))])
def test_a_seed_replays_exactly(seed: int) -> None:
    """CHK-61: the whole trace, byte for byte, in processes whose hashes differ."""
    traces = [_trace_elsewhere(seed, hash_seed) for hash_seed in ("0", "1", "4711")]
    assert len(traces[0].splitlines()) > 500
    assert traces[0] == traces[1] == traces[2]


@pytest.mark.slow
def test_a_seed_replays_exactly_in_one_process() -> None:
    """CHK-61: for any earlier run in the process, and with or without a trace."""
    digests = []
    for seed in (3, 4, 3):
        digest = hashlib.blake2b()
        run_seed(seed, lambda line: digest.update(line.encode()))  # noqa: B023 (called before it is another)
        digests.append(digest.digest())
    assert digests[0] == digests[2]
    assert digests[0] != digests[1]
    silent, traced = run_seed(5), run_seed(5, lambda line: None)
    assert (silent.virtual_s, silent.steps, silent.counts) == (traced.virtual_s, traced.steps, traced.counts)


def _trace_elsewhere(seed: int, hash_seed: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", str(seed)],
        cwd=PROJECT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    return done.stdout
