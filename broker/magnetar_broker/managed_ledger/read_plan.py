"""What lies between two places of a topic's log, cut where the limits say: the rule of a plan.

Theory of operation
-------------------
The list of ledgers says how far each may be read, how many bytes it has and which message is its last; so of a range of
whole ledgers everything is known without a look at any of them. What is not known is what lies within a ledger, so the
rule is a generator: it yields the few entries that it has to look at, and is sent what they say of themselves
(`EntryFacts`). Those are the entry at which the range begins, unless a former plan ended there (`known`); the one in
which it ends; and those by which the entry is found where a limit is met (entry_search.py).

The range is looked at as it is when the rule begins. What is appended later is not in it, though the list grows
meanwhile; what is deleted later is noticed by whoever looks, and the plan is made anew.

**Cuts.** Messages are counted by the index that brokers give them, of which each entry has its last one's; so a cut is
exact, within a batch too. Bytes are those of whole entries as they are stored: a plan ends before the entry with which
it would pass the limit, unless that is its first. Of an entry that is lost, and says nothing, its neighbours tell
(broker/magnetar_broker/managed_ledger/lost_entry_facts.py): a limit that would fall within it is met behind it. It
stays in the range, so that who reads it meets the loss. No plan has more than so many pieces, one for each ledger;
where it ends before what was asked for, the next one goes on there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.entry_search import Boundary, EntryFacts, entry_with_byte, entry_with_message
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.message_position import MessagePosition, find_end, find_first, is_deleted
from magnetar_broker.managed_ledger.position import EARLIEST, Position

__all__ = ["MAX_PIECES", "LogPlan", "PlanLimits", "PlannedPiece", "front_of", "front_of_ledger", "make_plan"]

MAX_PIECES: Final = 1000
_ledger_id = attrgetter("ledger_id")

# Yields the entries that are to be looked at.
Looks = Generator[Position, EntryFacts, "LogPlan"]
# What is known of the place right in front of an entry.
Known = Callable[[Position], Boundary | None]


@dataclass(frozen=True, slots=True)
class PlanLimits:
    # 0: none.
    messages: int = 0
    bytes: int = 0
    pieces: int = MAX_PIECES


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    # Of the first entry, before the range; of the last one, in it, counted from its first; 0: all.
    skip_messages: int
    stop_after_messages: int
    bytes: int
    messages: int


@dataclass(frozen=True, slots=True)
class LogPlan:
    start: MessagePosition
    stop: MessagePosition
    begins_in_deleted: bool
    first: MessagePosition
    end: MessagePosition
    # The index that the log's next message will have.
    end_index: int
    messages_behind: int
    # A limit ended it, and not what there is, what was asked for, or how many pieces it may have.
    at_limit: bool = False
    pieces: tuple[PlannedPiece, ...] = ()
    messages: int = 0
    bytes: int = 0
    # Right in front of the first entry, and of the one in which, or before which, it ends.
    front: Boundary | None = None
    back: tuple[Position, Boundary] | None = None


@dataclass(slots=True)
class _Run:
    """The entries of one ledger that are in the range, from `front` on; `back` is behind the last of them."""

    ledger_id: int
    front: Boundary
    back: Boundary


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where the range ends: in front of that entry of that run, and so many of its messages after all."""

    run: int
    front: Boundary
    messages: int = 0
    # Behind that entry, if messages of it are in the range.
    back: Boundary | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        return self.run, self.front.entry_id, self.messages

    @property
    def last(self) -> Boundary:
        """Behind the last entry of which something is in the range."""
        return self.back or self.front


def make_plan(
    log: LedgerList, start: MessagePosition, stop: MessagePosition | None, limits: PlanLimits, known: Known
) -> Looks:
    first, end = find_first(log), find_end(log)
    begin = max(start, first if stop is None else min(first, stop))
    goal = max(begin, end if stop is None else min(stop, end))
    end_index = _end_index(log)
    plan = LogPlan(begin, goal, is_deleted(log, start), first, end, end_index, 0)
    place, skip = log.at_or_after(begin.position), 0
    if place == begin.position and begin.batch_index:
        facts = yield place
        skip = begin.batch_index
        if skip >= facts.messages and not facts.lost:
            place, skip = log.at_or_after(place.next), 0
    if place is None or goal <= max(begin, MessagePosition(*place)):
        index = yield from _index_at(log, goal, known)
        return plan if index is None else replace(plan, messages_behind=max(0, end_index - index))
    runs, capped = _runs(log, place, goal, limits.pieces)
    runs[0].front = yield from front_of(log, place, known)
    cut = _Cut(len(runs) - 1, runs[-1].back)
    if not capped and runs[-1].ledger_id == goal.ledger_id and goal.entry_id < runs[-1].back.entry_id:
        cut = yield from _cut_at_goal(runs, goal, known)
    whole = cut
    if limits.messages:
        cut = yield from _cut_at_message(runs, cut, runs[0].front.messages + skip + limits.messages)
    if limits.bytes:
        cut = yield from _cut_at_byte(runs, cut, limits.bytes)
    stops = goal if cut.order == whole.order and not capped else _place(runs, cut)
    pieces = tuple(_pieces(runs, cut, skip))
    behind_cut = max(0, end_index - cut.front.messages - cut.messages)
    return replace(
        plan,
        stop=stops,
        messages_behind=behind_cut,
        at_limit=cut.order != whole.order,
        pieces=pieces,
        messages=sum(piece.messages for piece in pieces),
        bytes=sum(piece.bytes for piece in pieces),
        front=runs[0].front,
        back=(Position(runs[cut.run].ledger_id, cut.front.entry_id), cut.front),
    )


def front_of(log: LedgerList, position: Position, known: Known) -> Generator[Position, EntryFacts, Boundary]:
    """What is right in front of an entry that there is."""
    found = front_of_ledger(log, position.ledger_id) if position.entry_id == 0 else None
    if found is None:
        found = known(position)
    if found is not None:
        return found
    facts = yield position
    return facts.front


def front_of_ledger(log: LedgerList, ledger_id: int) -> Boundary | None:
    """None: what was in front of it was deleted, and the list has not kept how many messages that were."""
    at = bisect_left(log.ledgers, ledger_id, key=_ledger_id)
    if at:
        return Boundary(0, log.ledgers[at - 1].last_index + 1, 0)
    return Boundary(0, 0, 0) if log.trimmed_up_to == EARLIEST else None


def _index_at(log: LedgerList, place: MessagePosition, known: Known) -> Generator[Position, EntryFacts, int | None]:
    """Of the message there, or of the next one; None: there is none."""
    position = log.at_or_after(place.position)
    if position is None:
        return None
    if position == place.position and place.batch_index:
        facts = yield position
        return facts.first_index + min(place.batch_index, facts.messages)
    front = yield from front_of(log, position, known)
    return front.messages


def _end_index(log: LedgerList) -> int:
    last = log.find(log.last.ledger_id)
    return last.last_index + 1 if last is not None and last.entries else log.next_index


def _runs(log: LedgerList, place: Position, goal: MessagePosition, most: int) -> tuple[list[_Run], bool]:
    """What is in the range of each ledger, but for what the front of the first and the cut take away; and whether there
    is more of it than `most` ledgers."""
    begin = bisect_left(log.ledgers, place.ledger_id, key=_ledger_id)
    end = bisect_right(log.ledgers, goal.ledger_id, key=_ledger_id)
    if end - 1 > begin and log.ledgers[end - 1].ledger_id == goal.ledger_id and not goal.entry_id | goal.batch_index:
        end -= 1
    runs = []
    index = 0
    for listed in log.ledgers[begin : min(end, begin + most)]:
        if listed.entries:
            back = Boundary(listed.entries, listed.last_index + 1, listed.length_bytes)
            runs.append(_Run(listed.ledger_id, Boundary(0, index, 0), back))
            index = back.messages
    return runs, end > begin + most


def _cut_at_goal(runs: list[_Run], goal: MessagePosition, known: Known) -> Generator[Position, EntryFacts, _Cut]:
    """`goal` is at an entry of the last run, or in it."""
    last = len(runs) - 1
    if not goal.batch_index and (found := known(goal.position)) is not None:
        return _Cut(last, found)
    facts = yield goal.position
    if goal.batch_index >= facts.messages and not facts.lost:
        return _Cut(last, facts.back)
    return _Cut(last, facts.front, goal.batch_index, facts.back if goal.batch_index else None)


def _cut_at_message(runs: list[_Run], cut: _Cut, index: int) -> Generator[Position, EntryFacts, _Cut]:
    """Before that message of the log, if it is in the range."""
    if index >= cut.front.messages + cut.messages:
        return cut
    at = bisect_right(runs, index, hi=cut.run, key=lambda run: run.back.messages)
    run = runs[at]
    front, back = yield from entry_with_message(
        run.ledger_id, run.front, cut.last if at == cut.run else run.back, index
    )
    messages = max(0, index - front.messages)
    # What asked for the range may end it within a lost entry.
    return min(_Cut(at, front, messages, back if messages else None), cut, key=lambda one: one.order)


def _cut_at_byte(runs: list[_Run], cut: _Cut, left: int) -> Generator[Position, EntryFacts, _Cut]:
    """Before the entry with which the range would have more bytes, unless that is its first."""
    for at, run in enumerate(runs[: cut.run + 1]):
        end = cut.last if at == cut.run else run.back
        size = end.bytes - run.front.bytes
        if size <= left:
            left -= size
            continue
        front, back = yield from entry_with_byte(run.ledger_id, run.front, end, run.front.bytes + left)
        found = _Cut(at, front)
        if at == 0 and front.entry_id == run.front.entry_id:
            found = _Cut(at, back)
        return min(found, cut, key=lambda one: one.order)
    return cut


def _place(runs: list[_Run], cut: _Cut) -> MessagePosition:
    return MessagePosition(runs[cut.run].ledger_id, cut.front.entry_id, cut.messages)


def _pieces(runs: list[_Run], cut: _Cut, skip: int) -> Generator[PlannedPiece]:
    for at, run in enumerate(runs[: cut.run + 1]):
        behind = cut.last if at == cut.run else run.back
        if behind.entry_id <= run.front.entry_id:
            continue
        index = cut.front.messages + cut.messages if at == cut.run else run.back.messages
        skipped = skip if at == 0 else 0
        yield PlannedPiece(
            run.ledger_id,
            run.front.entry_id,
            behind.entry_id - 1,
            skipped,
            cut.messages if at == cut.run else 0,
            behind.bytes - run.front.bytes,
            max(0, index - run.front.messages - skipped),
        )
