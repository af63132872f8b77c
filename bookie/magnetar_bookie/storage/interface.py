"""The interface of a bookie's storage.

Theory of operation
-------------------
The storage has, per ledger, a `LedgerData` and records by entry id, and one `BookieRecord` of the bookie itself (as
bytes; see ledger.proto). `write` makes a group of changes in memory: they are readable at once. A `sync` writes them to
the disk: they are durable when one that started later has returned. After a crash a group is there as a whole or not at
all, and all groups before it are there, too. All that is there when a storage is opened is durable. The bookie writes,
syncs, and only then answers; at most one of its syncs is in flight.

If a `sync` fails it raises `StorageFailed`, and so do all calls after it: it is unknown what is on the disk, so the
process ends, and the next one starts with what it finds. A storage may also fail in a task of its own; `on_failure`
registers a callback for that. `write` raises `StorageFull` if there is no space for the group's records; then nothing
of the group is written. A group without records (fences, tombstones, the bookie's record) always fits: space is
reserved for it.

`is_intact` is False if the storage, when it was opened, couldn't prove that everything is there that was ever synced.
It stays False as long as the object exists. It is False again at each later opening, until a group with the bookie's
record (`Changes.bookie`) is durable: the bookie notes the loss there before anything else, but may crash before it has.

A record of a (ledger, entry) id never changes: the bookie writes it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = [
    "DAMAGED",
    "Changes",
    "Damaged",
    "LedgerData",
    "LedgerStorage",
    "StorageFailed",
    "StorageFull",
    "StorageInUse",
    "StorageStats",
]


class StorageFailed(Exception):
    """The disk failed. It is unknown whether changes that were not synced are there: end the process."""


class StorageInUse(StorageFailed):
    """Another process has the storage open."""


class StorageFull(Exception):
    """The disk has no space for the group. Nothing of it was written."""


class Damaged:
    """Stands for a record that exists but can't be read."""


DAMAGED: Final = Damaged()


@dataclass(frozen=True, slots=True)
class LedgerData:
    """What a bookie stores of a ledger besides its entries. A ledger that it does not know has none."""

    # Empty: nobody who knows the key has written yet.
    master_key: bytes = b""
    fenced: bool = False
    # The explicit LAC; records have their own.
    last_add_confirmed: int = -1
    # A tombstone: the ledger was deleted. No entries are stored, and no more are accepted.
    deleted: bool = False
    # The generation of the bookie's limbo in which the ledger was found complete, or completed.
    limbo_cleared: int = 0
    # Of a tombstone: no node in the metadata store waits for this bookie. A fence clears it, since the sender has seen
    # a node of the ledger.
    settled: bool = False


@dataclass(slots=True)
class Changes:
    """A group of changes that are made together."""

    # (ledger id, entry id) → record
    records: dict[tuple[int, int], bytes] = field(default_factory=dict)
    ledgers: dict[int, LedgerData] = field(default_factory=dict)
    # Ledgers whose records are all deleted. Their `LedgerData` is not.
    dropped: list[int] = field(default_factory=list)
    # Damaged records that are deleted, so that they can be written again: the only exception to "never changes".
    discarded: list[tuple[int, int]] = field(default_factory=list)
    bookie: bytes | None = None


@dataclass(frozen=True, slots=True)
class StorageStats:
    """How much a storage uses, for metrics and status."""

    # Log files, their size, and the bytes in them of records that are not deleted.
    segments: int
    held_bytes: int
    used_bytes: int
    # Files of the index, without its memory and its own log.
    index_bytes: int
    # Since the process started: deleted log files, and their size.
    reclaimed_segments: int
    reclaimed_bytes: int
    # Log files with damage. They stay until their entries are repaired and stored elsewhere.
    unreadable_segments: int


class LedgerStorage(Protocol):
    """An open storage, for one event loop."""

    @property
    def is_intact(self) -> bool:
        """Everything is there that was ever synced."""

    def has_free_space(self) -> bool:
        """Return whether there is space for more than a few entries again. Call it after `StorageFull`."""

    def get_stats(self) -> StorageStats | None:
        """Return how much the storage uses; None: it doesn't know, or has failed."""

    def get_bookie_record(self) -> bytes | None:
        """Return the bookie's own record; None: the disk was never written."""

    def get_ledger(self, ledger_id: int) -> LedgerData | None: ...

    def list_ledger_ids(self, first: int, limit: int) -> list[int]:
        """Return the lowest ids from `first` on of ledgers with a `LedgerData`, tombstones included, in order."""

    def get_last_entry_id(self, ledger_id: int) -> int:
        """Return the highest stored entry id of the ledger; -1: there is none."""

    def has_entry(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether a record is stored, damaged or not."""

    def list_entry_ids(self, ledger_id: int, first: int, last: int, limit: int) -> list[int]:
        """Return the lowest stored entry ids from `first` to `last`, both included, in order."""

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        """Read records. None: no record is stored. `DAMAGED`: it can't be read.

        The result ends after the record with which it exceeds `max_bytes`: it can be shorter than the request, but has
        at least one item, and nothing is read that is not in it.
        """

    def write(self, changes: Changes) -> None:
        """Make the changes, in memory: `discarded` and `dropped` first, then the others."""

    async def sync(self) -> None:
        """Return when everything is durable that was written before this call."""

    def start_sync(self, on_done: Callable[[StorageFailed | None], object]) -> None:
        """Sync, and call `on_done` once, later and on the event loop, with the error if it failed."""

    def on_failure(self, callback: Callable[[StorageFailed], object]) -> None:
        """Call `callback` on the event loop when the storage fails, whether or not a caller gets the error."""

    async def close(self) -> None:
        """Sync, and close."""
