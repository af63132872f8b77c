"""A group of a bookie's changes that become durable together, and what becomes true when they have.

While one group is on its way to the disk the next one gathers. A group knows who waits for it: ranges of adds, which
are answered OK then, and calls, which go on then. What it can't keep is told with the same answers: where the disk has
no room for its records these are refused, and the changes of ledgers made all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from magnetar_bookie.storage.interface import Changes
from magnetar_protos.ledger_pb2 import Status

__all__ = ["RECORD_OVERHEAD_BYTES", "AddedRange", "Answer", "CommitGroup"]

# What a record in line takes besides its bytes.
RECORD_OVERHEAD_BYTES: Final = 200
_OK: Final = Status.OK  # an enum of protobuf looks each name up in Python


@dataclass(frozen=True, slots=True)
class AddedRange:
    """Adds that are answered when the group is durable. `asker` is whoever is to have the answer."""

    asker: Any
    ledger_id: int
    first_entry_id: int
    count: int


@dataclass(frozen=True, slots=True)
class Answer:
    asker: Any
    ledger_id: int
    first_entry_id: int
    count: int
    status: Status


@dataclass(slots=True)
class CommitGroup:
    changes: Changes = field(default_factory=Changes)
    adds: list[AddedRange] = field(default_factory=list)
    # Calls that go on when the group is durable.
    waiting: list[Any] = field(default_factory=list)
    # The LACs that may be said then: ledger id → the highest.
    confirmed: dict[int, int] = field(default_factory=dict)
    # Of the records, with what they take in memory.
    pending_bytes: int = 0
    # Deleted while the group gathered, after records of theirs had been taken into it.
    deleted: dict[int, None] = field(default_factory=dict)
    # The disk had no room for the records.
    full: bool = False

    def __bool__(self) -> bool:
        changes = self.changes
        return (
            bool(changes.records or changes.ledgers or changes.dropped or self.adds or self.waiting)
            or changes.bookie is not None
        )

    def put_record(self, ledger_id: int, entry_id: int, record: bytes, last_add_confirmed: int) -> None:
        self.changes.records[ledger_id, entry_id] = record
        self.pending_bytes += len(record) + RECORD_OVERHEAD_BYTES
        if last_add_confirmed > self.confirmed.get(ledger_id, -1):
            self.confirmed[ledger_id] = last_add_confirmed

    def drop_ledger(self, ledger_id: int) -> None:
        """The ledger is deleted. Storage drops first and writes then, so what gathered of it here must go."""
        changes = self.changes
        for key in [key for key in changes.records if key[0] == ledger_id]:
            self.pending_bytes -= len(changes.records.pop(key)) + RECORD_OVERHEAD_BYTES
        changes.discarded = [key for key in changes.discarded if key[0] != ledger_id]
        if ledger_id not in changes.dropped:
            changes.dropped.append(ledger_id)
        self.confirmed.pop(ledger_id, None)
        self.deleted[ledger_id] = None

    def without_records(self) -> Changes:
        """What is written where the records find no room.

        What is damaged and was to be written again stays as it is: discarded alone, it would be absent.
        """
        self.full = True
        return replace(self.changes, records={}, discarded=[])

    def answers(self) -> Iterator[Answer]:
        """Of the adds, now that the group is durable."""
        for added in self.adds:
            status = _OK
            if added.ledger_id in self.deleted:
                status = Status.DELETED
            elif self.full:
                status = Status.READ_ONLY
            yield Answer(added.asker, added.ledger_id, added.first_entry_id, added.count, status)
