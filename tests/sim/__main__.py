"""`python -m tests.sim --seeds 1000 --start 0`: run many seeds on all cores, in all worlds; `--seed 123`: run one, with
its trace.

There are three worlds: `--world ledgers` (bookies, and writers and recoverers of ledgers), `--world topics` (topics'
logs on them), `--world service` (brokers, producers, consumers and administrators). Without it many seeds run in all,
as `worlds.py` says, and a single one in that of ledgers. `--world "service:late entries"`: with only that fault.

The exit status is 1 if a seed failed. A seed's run depends on the seed, the world and the code only.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from tests.sim.invariants import SEEN_THROUGH, never_looked_at
from tests.sim.loop import collect_quietly
from tests.sim.run import Outcome
from tests.sim.worlds import run_in_world, world_named, worlds_of

# The number of seeds that a process gets at a time, and how many batches it runs before another replaces it.
_SEEDS_AT_ONCE: Final = 2
_CHUNKS: Final = 16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.sim")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone, and write its trace")
    parser.add_argument("--world", type=world_named, help="in this one alone")
    parser.add_argument("--quiet", action="store_true", help="with --seed: no trace")
    parser.add_argument("--raise", action="store_true", dest="raises", help="with --seed: a traceback")
    parser.add_argument("--first", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--until", metavar="ITEMS", help="stop at the first seed that violates one of these: 8,1")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--counts", action="store_true", help="how often each fault, event and check occurred")
    options = parser.parse_args()
    if options.seed is not None:
        run = (options.world or "ledgers", options.seed)
        outcome = run_in_world(run, None if options.quiet else print, raises=options.raises)
        print(outcome)
        return 1 if outcome.failure else 0
    return _many(options)


def _many(options: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    looked: Counter[str] = Counter()
    failed: list[Outcome] = []
    done: Counter[str] = Counter()
    virtual_s, steps, began = 0.0, 0, time.monotonic()
    seeds = range(options.start, options.start + options.seeds)
    for outcome in run_seeds(seeds, options.jobs, [options.world] if options.world else None):
        done[outcome.world] += 1
        virtual_s += outcome.virtual_s
        steps += outcome.steps
        counts.update(outcome.counts)
        looked.update(outcome.looked)
        if outcome.failure:
            failed.append(outcome)
            print(outcome, flush=True)
            if options.first or (options.until and violates(outcome.item, options.until)):
                break
    took_s = time.monotonic() - began
    if options.counts:
        for name, count in sorted(counts.items()):
            print(f"  {count:10} {name}")
        for name, count in sorted(looked.items()):
            print(f"  {count:10} looks at item {name}")
        for name in never_looked_at(looked):
            print(f"           0 looks at item {name}")
        for name, what in SEEN_THROUGH.items():
            print(f"             item {name} is seen through {what}")
    runs = done.total()
    each = " and ".join(f"{count} in the world of {world}" for world, count in done.items())
    print(
        f"{each}, in {took_s:.1f} s: {runs / took_s:.1f} seeds/s on {options.jobs} cores, "
        f"{virtual_s / took_s:.0f} virtual seconds per real one, {steps / took_s / 1000:.0f} k steps/s, "
        f"{counts['entries acknowledged']} entries acknowledged, {counts['messages stored']} messages stored, "
        f"{len(failed)} seeds failed"
    )
    if failed:
        print("failed:", *(f"--world {shlex.quote(outcome.world)} --seed {outcome.seed};" for outcome in failed))
    return 1 if failed else 0


def violates(item: str, items: str) -> bool:
    """Both are lists with commas between: a check may be of several items at once."""
    wanted = [one.strip() for one in items.split(",")]
    return any(one.strip() in wanted for one in item.split(","))


def available_cores() -> int:
    """All cores; one where other processes run tests at the same time."""
    return 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1


def run_seeds(seeds: range, jobs: int, worlds: Sequence[str] | None = ("ledgers",)) -> Iterator[Outcome]:
    """Run the seeds in order on this many cores, in each of these worlds; None: in those that `worlds_of` returns."""
    runs = [(world, seed) for seed in seeds for world in (worlds_of(seed) if worlds is None else worlds)]
    # What is there before the first seed is not looked through after each.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        if jobs == 1:
            yield from map(run_in_world, runs)
        else:
            # A process that ends drops all that its seeds have left. To look for it took 5 to 10 % of their time.
            with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=_CHUNKS) as pool:
                yield from pool.imap(partial(run_in_world, collects=False), runs, chunksize=_SEEDS_AT_ONCE)
    finally:
        collect_quietly()
        gc.unfreeze()
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
