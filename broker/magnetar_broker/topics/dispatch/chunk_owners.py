"""Shared: the consumers that have received the first chunks of messages.

Only one consumer can join the chunks of a message. So the consumer that gets the first chunk gets the others, in order:

    P sends 1:0 and 1:2, the chunks of a message, and 1:1. A and B have capacity
    1:0 goes to A, whose turn it is; 1:1 to B; 1:2 to A, though it is not its turn

If A has no capacity then, 1:2 is deferred until it has, and later entries are delivered. If A leaves before it has all
chunks, all are redelivered, beginning with the first, to the next consumer.

A later chunk of a message without an owner goes to the consumer whose turn it is, and is handled there like one without
its first chunks. That happens if reading begins in the middle of a message, and if more messages are incomplete than
owners are recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.position_set import PositionSet

__all__ = ["ChunkOwners"]

# Incomplete messages whose owners are recorded. A producer sends one message after the other, so there is usually one
# for each producer; but one may begin messages and complete none.
_MAX_OWNERS: Final = 1_000


class ChunkOwners:
    __slots__ = ("_deferred", "_owners")

    def __init__(self) -> None:
        # By message, the oldest first. At most `_MAX_OWNERS`.
        self._owners: dict[int, BaseConsumer] = {}
        # Chunks whose owners had no capacity; no set is empty.
        self._deferred: dict[BaseConsumer, PositionSet] = {}

    def __len__(self) -> int:
        """The number of deferred chunks."""
        return sum(map(len, self._deferred.values()))

    def find_owner(self, chunk: Chunk) -> BaseConsumer | None:
        return self._owners.get(chunk.message)

    def record_delivery(self, chunk: Chunk, consumer: BaseConsumer) -> None:
        if chunk.last:
            self._owners.pop(chunk.message, None)
            return
        self._owners[chunk.message] = consumer
        if len(self._owners) > _MAX_OWNERS:
            del self._owners[next(iter(self._owners))]

    def defer(self, owner: BaseConsumer, position: Position) -> None:
        self._deferred.setdefault(owner, PositionSet()).add(position)

    def has_deferred(self, owner: BaseConsumer) -> bool:
        """Return whether chunks are deferred for this owner: its later ones come after them."""
        return owner in self._deferred

    @property
    def deferred_owners(self) -> list[BaseConsumer]:
        """The consumers for which chunks are deferred."""
        return list(self._deferred)

    def take_deferred(self) -> Iterator[Position]:
        """Remove the deferred chunks of owners that have capacity now."""
        if self._deferred:
            for owner in [one for one in self._deferred if one.capacity.measure()]:
                yield from _take_all(self._deferred.pop(owner))

    def remove_consumers(self, consumers: Collection[BaseConsumer]) -> Iterator[Position]:
        """Remove consumers that leave, with their deferred chunks."""
        self._owners = {message: owner for message, owner in self._owners.items() if owner not in consumers}
        for owner in [one for one in self._deferred if one in consumers]:
            yield from _take_all(self._deferred.pop(owner))

    def discard_range(self, ledger_id: int, first: int, last: int) -> None:
        """Remove acknowledged entries of one ledger, both ends included."""
        for owner, positions in list(self._deferred.items()):
            positions.discard_range(ledger_id, first, last)
            self._drop_empty(owner)

    def discard_up_to(self, position: Position) -> None:
        """Remove acknowledged entries up to this one."""
        for owner, positions in list(self._deferred.items()):
            positions.discard_up_to(position)
            self._drop_empty(owner)

    def _drop_empty(self, owner: BaseConsumer) -> None:
        if not len(self._deferred[owner]):
            del self._deferred[owner]

    def clear(self) -> None:
        self._owners.clear()
        self._deferred.clear()


def _take_all(positions: PositionSet) -> list[Position]:
    return positions.take(len(positions))
