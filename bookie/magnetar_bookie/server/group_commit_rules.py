"""A group of a bookie's changes that become durable together, and what becomes true when they have.

While one group is on its way to the disk the next one gathers. A group knows who waits for it: ranges of adds, which
are answered OK then, and calls, which go on then. What it can't keep is told with the same answers: where the disk has
no room for its records these are refused, and the changes of ledgers made all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Final

from magnetar_bookie.storage.interface import Changes
from magnetar_protos.ledger_pb2 import Status
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES, count_entry_memory

__all__ = ["Answer", "CommitGroup"]

_OK: Final = Status.OK  # an enum of protobuf looks each name up in Python


@dataclass(slots=True)  # frozen, it would take 0.4 µs more to make, of each add that comes alone
class Answer:
    """What adds of entries that follow each other came to. `asker` is whoever is to have it."""

    asker: Any
    ledger_id: int
    first_entry_id: int
    count: int
    status: Status


@dataclass(slots=True)
class CommitGroup:
    changes: Changes = field(default_factory=Changes)
    # What is answered when the group is durable and nothing of it was refused.
    adds: list[Answer] = field(default_factory=list)
    # Calls that go on when the group is durable.
    waiting: list[Any] = field(default_factory=list)
    # The LACs that may be said then: ledger id → the highest.
    confirmed: dict[int, int] = field(default_factory=dict)
    # The memory of the records.
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
        self.pending_bytes += len(record) + ENTRY_OVERHEAD_BYTES
        if last_add_confirmed > self.confirmed.get(ledger_id, -1):
            self.confirmed[ledger_id] = last_add_confirmed

    def put_records(self, ledger_id: int, entry_ids: range, records: Sequence[bytes], last_add_confirmed: int) -> None:
        """The same for many, of which the highest LAC is this."""
        self.changes.records.update(zip(zip(repeat(ledger_id), entry_ids, strict=False), records, strict=True))
        self.pending_bytes += count_entry_memory(records)
        if last_add_confirmed > self.confirmed.get(ledger_id, -1):
            self.confirmed[ledger_id] = last_add_confirmed

    def drop_ledger(self, ledger_id: int) -> None:
        """The ledger is deleted. Storage drops first and writes then, so what gathered of it here must go."""
        changes = self.changes
        for key in [key for key in changes.records if key[0] == ledger_id]:
            self.pending_bytes -= len(changes.records.pop(key)) + ENTRY_OVERHEAD_BYTES
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

    def added(self, asker: Any, ledger_id: int, first_entry_id: int, count: int) -> None:
        """So many entries are in the group, and `asker` is to hear when they are durable."""
        self.adds.append(Answer(asker, ledger_id, first_entry_id, count, _OK))

    def answers(self) -> list[Answer]:
        """Of the adds, now that the group is durable."""
        if self.full or self.deleted:
            return [replace(answer, status=self._status(answer.ledger_id)) for answer in self.adds]
        return self.adds

    def _status(self, ledger_id: int) -> Status:
        if ledger_id in self.deleted:
            return Status.DELETED
        if self.full:
            return Status.READ_ONLY
        return _OK
