"""Rules about the names of a topic's producers, and what is remembered of each name.

A name has one producer at a time (PRD-11). A producer that reconnects has the same `instance` and a higher epoch. It
takes over its name, and messages that its old connection has sent, and the topic has not accepted yet, are never
accepted (CHK-33). A producer with the same name and another instance is refused while the first one is connected.

    A: instance a, epoch 0, sends 1 2 3; the connection breaks, and 3 is not read from it yet
    A reconnects: instance a, epoch 1. It evicts epoch 0, and resends 2 3: the log has 1 2 2 3, and no other 3 after it
    If the broker noticed the break first, and reads the old connection's OpenProducer last, it refuses that: the epoch
    is older than the known one

So the highest epoch of a name, and its sequence ids, are remembered after its producer has closed, for a limited number
of names: those whose producers closed last. With deduplication the stored ids of `Progress` are among them
(deduplication/rules.py); its snapshots have what `ids` yields, and `restore_ids` takes it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.deduplication.rules import NOTHING_STORED, EntryIds, Progress, record
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["NOTHING_STORED", "NameTaken", "ProducerNames", "StoredIds"]

_MAX_REMEMBERED: Final = 1_000
# Bytes that a name's ids take in a snapshot, at most, besides the name.
_IDS_BYTES: Final = 64

P = TypeVar("P")


class NameTaken(BrokerError):
    """Another producer has the name, or its own client has it with a later epoch."""

    def again(self) -> NameTaken:
        return NameTaken(self.code, str(self))


@dataclass(slots=True)
class _Known:
    instance: bytes = b""
    epoch: int = 0
    last_sequence_id: int = NOTHING_STORED
    # With deduplication: the ids that are stored; and when the name was used last, by the broker's clock.
    stored: Progress = field(default_factory=Progress)
    used_ms: int = 0


class StoredIds(NamedTuple):
    """The ids of one name, as a snapshot has them."""

    name: str
    last_sequence_id: int
    stored: Progress
    used_ms: int


class ProducerNames(Generic[P]):
    """`P` is the type of producers."""

    __slots__ = ("_closed", "_closed_bytes", "_known", "live", "max_remembered", "max_remembered_bytes")

    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        # The connected producer of each name.
        self.live: dict[str, P] = {}
        # What is known of connected and closed producers, and the names of the closed ones, the last one at the end,
        # with their sizes in a snapshot.
        self._known: dict[str, _Known] = {}
        self._closed: dict[str, int] = {}
        self._closed_bytes = 0
        # Limits of the closed ones.
        self.max_remembered = max_remembered
        self.max_remembered_bytes: int | None = None

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
        if known is None:
            known = self._known[name] = _Known()
        known.instance, known.epoch = instance, epoch
        self.live[name] = producer
        self._open(name)
        return holder

    def release(self, name: str, producer: P, now_ms: int = 0) -> None:
        """Release the name of a closed producer, unless another one has taken it over."""
        if self.live.get(name) is not producer:
            return
        del self.live[name]
        self._known[name].used_ms = now_ms
        self._close(name)

    def _open(self, name: str) -> None:
        self._closed_bytes -= self._closed.pop(name, 0)

    def _close(self, name: str) -> None:
        """Remember a name that has no producer, and forget others if there are too many."""
        self._open(name)
        size = self._closed[name] = len(name.encode()) + _IDS_BYTES
        self._closed_bytes += size
        while len(self._closed) > self.max_remembered or (
            self.max_remembered_bytes is not None and self._closed_bytes > self.max_remembered_bytes
        ):
            self._forget(next(iter(self._closed)))

    def _forget(self, name: str) -> None:
        self._open(name)
        del self._known[name]

    # Sequence ids.

    def record_stored(self, name: str, sequence_id: int) -> None:
        """Record that a message of this name is persisted."""
        known = self._known.get(name)
        if known is not None and sequence_id > known.last_sequence_id:
            known.last_sequence_id = sequence_id

    def last_sequence_id(self, name: str) -> int:
        """Return the highest sequence id that is known to be persisted."""
        known = self._known.get(name)
        return NOTHING_STORED if known is None else known.last_sequence_id

    def find_stored(self, name: str) -> Progress:
        """Return the stored ids of a name. Those of a name that is known may be changed."""
        known = self._known.get(name)
        return Progress() if known is None else known.stored

    def clear_stored(self) -> None:
        """Forget by which ids duplicates are found."""
        for known in self._known.values():
            known.stored = Progress()

    def restore_ids(self, ids: StoredIds) -> None:
        """Remember the ids of a snapshot."""
        known = self._restore(ids.name, ids.last_sequence_id, ids.used_ms)
        known.stored = ids.stored

    def replay(self, name: str, last_sequence_id: int, ids: EntryIds, used_ms: int) -> None:
        """Remember the ids of an entry of the log. They are replayed in the order of the log."""
        record(self._restore(name, last_sequence_id, used_ms).stored, ids)

    def _restore(self, name: str, last_sequence_id: int, used_ms: int) -> _Known:
        known = self._known.setdefault(name, _Known())
        known.last_sequence_id = max(known.last_sequence_id, last_sequence_id)
        known.used_ms = max(known.used_ms, used_ms)
        if name not in self.live:
            self._close(name)
        return known

    def ids(self, now_ms: int) -> Iterator[StoredIds]:
        """Yield the ids of all names of which something is stored, those with a producer last: they are in use now."""
        for name in (*self._closed, *self.live):
            known = self._known[name]
            if known.stored.sequence_id == NOTHING_STORED and known.stored.group is None:
                continue
            used_ms = now_ms if name in self.live else known.used_ms
            yield StoredIds(name, known.last_sequence_id, known.stored, used_ms)

    def forget_unused_since(self, before_ms: int) -> int:
        """Forget the names without a producer that were not used since then. Return their number."""
        unused = [name for name in self._closed if self._known[name].used_ms < before_ms]
        for name in unused:
            self._forget(name)
        return len(unused)
