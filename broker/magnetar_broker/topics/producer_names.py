"""Rules about the names of a topic's producers, and the last sequence id stored for each name.

A name has one producer at a time (PRD-11). A producer that reconnects has the same `instance` and a higher epoch. It
takes over its name, and messages that its old connection has sent, and the topic has not accepted yet, are never
accepted (CHK-33). A producer with the same name and another instance is refused while the first one is connected.

    A: instance a, epoch 0, sends 1 2 3; the connection breaks, and 3 is not read from it yet
    A reconnects: instance a, epoch 1. It evicts epoch 0, and resends 2 3: the log has 1 2 2 3, and no other 3 after it
    If the broker noticed the break first, and reads the old connection's OpenProducer last, it refuses that: the epoch
    is older than the known one

So the highest epoch of a name, and its highest sequence id, are remembered after its producer has closed, for a limited
number of names: those whose producers closed last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["NOTHING_STORED", "NameTaken", "ProducerNames"]

NOTHING_STORED: Final = -1
_MAX_REMEMBERED: Final = 1_000

P = TypeVar("P")


class NameTaken(BrokerError):
    """Another producer has the name, or its own client has it with a later epoch."""

    def again(self) -> NameTaken:
        return NameTaken(self.code, str(self))


@dataclass(slots=True)
class _Known:
    instance: bytes
    epoch: int
    last_sequence_id: int = NOTHING_STORED


class ProducerNames(Generic[P]):
    """`P` is the type of producers."""

    __slots__ = ("_closed", "_known", "_max_remembered", "live")

    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        # The connected producer of each name.
        self.live: dict[str, P] = {}
        # What is known of connected and closed producers, and the names of the closed ones, the last one at the end.
        self._known: dict[str, _Known] = {}
        self._closed: dict[str, None] = {}
        self._max_remembered = max_remembered

    def check_epoch(self, name: str, instance: bytes, epoch: int) -> P | None:
        """Return the connected producer that this one replaces: the same client's earlier one. Raises `NameTaken`."""
        holder, known = self.live.get(name), self._known.get(name)
        if known is None or known.instance != instance:
            return None
        if epoch < known.epoch or (epoch == known.epoch and holder is not None):
            raise NameTaken(
                ErrorCode.PRODUCER_FENCED,
                f"producer {name!r} is already open with epoch {known.epoch}, which epoch {epoch} does not exceed",
            )
        return holder

    def claim(self, name: str, instance: bytes, epoch: int, producer: P) -> P | None:
        """Give the producer the name, and return the producer that it evicts. Raises `NameTaken`."""
        holder, known = self.check_epoch(name, instance, epoch), self._known.get(name)
        if holder is None and name in self.live:
            raise NameTaken(
                ErrorCode.PRODUCER_BUSY,
                f"Producer with name {name!r} is already connected to the topic: choose another name, or "
                "none to let the broker choose one",
            )
        last = NOTHING_STORED if known is None else known.last_sequence_id
        self._known[name] = _Known(instance, epoch, last)
        self.live[name] = producer
        self._closed.pop(name, None)
        return holder

    def release(self, name: str, producer: P) -> None:
        """Release the name of a closed producer, unless another one has taken it over."""
        if self.live.get(name) is not producer:
            return
        del self.live[name]
        self._closed[name] = None
        if len(self._closed) > self._max_remembered:
            forgotten = next(iter(self._closed))
            del self._closed[forgotten], self._known[forgotten]

    def record_stored(self, name: str, sequence_id: int) -> None:
        """Record that a message of this name is persisted."""
        known = self._known.get(name)
        if known is not None and sequence_id > known.last_sequence_id:
            known.last_sequence_id = sequence_id

    def last_sequence_id(self, name: str) -> int:
        """Return the highest sequence id that is known to be persisted."""
        known = self._known.get(name)
        return NOTHING_STORED if known is None else known.last_sequence_id
