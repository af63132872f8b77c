"""What was planned for somebody who follows a topic's log by plans, whoever has the topic; and what must hold of it.

A plan names entries, each of one message here. All that was acknowledged before it between its ends is among them, none
comes twice, and each is in the log that is left in the end, if it was not trimmed: so nothing was ever planned that was
not confirmed.
"""

from __future__ import annotations

from collections.abc import Iterable

from magnetar_broker.core.next_message import BEFORE_ALL, NextMessage
from magnetar_broker.core.position import EARLIEST, Position
from magnetar_protos.reading_pb2 import PlanAnswer
from tests.sim.invariants.history import Violation

__all__ = ["Planned"]


class Planned:
    def __init__(self) -> None:
        # By incarnation: where the follower has come, and all that it was told of.
        self.places: dict[str, NextMessage] = {}
        self._entries: dict[str, dict[Position, None]] = {}

    def place(self, incarnation: str) -> NextMessage:
        return self.places.get(incarnation, BEFORE_ALL)

    def answered(self, plan: PlanAnswer, begin: NextMessage, acknowledged: Iterable[Position]) -> None:
        """`acknowledged`: before the plan was asked for."""
        start, stop = (NextMessage(one.ledger_id, one.entry_id, one.batch_index) for one in (plan.start, plan.stop))
        named = [
            Position(piece.ledger_id, entry_id)
            for piece in plan.pieces
            for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1)
        ]
        if not begin <= start <= stop:
            raise Violation("SPK-5", f"a plan from {begin} goes from {start} to {stop}")
        entries = self._entries.setdefault(plan.incarnation, {})
        last = next(reversed(entries), EARLIEST)
        for position in named:
            if not (last < position and start <= NextMessage(*position) < stop):
                raise Violation("SPK-5", f"a plan from {start} to {stop} names {position} behind {last}")
            last = position
            entries[position] = None
        if plan.messages != len(named):
            raise Violation("SPK-5", f"a plan of {len(named)} entries is said to have {plan.messages} messages")
        for position in acknowledged:
            if start <= NextMessage(*position) < stop and position not in entries:
                raise Violation("SPK-5", f"{position} was acknowledged, and the plan from {start} to {stop} lacks it")
        self.places[plan.incarnation] = stop

    def check(self, incarnation: str, before_first: Position, found: Iterable[Position]) -> None:
        there = set(found)
        for position in self._entries.get(incarnation, {}):
            if position > before_first and position not in there:
                raise Violation("SPK-5", f"{position} was planned, and was never confirmed")
