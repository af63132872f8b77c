"""The rule of a read plan: the pieces of ledgers between two positions of a topic's log, within limits.

Theory of operation
-------------------
The list of ledgers has the number of readable entries, the bytes and the last message's index of each ledger. So a
range of whole ledgers is planned without reading any entry. For a position within a ledger the rule must know entries,
so it is a generator: it yields the few entries that it needs, and is sent their facts (`EntryFacts`). These are the
entry at which the range begins, unless an earlier plan ended there (`known`); the one in which it ends; and those by
which the entry is found at which a limit is reached (entry_search.py).

The range is that of the moment when the rule begins. Entries that are appended later are not in it. If an entry was
deleted in the meantime, the caller notices when it reads it, and makes the plan again.

**Limits.** Messages are counted by their index, which each entry has for its last message. So a limit of messages is
exact, also within a batch. Bytes are those of whole entries, as they are stored: a plan ends before the entry that
would exceed the limit, unless it is the first. For a lost entry the facts follow from its neighbours
(lost_entry_facts.py): a limit that would fall within it counts as reached after it. It stays in the range, so that its
reader notices the loss. A plan has a maximum number of pieces, one for each ledger. If it ends early, the next plan
continues there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from magnetar_broker.managed_ledger.entry_search import (
    Boundary,
    EntryFacts,
    find_entry_with_byte,
    find_entry_with_message,
)
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.message_position import MessagePosition, find_end, find_first, is_deleted
from magnetar_broker.position import EARLIEST, Position

__all__ = ["MAX_PIECES", "LogPlan", "PlanLimits", "PlannedPiece", "front_of", "front_of_ledger", "make_plan"]

MAX_PIECES: Final = 1000
_ledger_id = attrgetter("ledger_id")

# Yields the entries that must be read.
PlanRule = Generator[Position, EntryFacts, "LogPlan"]
# Returns the known boundary before an entry, or None.
Known = Callable[[Position], Boundary | None]


@dataclass(frozen=True, slots=True)
class PlanLimits:
    # 0: no limit.
    messages: int = 0
    bytes: int = 0
    pieces: int = MAX_PIECES


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    # The number of messages to skip in the first entry, and after which to stop in the last one, counted from its
    # first; 0: none is skipped, or all are read.
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
    # It ends because of a limit of messages or bytes.
    at_limit: bool = False
    pieces: tuple[PlannedPiece, ...] = ()
    messages: int = 0
    bytes: int = 0
    # The boundary before the first entry, and before the entry in or before which it ends.
    front: Boundary | None = None
    back: tuple[Position, Boundary] | None = None


@dataclass(slots=True)
class _Run:
    """The entries of one ledger that are in the range, from `front` up to `back`."""

    ledger_id: int
    front: Boundary
    back: Boundary


@dataclass(frozen=True, slots=True)
class _Cut:
    """The end of the range: before the entry at `front` of a run, plus a number of its messages."""

    run: int
    front: Boundary
    messages: int = 0
    # The boundary after that entry, if messages of it are in the range.
    back: Boundary | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        return self.run, self.front.entry_id, self.messages

    @property
    def last(self) -> Boundary:
        """The boundary after the last entry that is at least partly in the range."""
        return self.back or self.front


def make_plan(
    ledger_list: LedgerList, start: MessagePosition, stop: MessagePosition | None, limits: PlanLimits, known: Known
) -> PlanRule:
    """Plan the range from `start` to `stop`; None: to the end of the log."""
    first, end = find_first(ledger_list), find_end(ledger_list)
    begin = max(start, first if stop is None else min(first, stop))
    goal = max(begin, end if stop is None else min(stop, end))
    end_index = _end_index(ledger_list)
    plan = LogPlan(begin, goal, is_deleted(ledger_list, start), first, end, end_index, 0)
    first_entry, skip = ledger_list.at_or_after(begin.position), 0
    if first_entry == begin.position and begin.skip_messages:
        facts = yield first_entry
        skip = begin.skip_messages
        if skip >= facts.messages and not facts.lost:
            first_entry, skip = ledger_list.at_or_after(first_entry.next), 0
    if first_entry is None or goal <= max(begin, MessagePosition(*first_entry)):
        index = yield from _index_at(ledger_list, goal, known)
        return plan if index is None else replace(plan, messages_behind=max(0, end_index - index))
    runs, capped = _runs(ledger_list, first_entry, goal, limits.pieces)
    runs[0].front = yield from front_of(ledger_list, first_entry, known)
    cut = _Cut(len(runs) - 1, runs[-1].back)
    if not capped and runs[-1].ledger_id == goal.ledger_id and goal.entry_id < runs[-1].back.entry_id:
        cut = yield from _cut_at_goal(runs, goal, known)
    whole = cut
    if limits.messages:
        cut = yield from _cut_at_message(runs, cut, runs[0].front.messages + skip + limits.messages)
    if limits.bytes:
        cut = yield from _cut_at_byte(runs, cut, limits.bytes)
    stops = goal if cut.order == whole.order and not capped else _position_of(runs, cut)
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


def front_of(ledger_list: LedgerList, position: Position, known: Known) -> Generator[Position, EntryFacts, Boundary]:
    """Return the boundary before an existing entry."""
    found = front_of_ledger(ledger_list, position.ledger_id) if position.entry_id == 0 else None
    if found is None:
        found = known(position)
    if found is not None:
        return found
    facts = yield position
    return facts.front


def front_of_ledger(ledger_list: LedgerList, ledger_id: int) -> Boundary | None:
    """Return the boundary before a ledger. None: it is the first, and the number of messages before it is unknown,
    since they were deleted."""
    at = bisect_left(ledger_list.ledgers, ledger_id, key=_ledger_id)
    if at:
        return Boundary(0, ledger_list.ledgers[at - 1].last_index + 1, 0)
    return Boundary(0, 0, 0) if ledger_list.trimmed_up_to == EARLIEST else None


def _index_at(
    ledger_list: LedgerList, position: MessagePosition, known: Known
) -> Generator[Position, EntryFacts, int | None]:
    """Return the index of the message at the position, or of the next one; None: there is none."""
    entry = ledger_list.at_or_after(position.position)
    if entry is None:
        return None
    if entry == position.position and position.skip_messages:
        facts = yield entry
        return facts.first_index + min(position.skip_messages, facts.messages)
    front = yield from front_of(ledger_list, entry, known)
    return front.messages


def _end_index(ledger_list: LedgerList) -> int:
    last = ledger_list.find(ledger_list.last.ledger_id)
    return last.last_index + 1 if last is not None and last.entries else ledger_list.next_index


def _runs(ledger_list: LedgerList, first_entry: Position, goal: MessagePosition, most: int) -> tuple[list[_Run], bool]:
    """Return the runs of the range, at most `most`, and whether there are more. The front of the first run and the cut
    are applied later."""
    begin = bisect_left(ledger_list.ledgers, first_entry.ledger_id, key=_ledger_id)
    end = bisect_right(ledger_list.ledgers, goal.ledger_id, key=_ledger_id)
    if (
        end - 1 > begin
        and ledger_list.ledgers[end - 1].ledger_id == goal.ledger_id
        and not goal.entry_id | goal.skip_messages
    ):
        end -= 1
    runs = []
    index = 0
    for listed in ledger_list.ledgers[begin : min(end, begin + most)]:
        if listed.entries:
            back = Boundary(listed.entries, listed.last_index + 1, listed.length_bytes)
            runs.append(_Run(listed.ledger_id, Boundary(0, index, 0), back))
            index = back.messages
    return runs, end > begin + most


def _cut_at_goal(runs: list[_Run], goal: MessagePosition, known: Known) -> Generator[Position, EntryFacts, _Cut]:
    """Cut at the goal, which is before or within an entry of the last run."""
    last = len(runs) - 1
    if not goal.skip_messages and (found := known(goal.position)) is not None:
        return _Cut(last, found)
    facts = yield goal.position
    if goal.skip_messages >= facts.messages and not facts.lost:
        return _Cut(last, facts.back)
    return _Cut(last, facts.front, goal.skip_messages, facts.back if goal.skip_messages else None)


def _cut_at_message(runs: list[_Run], cut: _Cut, index: int) -> Generator[Position, EntryFacts, _Cut]:
    """Cut before this message of the log, if it is in the range."""
    if index >= cut.front.messages + cut.messages:
        return cut
    at = bisect_right(runs, index, hi=cut.run, key=lambda run: run.back.messages)
    run = runs[at]
    front, back = yield from find_entry_with_message(
        run.ledger_id, run.front, cut.last if at == cut.run else run.back, index
    )
    messages = max(0, index - front.messages)
    # The requested end may be within a lost entry.
    return min(_Cut(at, front, messages, back if messages else None), cut, key=lambda one: one.order)


def _cut_at_byte(runs: list[_Run], cut: _Cut, left: int) -> Generator[Position, EntryFacts, _Cut]:
    """Cut before the entry with which the range would have more bytes, unless it is the first."""
    for at, run in enumerate(runs[: cut.run + 1]):
        end = cut.last if at == cut.run else run.back
        size = end.bytes - run.front.bytes
        if size <= left:
            left -= size
            continue
        front, back = yield from find_entry_with_byte(run.ledger_id, run.front, end, run.front.bytes + left)
        found = _Cut(at, front)
        if at == 0 and front.entry_id == run.front.entry_id:
            found = _Cut(at, back)
        return min(found, cut, key=lambda one: one.order)
    return cut


def _position_of(runs: list[_Run], cut: _Cut) -> MessagePosition:
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
