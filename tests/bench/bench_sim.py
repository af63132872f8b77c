"""How fast the simulation is: what it takes to look at a thousand runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tests.bench.harness import Result
from tests.sim.__main__ import run_seeds

# The same ones each time: seeds differ in how much happens in them.
SEEDS = range(200)


def benches() -> Iterator[Result]:
    cores = os.cpu_count() or 1
    began = time.perf_counter()
    virtual_s = sum(outcome.virtual_s for outcome in run_seeds(SEEDS, cores))
    took_s = time.perf_counter() - began
    yield Result("sim.seeds_per_s", len(SEEDS) / took_s, f"seeds/s on {cores} cores")
    yield Result("sim.virtual_over_real", virtual_s / took_s, "virtual s/s")
