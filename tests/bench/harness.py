"""Measure and report benchmarks.

A group is a module `bench_<group>` with a function `benches()` that yields `Result`s. Compared figures are measured in
one run: the arms of a ratio take turns, so that other load of the machine affects both, and the median of the turns'
ratios is the result. A bench that can't run here (no peer, no tool) has the value None and a reason.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from tests.peers import PeerUnavailable, running

TURNS = 15
# A turn is as many calls as take about this long, so that the clock's own grain and cost do not count.
TURN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report. `floor` is the required minimum, `ceiling` the maximum; `aim` is better than that."""

    bench: str
    value: float | None
    unit: str
    against: str | None = None
    floor: float | None = None
    ceiling: float | None = None
    why: str | None = None
    aim: float | None = None

    def line(self) -> str:
        shown = {"bench": self.bench, "value": None if self.value is None else _rounded(self.value), "unit": self.unit}
        rest = {name: getattr(self, name) for name in ("against", "floor", "ceiling", "aim", "why")}
        return json.dumps(shown | {name: value for name, value in rest.items() if value is not None})


def beside_peer(
    peer: str, benches: Sequence[Result], measure: Callable[[str], Iterable[Result]], *, fsync: bool = False
) -> Iterator[Result]:
    """What `measure` finds with the peer's URL. Where the peer can't start, `benches` as they are, without a value."""
    try:
        with running(peer, fsync=fsync) as url:
            yield from measure(url)
    except PeerUnavailable as error:
        for bench in benches:
            yield replace(bench, value=None, why=str(error))


def ratio(
    bench: str, ours: Callable[[], object], other: Callable[[], object], *, against: str, floor: float | None = None
) -> Result:
    """How many times as fast `ours` is as `other`, both doing the same work once a call."""
    calls_ours, calls_other = _calls(ours), _calls(other)
    ratios, seconds = [], []
    gc.collect()
    gc.disable()  # the collector runs when it likes, and so in either arm
    try:
        for _ in range(TURNS):
            mine = _time(ours, calls_ours)
            theirs = _time(other, calls_other)
            ratios.append(theirs / mine)
            seconds.append(mine)
    finally:
        gc.enable()
    print(f"{bench}: {statistics.median(seconds) * 1e6:.1f} µs a call; ratios {_spread(ratios)}", file=sys.stderr)
    return Result(bench, statistics.median(ratios), "ratio", against, floor)


def run_group(module: ModuleType) -> int:
    """Prints a group's results as they come; 1 if it broke off."""
    try:
        for result in module.benches():
            print(result.line(), flush=True)
    except Exception:  # noqa: BLE001 (after any error of a group, the next one runs)
        print(f"{module.__name__} broke off:", file=sys.stderr)
        traceback.print_exc()
        return 1
    return 0


def _time(call: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls


def _calls(call: Callable[[], object]) -> int:
    call()
    return max(1, round(TURN_SECONDS / max(_time(call, 3), 1e-7)))


def _spread(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[0]:.2f} … {ordered[len(ordered) // 2]:.2f} … {ordered[-1]:.2f}"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
