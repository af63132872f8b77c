"""What a bookie keeps its ledgers in.

Theory of operation
-------------------
The storage holds, per ledger, a `LedgerRecord` and records by entry id, and one `BookieRecord` (bytes; see
ledger.proto) about the bookie itself. `write` makes a group of changes together: readable at once, durable when a
`sync` that began later has returned. A group is all there or not at all after a crash, and no group without those
before it. What is there when a storage is opened is durable. The bookie writes, syncs and only then answers; it has one
`sync` under way at a time.

A `sync` that fails raises `StorageFailed`, and so does everything after it: nobody knows what is on the disk, so the
process ends and begins anew with what is really there. A storage may also fail by itself, at what it does besides; who
named somebody to `when_failed` hears of it though nobody asks. `write` raises `StorageFull` where the group's records
find no room; then nothing of it is written. A group without records (fences, tombstones, the bookie's own record)
always finds room: some is kept back for it.

`intact` is False on a storage that was opened and can't say that everything that was ever synced is there. It stays
False for as long as this object lives, and is False again at each later opening, until a group with the bookie's own
record (`Changes.bookie`) is durable: a bookie that sees it writes that down before anything else, but may crash before
it has.

What was written under one (ledger, entry) id is never changed: the bookie does not write it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = [
    "DAMAGED",
    "Changes",
    "Damaged",
    "LedgerRecord",
    "LedgerStorage",
    "StorageFailed",
    "StorageFull",
    "StorageInUse",
]


class StorageFailed(Exception):
    """The disk failed. Nothing more is known about what was not synced before: end the process."""


class StorageInUse(StorageFailed):
    """Another process has it open."""


class StorageFull(Exception):
    """The disk has no room for the group; nothing of it was written."""


class Damaged:
    """Stands for a record that is there and can't be read."""


DAMAGED: Final = Damaged()


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """What a bookie remembers of a ledger besides its entries. A ledger it was never asked about has none."""

    # Empty: nobody who knew it has written yet.
    master_key: bytes = b""
    fenced: bool = False
    # The explicit one; records carry their own.
    last_add_confirmed: int = -1
    # A tombstone: the ledger was deleted. No entries are left, and none is ever taken again.
    deleted: bool = False
    # The bookie's limbo, by its generation, since which the ledger was found or made whole here.
    limbo_cleared: int = 0
    # Of a tombstone: nothing is left to do, as the metadata store waits for this bookie no more. Unless a fence comes:
    # whoever sends it has seen the ledger there.
    settled: bool = False


@dataclass(slots=True)
class Changes:
    """A group of changes, made together."""

    # (ledger id, entry id) → record
    records: dict[tuple[int, int], bytes] = field(default_factory=dict)
    ledgers: dict[int, LedgerRecord] = field(default_factory=dict)
    # Ledgers whose records all go. A deleted ledger's `LedgerRecord` stays.
    dropped: list[int] = field(default_factory=list)
    # Records that are damaged and go, so that they can be written again: the one exception to "never changed".
    discarded: list[tuple[int, int]] = field(default_factory=list)
    bookie: bytes | None = None


class LedgerStorage(Protocol):
    """Opened: ready to be read and written. For one event loop."""

    @property
    def intact(self) -> bool:
        """Everything that was ever synced is there."""

    def has_room(self) -> bool:
        """Whether entries find room: asked after `StorageFull`, and true only where more than a few do."""

    def bookie(self) -> bytes | None:
        """The bookie's own record; None on a disk that was never written."""

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """What is remembered of the ledger."""

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        """Of the ledgers with a `LedgerRecord`, tombstones included, the `limit` lowest from `first` on, in order."""

    def last_entry(self, ledger_id: int) -> int:
        """The highest entry id held of the ledger; -1: none."""

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Whether a record is held, damaged or not."""

    def entry_ids(self, ledger_id: int, first: int, last: int, limit: int) -> list[int]:
        """Of the entries held between `first` and `last`, both included, the `limit` lowest, in order."""

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        """The records, None where none is held. Storage that finds one unreadable says `DAMAGED`.

        It stops after the record with which they come to more than `max_bytes`: the answer may be shorter than what was
        asked for, but has one entry at least, and no more is read than what is in it.
        """

    def write(self, changes: Changes) -> None:
        """Makes the changes: `discarded` and `dropped` first, then the rest."""

    async def sync(self) -> None:
        """All that was written before this call is durable when it returns."""

    def begin_sync(self, done: Callable[[StorageFailed | None], object]) -> None:
        """`sync` for who has no task: `done` is called once, later and on the event loop, with how it went."""

    def when_failed(self, told: Callable[[StorageFailed], object]) -> None:
        """`told` is called, on the event loop, when the storage fails and no caller hears of it; or one does, too."""

    async def close(self) -> None:
        """Syncs and ends."""
