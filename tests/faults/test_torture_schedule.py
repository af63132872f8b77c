"""The torture's schedule: which faults are injected, and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.randomness import Randomness
from tests.faults.torture.fault import Bears, Fault
from tests.faults.torture.schedule import SORTS, Balance, Round, Schedule, Sort
from tests.faults.torture.system import System


@dataclass(frozen=True, eq=False)
class Harmless(Fault):
    async def begin(self, system: System, target: str, chance: Randomness) -> None: ...

    async def heal(self, system: System, target: str) -> None: ...


KILL = Harmless("KILL", "broker", weight=6, longest_s=10.0)
PAUSE = Harmless("PAUSE", "broker", weight=3, shortest_s=6.0, longest_s=12.0)
ONCE = Harmless("FLIP_BIT", "bookie", at_most=1)
NOT_BORNE = Harmless("KILL_ALL", "everything", bears=Bears.NOT, longest_s=3.0)
FAULTS = (
    KILL,
    PAUSE,
    Harmless("BLINK", "broker", weight=3, longest_s=2.0),
    Harmless("KILL", "bookie", weight=6, longest_s=10.0),
    ONCE,
    Harmless("KILL", "zookeeper", weight=2, longest_s=5.0),
    Harmless("UNLOAD", "place", weight=2),
    NOT_BORNE,
)


def draw_rounds(seed: str, rounds: int, left_s: float = 1000.0) -> list[Round]:
    schedule = Schedule(SeededRandomness(seed), FAULTS)
    return [schedule.next_round(left_s) for _ in range(rounds)]


def test_a_seed_deals_the_same_rounds_again_and_another_seed_others() -> None:
    assert draw_rounds("7", 100) == draw_rounds("7", 100)
    assert draw_rounds("7", 100) != draw_rounds("8", 100)


def test_tolerable_round_has_at_most_one_fault_per_group() -> None:
    rounds = draw_rounds("borne", 400)
    assert Counter(one.sort for one in rounds) == {sort: 100 * SORTS.count(sort) for sort in Sort}
    for one in rounds:
        faults = [injection.fault for injection in one.injections]
        assert len(faults) == len(set(faults))
        groups = [fault.group for fault in faults]
        if one.sort is Sort.ALONE:
            assert faults in ([KILL], [PAUSE])
            assert one.injections[0].for_s >= 9.0
        if one.sort is Sort.BORNE:
            assert len(groups) == len(set(groups))
            assert all(fault.bears is Bears.ONE for fault in faults)
    wild = [[injection.fault.group for injection in one.injections] for one in rounds if one.sort is Sort.WILD]
    assert any(len(groups) > len(set(groups)) for groups in wild)


def test_faults_appear_early_then_by_weight_and_within_limits() -> None:
    rounds = draw_rounds("decks", 600)
    early = {injection.fault for one in rounds[:12] for injection in one.injections}
    assert early == set(FAULTS)
    counts = Counter(injection.fault for one in rounds for injection in one.injections if one.sort is not Sort.ALONE)
    assert counts[ONCE] == 1
    assert counts[KILL] > 1.5 * counts[PAUSE]
    assert counts[NOT_BORNE] > 10
    lengths = [injection.for_s for one in rounds for injection in one.injections if injection.fault is PAUSE]
    assert min(lengths) >= 6.0
    assert max(lengths) <= 12.0


def test_each_kind_is_used_before_one_repeats_for_another_group() -> None:
    kinds = ("KILL", "CUT", "HOLD", "MUTE", "DEAF", "BREAK")
    several = [Harmless(kind, group, longest_s=1.0) for kind in kinds for group in ("broker", "bookie")]
    at_once = Harmless("UNLOAD", "place", weight=3)
    schedule = Schedule(SeededRandomness("kinds"), [*several, at_once], [Sort.WILD])
    rounds = [schedule.next_round(1000.0) for _ in range(8)]
    draw_rounds = [injection.fault for one in rounds for injection in one.injections]
    lasting = [one for one in draw_rounds if one is not at_once]
    assert {one.kind for one in lasting[:6]} == {*kinds}
    assert {*lasting[:12]} == {*several}
    # Faults that take no time come before it, as often as their weight demands.
    assert draw_rounds[: draw_rounds.index(lasting[9])].count(at_once) == 3


def test_impossible_fault_is_scheduled_later() -> None:
    schedule = Schedule(SeededRandomness("later"), FAULTS)
    first = [schedule.next_round(1000.0, lambda fault: fault.group == "place") for _ in range(8)]
    assert {injection.fault.group for one in first for injection in one.injections} == {"place"}
    assert Sort.ALONE not in [one.sort for one in first]
    later = [schedule.next_round(1000.0) for _ in range(12)]
    assert {injection.fault for one in later for injection in one.injections} >= set(FAULTS[:6])
    assert schedule.next_round(1000.0, lambda _: False).injections == ()


def test_a_round_is_over_in_the_time_that_is_left() -> None:
    for one in draw_rounds("short", 200, left_s=5.0):
        for injection in one.injections:
            assert injection.fault is not PAUSE
            assert injection.at_s + injection.for_s <= 5.0


@pytest.mark.parametrize("seconds", [20.0, 60.0, 300.0, 1800.0])
@pytest.mark.parametrize("seed", range(5))
def test_quarter_of_run_is_calm_regardless_of_healing_time(seconds: float, seed: int) -> None:
    chance = SeededRandomness(seed)
    balance = Balance(seconds)
    rounds = 0
    while left_s := balance.left_s:
        balance.faulty_s += min(left_s, 3.0 + 10.0 * chance.random()) + 2.0 * chance.random()
        rounds += 1
        if rest_s := balance.rest_s:
            balance.calm.append(rest_s)
    assert rounds
    assert balance.share >= 0.25 - 1e-9
    assert balance.share < 0.4
    assert seconds - 1e-9 <= balance.faulty_s + balance.calm_s < seconds + 4.0
    if seconds >= 60.0:
        assert sum(one for one in balance.calm if one > 10.0) > 0.6 * balance.calm_s


def test_run_without_faults_is_calm() -> None:
    balance = Balance(12.0)
    assert (balance.share, balance.left_s, balance.rest_s) == (0.0, 9.0, 0.0)
    balance.faulty_s = 8.0
    assert balance.left_s == 0.0
    assert balance.rest_s == 4.0
