"""Of Shared: messages that come in chunks, and the consumers that have got the first ones.

A message can be put together by one consumer only, so whoever gets its first chunk gets the others, in order:

    P sends 1:0 and 1:2, the chunks of a message, and 1:1; A and B take some
    1:0 goes to A, whose turn it is; 1:1 to B; 1:2 to A, whoever's turn it is

Takes A nothing just then, 1:2 is put off until it does, and the others go on with what is behind it. Leaves A before it
has all of them, all come again, the first one first, and who gets that is the next one.

A chunk that nobody has the first ones of goes to whoever's turn it is, as it would to a consumer that is alone: what
becomes of it is for that one to say. That is so for who begins in the middle of a message, and where more messages have
been begun than are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState
from magnetar_broker.topics.dispatch.position_set import PositionSet

__all__ = ["ChunkOwners"]

# Messages that are begun and not whole. Producers send one after the other, so there is about one for each of them;
# somebody may begin one after the other and end none.
_MOST: Final = 1_000


class ChunkOwners:
    __slots__ = ("_owners", "_put_off")

    def __init__(self) -> None:
        # By message, the oldest first. At most _MOST.
        self._owners: dict[int, ConsumerState] = {}
        # Who took nothing when something came that only he can have; none is empty.
        self._put_off: dict[ConsumerState, PositionSet] = {}

    def __len__(self) -> int:
        """How many are put off."""
        return sum(map(len, self._put_off.values()))

    def owner(self, chunk: Chunk) -> ConsumerState | None:
        return self._owners.get(chunk.message)

    def dealt(self, chunk: Chunk, consumer: ConsumerState) -> None:
        if chunk.last:
            self._owners.pop(chunk.message, None)
            return
        self._owners[chunk.message] = consumer
        if len(self._owners) > _MOST:
            del self._owners[next(iter(self._owners))]

    def put_off(self, consumer: ConsumerState, position: Position) -> None:
        self._put_off.setdefault(consumer, PositionSet()).add(position)

    def is_behind(self, consumer: ConsumerState) -> bool:
        """Something is put off for him, and what else he is to get comes behind that."""
        return consumer in self._put_off

    def take_for(self, takes: Callable[[ConsumerState], bool]) -> Iterator[Position]:
        """Removes what is put off for those who take something now."""
        if self._put_off:
            for consumer in [one for one in self._put_off if takes(one)]:
                yield from _all_of(self._put_off.pop(consumer))

    def left(self, consumer: ConsumerState) -> Iterator[Position]:
        """Removes what is put off for him; what he has had a part of is somebody else's."""
        self._owners = {message: owner for message, owner in self._owners.items() if owner is not consumer}
        if consumer in self._put_off:
            yield from _all_of(self._put_off.pop(consumer))

    def discard_range(self, ledger_id: int, first: int, last: int) -> None:
        """Entries of one ledger, both ends included: they are acknowledged."""
        for consumer, positions in list(self._put_off.items()):
            positions.discard_range(ledger_id, first, last)
            self._drop_empty(consumer)

    def discard_up_to(self, position: Position) -> None:
        """That one too."""
        for consumer, positions in list(self._put_off.items()):
            positions.discard_up_to(position)
            self._drop_empty(consumer)

    def _drop_empty(self, consumer: ConsumerState) -> None:
        if not len(self._put_off[consumer]):
            del self._put_off[consumer]

    def clear(self) -> None:
        self._owners.clear()
        self._put_off.clear()


def _all_of(positions: PositionSet) -> list[Position]:
    return positions.take(len(positions))
