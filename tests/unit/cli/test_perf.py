"""Percentiles compared with sorting, and the due times of generated load."""

from __future__ import annotations

import math
import random

import pytest

from magnetar_cli.perf import load
from magnetar_cli.perf.latencies import PERCENTILES, Latencies
from magnetar_cli.perf.load import Load


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_hardly_too_high_and_never_too_low(seed: int) -> None:
    chance = random.Random(seed)
    values = [10 ** chance.uniform(-5, 2) for _ in range(chance.choice([1, 7, 5000]))]
    first, second = Latencies(), Latencies()
    for at, value in enumerate(values):
        (first if at % 2 else second).observe(value)
    first.add(second)
    values.sort()
    assert first.count == len(values)
    assert first.max_s == values[-1]
    for percent in PERCENTILES:
        exact = values[max(1, math.ceil(len(values) * percent / 100)) - 1]
        approximate = first.percentile(percent)
        assert approximate is not None
        assert exact <= approximate <= exact * 1.0101


def test_of_nothing_there_is_none_and_beyond_all_bounds_the_greatest() -> None:
    latencies = Latencies()
    assert latencies.percentile(50) is None
    latencies.observe(5000.0)
    assert latencies.percentile(50) == 5000.0


class StoppingClock:
    """A clock whose time passes in `sleep` only."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_messages_delayed_by_a_stall_retain_their_due_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The delay counts for each of them: this is known as coordinated omission."""
    clock = StoppingClock()
    monkeypatch.setattr(load, "time", clock)
    waited = []
    for number, (due, count) in enumerate(load._due_groups(Load(1, rate=10, messages=30, seconds=0), 100.0)):
        assert count == 1
        waited.append(clock.now - due)
        if number == 4:
            clock.now += 1.0
    assert len(waited) == 30
    assert max(waited[:5]) < 1e-6
    assert waited[5:16] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0, 0])


def test_it_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoppingClock()
    monkeypatch.setattr(load, "time", clock)
    groups = list(load._due_groups(Load(1, rate=100_000, messages=0, seconds=0.5), 100.0))
    assert sum(count for _, count in groups) == pytest.approx(50_000, abs=20)
    assert {count for _, count in groups} == {20}
