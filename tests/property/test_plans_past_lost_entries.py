"""Plans of a log of which entries are lost: they go on past those, and name them all the same."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from hypothesis import event, given
from hypothesis import strategies as st

from magnetar_broker.managed_ledger.entry_search import EntryFacts
from magnetar_broker.managed_ledger.lost_entry_facts import facts_of_lost
from magnetar_broker.managed_ledger.message_position import BEFORE_ALL, MessagePosition, find_end
from magnetar_broker.managed_ledger.read_plan import LogPlan, PlanLimits, make_plan
from magnetar_broker.position import Position
from tests.property.test_log_plan import Log

R = TypeVar("R")
_entry = st.tuples(st.integers(1, 5), st.integers(1, 60))
_ledgers = st.lists(st.lists(_entry, min_size=1, max_size=9), min_size=1, max_size=4)
_limits = st.builds(
    PlanLimits,
    messages=st.one_of(st.just(0), st.integers(1, 12)),
    bytes=st.one_of(st.just(0), st.integers(1, 150)),
    pieces=st.integers(1, 4),
)


class Holes(Log):
    """Some entries say nothing, or only so far."""

    def __init__(self, ledgers: list[list[tuple[int, int]]], trimmed: int) -> None:
        super().__init__()
        for entries in ledgers:
            self.append(entries)
            self.roll(1)
        self.trim(trimmed)
        self.lost: set[Position] = set()

    def planned(self, start: MessagePosition, stop: MessagePosition | None, limits: PlanLimits) -> LogPlan:
        plan = self._followed(make_plan(self.ledger_list, start, stop, limits, self.known.get))
        if plan.back is not None:
            self.known[plan.back[0]] = plan.back[1]
        return plan

    def _followed(self, rule: Generator[Position, EntryFacts, R]) -> R:
        try:
            position = next(rule)
            while True:
                position = rule.send(self._facts(position) or self._by_neighbours(position))
        except StopIteration as done:
            result: R = done.value
            return result

    def _by_neighbours(self, position: Position) -> EntryFacts:
        rule = facts_of_lost(self.ledger_list, position)
        looked_at = {position}
        try:
            look_at = next(rule)
            while True:
                assert look_at not in looked_at
                looked_at.add(look_at)
                look_at = rule.send(self._facts(look_at))
        except StopIteration as done:
            facts: EntryFacts = done.value
            return facts

    def _facts(self, position: Position) -> EntryFacts | None:
        return None if position in self.lost else self.entries[position].facts

    def named(self, plan: LogPlan) -> tuple[list[MessagePosition], list[Position]]:
        """The messages that a reader gets by it, and the lost entries that it meets."""
        found: list[MessagePosition] = []
        missed: list[Position] = []
        for piece in plan.pieces:
            assert min(piece.messages, piece.bytes) >= 0
            for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1):
                position = Position(piece.ledger_id, entry_id)
                if position in self.lost:
                    missed.append(position)
                    continue
                end = piece.stop_after_messages if entry_id == piece.last_entry_id else 0
                begin = piece.skip_messages if entry_id == piece.first_entry_id else 0
                positions = self.entries[position].positions
                found += positions[begin : end or len(positions)]
        return found, missed


@given(_ledgers, st.integers(0, 2), _limits, st.data())
def test_plans_return_readable_messages_once_and_cover_lost_entries(
    ledgers: list[list[tuple[int, int]]], trimmed: int, limits: PlanLimits, data: st.DataObject
) -> None:
    """SPK-5: what is lost hinders no plan, and none passes it over in silence."""
    log = Holes(ledgers, trimmed)
    there = list(dict.fromkeys(one.position for one in log.there()))
    log.lost = set(data.draw(st.lists(st.sampled_from(there)))) if there else set()
    position = BEFORE_ALL
    found, missed = list[MessagePosition](), list[Position]()
    while position < find_end(log.ledger_list):
        if data.draw(st.booleans()):
            log.known.clear()  # by another broker
        plan = log.planned(position, None, limits)
        got, missing = log.named(plan)
        assert plan.stop > position
        assert len(plan.pieces) <= limits.pieces
        if missing:
            event("lost entries are met")
        elif not any(one.ledger_id == plan.stop.ledger_id for one in log.lost):
            assert not limits.messages or len(got) <= limits.messages
        # Nothing is cut within what is lost, or a subscription could not be moved there.
        assert plan.stop.position not in log.lost or not plan.stop.skip_messages
        found, missed, position = found + got, missed + missing, plan.stop
    assert found == [one for one in log.there() if one.position not in log.lost]
    assert missed == [one for one in there if one in log.lost]


@given(_ledgers, st.data())
def test_plan_limits_are_exact_next_to_a_single_lost_entry(
    ledgers: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """A lost entry whose neighbours are there is known by them, and a limit within it is met behind it."""
    log = Holes(ledgers, 0)
    lost = data.draw(st.sampled_from(list(log.entries)))
    log.lost = {lost}
    limit = data.draw(st.integers(1, log.index))
    facts = log.entries[lost].facts
    within = facts.first_index < limit < facts.first_index + facts.messages
    plan = log.planned(BEFORE_ALL, None, PlanLimits(messages=limit))
    assert plan.messages == (facts.first_index + facts.messages if within else limit)
    assert plan.messages + plan.messages_behind == log.index


@given(_ledgers, st.integers(0, 2), st.data())
def test_ranges_meeting_in_lost_entry_have_no_gap_or_overlap(
    ledgers: list[list[tuple[int, int]]], trimmed: int, data: st.DataObject
) -> None:
    """Two ranges that meet within a lost entry have all of it between them, and nothing twice."""
    log = Holes(ledgers, min(trimmed, len(ledgers) - 1))
    meeting = data.draw(st.sampled_from(log.there()))
    log.lost = set(data.draw(st.lists(st.sampled_from(list(log.entries))))) | {meeting.position}
    first = log.planned(BEFORE_ALL, meeting, PlanLimits())
    second = log.planned(meeting, None, PlanLimits())
    assert (first.stop, second.start) == (meeting, meeting)
    assert meeting.position in log.named(second)[1]
    assert (meeting.position in log.named(first)[1]) == bool(meeting.skip_messages)
    log.lost = set()
    assert log.named(first)[0] + log.named(second)[0] == log.there()


def test_limit_within_a_lost_entry_stops_at_the_range_end() -> None:
    log = Holes([[(5, 10), (5, 10)]], 0)
    log.lost = {next(iter(log.entries))}
    meeting = log.ever[3]
    assert log.planned(BEFORE_ALL, meeting, PlanLimits(messages=2)).stop == meeting
