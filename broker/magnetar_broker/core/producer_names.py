"""Who may publish under which name on one topic, and how far each name's messages are stored.

A name has one producer at a time (PRD-11). A producer that connects again is the same one, by its `instance`, in a
higher epoch: it takes its name over, and what its former self has sent and the topic has not taken yet never will be
(CHK-33). Two of one name and different instances are two producers, and the second is refused while the first is there.

    A: instance a, epoch 0, sends 1 2 3; the connection breaks, and 3 lies unread in it
    A connects again: instance a, epoch 1. It evicts epoch 0, and sends 2 3 again: the log has 1 2 2 3, and no 3 behind
    Had the broker heard of the break first, and read the old connection's OpenProducer last: its epoch is known to be
    over, and it is refused

So the highest epoch of a name is remembered when its producer has gone, with its highest sequence id: of so many names
as are bounded here, the latest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["NOTHING_STORED", "ProducerNames"]

NOTHING_STORED: Final = -1
_MAX_REMEMBERED: Final = 1_000

P = TypeVar("P")


@dataclass(slots=True)
class _Known:
    instance: bytes
    epoch: int
    last_sequence_id: int = NOTHING_STORED


class ProducerNames(Generic[P]):
    """`P` is whatever stands for a producer."""

    __slots__ = ("_known", "_left", "_max_remembered", "live")

    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        # Who has a name now.
        self.live: dict[str, P] = {}
        # Of those, and of others; the names of the others, the one that left last at the end.
        self._known: dict[str, _Known] = {}
        self._left: dict[str, None] = {}
        self._max_remembered = max_remembered

    def claim(self, name: str, instance: bytes, epoch: int, producer: P) -> P | None:
        """Gives it the name, and returns whom that evicts. Raises `BrokerError`."""
        holder, known = self.live.get(name), self._known.get(name)
        if known is not None and known.instance == instance:
            if epoch < known.epoch or (epoch == known.epoch and holder is not None):
                raise BrokerError(
                    ErrorCode.PRODUCER_FENCED,
                    f"producer {name!r} is already open with epoch {known.epoch}, which epoch {epoch} does not exceed",
                )
        elif holder is not None:
            raise BrokerError(
                ErrorCode.PRODUCER_BUSY,
                f"Producer with name {name!r} is already connected to the topic: choose another name, or "
                "none to let the broker choose one",
            )
        last = NOTHING_STORED if known is None else known.last_sequence_id
        self._known[name] = _Known(instance, epoch, last)
        self.live[name] = producer
        self._left.pop(name, None)
        return holder

    def release(self, name: str, producer: P) -> None:
        """It has gone. If another one has the name by now, that keeps it."""
        if self.live.get(name) is not producer:
            return
        del self.live[name]
        self._left[name] = None
        if len(self._left) > self._max_remembered:
            forgotten = next(iter(self._left))
            del self._left[forgotten], self._known[forgotten]

    def stored(self, name: str, sequence_id: int) -> None:
        """A message of this name is durable."""
        known = self._known.get(name)
        if known is not None and sequence_id > known.last_sequence_id:
            known.last_sequence_id = sequence_id

    def last_sequence_id(self, name: str) -> int:
        """The highest that is known to be stored."""
        known = self._known.get(name)
        return NOTHING_STORED if known is None else known.last_sequence_id
