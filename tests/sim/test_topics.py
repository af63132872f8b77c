"""Topics' logs under every fault that a seed can draw, and the checks can fail."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import pytest

from magnetar_broker.admin.read_planner import message_of
from magnetar_broker.managed_ledger.message_position import MessagePosition
from magnetar_broker.position import Position
from magnetar_protos.reading_pb2 import Piece, PlanAnswer
from tests.sim.invariants.history import Violation
from tests.sim.run import run_seed
from tests.sim.topics.history import TopicHistory
from tests.sim.topics.planned import Planned
from tests.sim.topics.world import TopicWorld

_PARTS = [0, pytest.param(1, marks=pytest.mark.soak)]
_SEEDS = 12


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", _PARTS)
def test_brokers_fight_for_topics_and_nothing_acknowledged_is_lost(part: int) -> None:
    """CHK-1, CHK-5, CHK-30, CHK-58: rivals for one topic, crashes of all, deletions, trims: what was acknowledged and
    not trimmed is read in the end, once, in order, under indexes without gaps (MSG-5); no ledger lies outside the list
    or stays behind, and none is open besides the last. SPK-5: nothing is deleted while a reader's lease holds it."""
    first = part * _SEEDS
    outcomes = [run_seed(seed, make=TopicWorld) for seed in range(first, first + _SEEDS)]
    failed = [str(outcome) for outcome in outcomes if outcome.failure]
    assert not failed, "\n".join(failed)
    happened = ("lost", "trimmed", "opened", "leases taken", "leases renewed", "leased entries read")
    counts = {what: sum(outcome.counts.get(what, 0) for outcome in outcomes) for what in happened}
    assert sum(outcome.counts.get("entries acknowledged", 0) for outcome in outcomes) > 100 * _SEEDS
    assert all(counts.values()), counts


@pytest.mark.slow
def test_plans_miss_no_entry_and_contain_no_unconfirmed_entry() -> None:
    """SPK-5: for plans of all brokers, those that have lost the topic and don't know it yet among them."""
    outcomes = [run_seed(seed, make=partial(TopicWorld, plans=0.3)) for seed in range(200, 204)]
    failed = [str(outcome) for outcome in outcomes if outcome.failure]
    assert not failed, "\n".join(failed)
    assert sum(outcome.counts.get("entries planned", 0) for outcome in outcomes) > 200


@pytest.mark.slow
def test_a_seed_replays_exactly() -> None:
    """CHK-61"""
    digests = []
    for seed in (3, 4, 3):
        digest = hashlib.blake2b()
        run_seed(seed, _into(digest), make=TopicWorld)
        digests.append(digest.digest())
    assert digests[0] == digests[2] != digests[1]


def _into(digest: hashlib.blake2b) -> Callable[[str], object]:
    return lambda line: digest.update(line.encode())


def test_history_detects_missing_reordered_and_duplicate_entries() -> None:
    history = TopicHistory()
    for number in range(3):
        history.appended[b"a.1 %d" % number] = None
        history.was_acknowledged(b"a.1", b"a.1 %d" % number, Position(1, number))
    found = [(Position(1, number), b"a.1 %d" % number, number) for number in range(3)]
    history.check(Position(1, -1), found)
    history.check(Position(1, 0), found[1:])
    for wrong in (
        found[:2],
        [found[0], found[2]],
        [found[1], found[0], found[2]],
        [*found, (Position(2, 0), b"a.1 2", 3)],
        [*found, (Position(2, 0), b"a.1 7", 3)],
        [*found[:2], (Position(1, 2), b"a.1 2", 3)],
        [*found[:2], (Position(2, 2), b"a.1 2", 2)],
    ):
        with pytest.raises(Violation):
            history.check(Position(1, -1), wrong)
    with pytest.raises(Violation):
        history.was_acknowledged(b"a.1", b"a.1 9", Position(1, 1))


def test_the_judge_of_plans_demands_the_chunks_within_reach_and_no_others() -> None:
    """SPK-5, CON-7: a message's chunks are in three ledgers, as after owner changes. A first chunk that is out of reach
    stays so when ledgers are trimmed."""

    def check_last_plan(first: int, before: Sequence[int]) -> None:
        """Plan ledger 4, then 5 to 9, then 10, with a message of chunks in ledgers `first`, 9 and 10."""
        planned = Planned()
        for number, ledger_id in enumerate((first, 9, 10)):
            planned.chunk_stored("t", "message", number, 3, Position(ledger_id, 0))
        for ledgers, ledgers_before in (([4], []), (range(5, 10), [4]), ([10], before)):
            begin = planned.position("t")
            plan = PlanAnswer(
                incarnation="t",
                start=message_of(begin),
                stop=message_of(MessagePosition(ledgers[-1], 1)),
                end=message_of(MessagePosition(ledgers[-1], 1)),
                pieces=[Piece(ledger_id=one) for one in ledgers],
                before=[Piece(ledger_id=one) for one in ledgers_before],
                messages=len(ledgers),
            )
            planned.answered(plan, begin, [])
            planned.answered_before(plan, begin)

    check_last_plan(8, [8, 9])
    with pytest.raises(Violation, match="chunk at 8:0"):
        check_last_plan(8, [9])
    # A plan that begins behind ledger 9 reaches back to it and the two in front of it: 7 is the first.
    check_last_plan(7, [7, 8, 9])
    with pytest.raises(Violation, match="chunk at 7:0"):
        check_last_plan(7, [8, 9])
    check_last_plan(6, [7, 8, 9])
    check_last_plan(6, [8, 9])


def test_plan_beyond_the_brokers_known_end_is_a_violation() -> None:
    """SPK-1, SPK-5: a broker that has lost the topic would say that messages are lost, or release what it does not
    list."""
    begin, end = MessagePosition(9, 1), MessagePosition(7, 3)
    for start, known, needed, wrong in (
        (begin, begin, end, ""),
        (begin, end, end, "reported end"),
        (end, end, begin, "needed first"),
    ):
        planned = Planned()
        plan = PlanAnswer(
            incarnation="t",
            start=message_of(start),
            stop=message_of(start),
            end=message_of(known),
            needed_from=message_of(needed),
        )
        with pytest.raises(Violation, match=wrong) if wrong else nullcontext():
            planned.answered(plan, start, [])
            planned.answered_before(plan, start)
