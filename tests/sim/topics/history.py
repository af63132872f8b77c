"""The results of each topic's appends, and the checks of the log at the end.

Topics are known by their incarnations: the same name created again is another topic.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from magnetar_broker.position import Position
from magnetar_protos import managed_ledger_pb2 as pb
from tests.sim.invariants.history import Chain, Violation

__all__ = ["TopicHistory", "chain_of"]


def chain_of(node: pb.ManagedLedgerNode) -> Chain:
    """Return a topic's ledgers as a chain for the ledgers' checker."""
    ledgers = [listed.ledger_id for listed in node.ledgers]
    if node.state == pb.DELETING:
        return Chain([], [*node.deleting, *ledgers])
    return Chain(ledgers, list(node.deleting))


@dataclass
class TopicHistory:
    # The appends of each owner, and the positions that it was acknowledged, by payload.
    appended: dict[bytes, None] = field(default_factory=dict)
    acknowledged: dict[bytes, Position] = field(default_factory=dict)
    last_acknowledged: dict[bytes, Position] = field(default_factory=dict)

    def was_acknowledged(self, owner: bytes, payload: bytes, position: Position) -> None:
        """5: an owner's appends are stored in the order of appending."""
        if payload in self.acknowledged:
            raise Violation("5", f"{payload!r} was acknowledged twice")
        before = self.last_acknowledged.get(owner)
        if before is not None and before >= position:
            raise Violation("5", f"{payload!r} is at {position}, and what its owner appended before at {before}")
        self.acknowledged[payload] = self.last_acknowledged[owner] = position

    def check(
        self,
        before_first: Position,
        found: list[tuple[Position, bytes, int]],
        destroyed: Collection[tuple[int, int]] = (),
    ) -> None:
        """1, 2, 5: everything acknowledged and not trimmed is there once, in order; indexes never fall, and have gaps
        only where every replica of an entry was destroyed.
        """
        positions: dict[bytes, Position] = {}
        numbers: dict[bytes, int] = {}
        last_index: int | None = None
        last = before_first
        for position, payload, index in found:
            if payload in positions:
                raise Violation("5", f"{payload!r} stands at {positions[payload]} and at {position}")
            if payload not in self.appended:
                raise Violation("5", f"{payload!r} at {position} was never appended here")
            gap = last_index is not None and index != last_index + 1
            if last_index is not None and (
                index <= last_index or (gap and not _lost_between(destroyed, last, position))
            ):
                raise Violation("MSG-5", f"the index goes from {last_index} to {index} at {position}")
            owner, number = payload.split(b" ")[:2]
            if int(number) <= numbers.get(owner, -1):
                raise Violation("5", f"{payload!r} stands behind number {numbers[owner]} of its owner")
            positions[payload], numbers[owner], last_index, last = position, int(number), index, position
        for payload, position in self.acknowledged.items():
            lost = tuple(position) in destroyed and payload not in positions
            if position > before_first and positions.get(payload) != position and not lost:
                raise Violation("2", f"{payload!r} was acknowledged at {position}, and is at {positions.get(payload)}")


def _lost_between(destroyed: Collection[tuple[int, int]], after: Position, before: Position) -> bool:
    return any(after < Position(*one) < before for one in destroyed)
