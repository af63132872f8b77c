"""The plans of a reader that follows a topic's log, made by any owner, and the checks of them.

A plan names entries, each with one message here. All that was acknowledged before it between its ends is among them,
none comes twice, and each is in the log at the end, unless it was trimmed: so no unconfirmed entry was ever planned.

The follower retains the log from `needed_from` of its last plan on, without a lease. If a chunked message ends in a
plan and began at most `NEAR_LEDGERS` ledgers in front of it, the plan names all of its chunks, in its range or before
it. The check counts these ledgers among those that earlier plans named, not in the broker's list: a ledger that was
trimmed since counts like any other, so a message that was out of reach stays out of reach.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from magnetar_broker.managed_ledger.message_position import BEFORE_ALL, MessagePosition
from magnetar_broker.position import EARLIEST, Position
from magnetar_protos.reading_pb2 import PlanAnswer
from tests.sim.invariants.history import Violation

__all__ = ["BEFORE_LEDGERS", "Planned"]

# What each plan asks for in front of its range; one of them is the ledger in which it begins.
BEFORE_LEDGERS: Final = 3
NEAR_LEDGERS: Final = BEFORE_LEDGERS - 1


class Planned:
    def __init__(self) -> None:
        # By incarnation: the follower's position, and all entries of its plans.
        self.positions: dict[str, MessagePosition] = {}
        self._entries: dict[str, dict[Position, None]] = {}
        # Likewise: where the follower began, and from where on it keeps the log.
        self._began: dict[str, MessagePosition] = {}
        self.needed: dict[str, MessagePosition] = {}
        # Likewise, by message: how many chunks it has, and where those are that were acknowledged.
        self._chunks: dict[str, dict[str, tuple[int, dict[int, Position]]]] = {}

    def chunk_stored(self, incarnation: str, message: str, number: int, chunks: int, position: Position) -> None:
        self._chunks.setdefault(incarnation, {}).setdefault(message, (chunks, {}))[1][number] = position

    def position(self, incarnation: str) -> MessagePosition:
        return self.positions.get(incarnation, BEFORE_ALL)

    def answered(self, plan: PlanAnswer, begin: MessagePosition, acknowledged: Iterable[Position]) -> None:
        """Check and record a plan. `acknowledged`: before the plan was requested."""
        start, stop = (
            MessagePosition(one.ledger_id, one.entry_id, one.skip_messages) for one in (plan.start, plan.stop)
        )
        named = [
            Position(piece.ledger_id, entry_id)
            for piece in plan.pieces
            for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1)
        ]
        if not begin <= start <= stop:
            raise Violation("SPK-5", f"a plan from {begin} goes from {start} to {stop}")
        end = MessagePosition(plan.end.ledger_id, plan.end.entry_id, plan.end.skip_messages)
        if begin > end:
            # The reader takes that for a loss. The broker that answered has lost the topic, and did not make sure.
            raise Violation("SPK-1", f"a plan is requested from {begin} on, and the log's reported end is {end}")
        entries = self._entries.setdefault(plan.incarnation, {})
        last = next(reversed(entries), EARLIEST)
        for position in named:
            if not (last < position and start <= MessagePosition(*position) < stop):
                raise Violation("SPK-5", f"a plan from {start} to {stop} names {position} behind {last}")
            last = position
            entries[position] = None
        if plan.messages != len(named):
            raise Violation("SPK-5", f"a plan of {len(named)} entries reports {plan.messages} messages")
        for position in acknowledged:
            if start <= MessagePosition(*position) < stop and position not in entries:
                raise Violation("SPK-5", f"{position} was acknowledged, and the plan from {start} to {stop} lacks it")
        self.positions[plan.incarnation] = stop

    def answered_before(self, plan: PlanAnswer, begin: MessagePosition) -> None:
        """Check the chunks in front of a plan's range. `answered` has recorded the plan already."""
        end, needed = (
            MessagePosition(one.ledger_id, one.entry_id, one.skip_messages) for one in (plan.end, plan.needed_from)
        )
        began = self._began.setdefault(plan.incarnation, end)
        if needed > end:
            raise Violation("SPK-5", f"{needed} is reported as needed first, and the log's reported end is {end}")
        self.needed[plan.incarnation] = needed
        here, before = (
            {
                Position(piece.ledger_id, entry_id)
                for piece in pieces
                for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1)
            }
            for pieces in (plan.pieces, plan.before)
        )
        passed = sorted({one.ledger_id for one in self._entries[plan.incarnation] if one.ledger_id < begin.ledger_id})
        for message, (chunks, positions) in self._chunks.get(plan.incarnation, {}).items():
            if len(positions) < chunks or positions[chunks - 1] not in here or MessagePosition(*positions[0]) < began:
                continue
            if len(passed) - bisect_left(passed, positions[0].ledger_id) > NEAR_LEDGERS:
                continue
            for position in positions.values():
                if position not in here and position not in before:
                    raise Violation(
                        "SPK-5",
                        f"{message} ends at {positions[chunks - 1]} in a plan from {begin} on, and that lacks its "
                        f"chunk at {position}",
                    )

    def check(self, incarnation: str, before_first: Position, found: Iterable[Position]) -> None:
        there = set(found)
        for position in self._entries.get(incarnation, {}):
            if position > before_first and position not in there:
                raise Violation("SPK-5", f"{position} was planned, and was never confirmed")
