"""Reads records from the storage, checks them, and adds the pending ones.

The size of a record is unknown before it is read, so each read has a limit in bytes, at which the storage stops: the
result may be shorter than the request, but has at least one record. A record is damaged if it doesn't match its
checksum or if the storage can't read it. A damaged record is never reported as absent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, TypeGuard

from magnetar_bookie.read.record import NO_ENTRY, BadRecord, RecordHeader, are_valid_records, check_record
from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.ledger_rules import LedgerRules
from magnetar_bookie.storage.interface import DAMAGED, Damaged, LedgerStorage, StorageFailed

__all__ = ["RecordReader"]

# Maximum number of entries in one request to the storage: their ids take memory, too.
_MAX_ENTRIES: Final = 1000
# Maximum number of entries below a damaged last one in which a LAC is looked for.
_MAX_LAC_ENTRIES: Final = 100


class RecordReader:
    def __init__(
        self, storage: LedgerStorage, rules: LedgerRules, commit: GroupCommit, counters: BookieCounters
    ) -> None:
        self._storage = storage
        self._rules = rules
        self._commit = commit
        self._counters = counters

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        """Read and check records, in order, up to a number of bytes, but at least one. None: no such entry.

        The bytes of damaged records count, too.
        """
        records: list[bytes | Damaged | None] = []
        left_bytes = max_bytes
        while len(records) < len(entry_ids) and left_bytes > 0:
            portion = entry_ids[len(records) : len(records) + _MAX_ENTRIES]
            found = await self.read_unchecked(ledger_id, portion, left_bytes)
            sums = list(accumulate(map(len, found) if _are_all_records(found) else map(_count_bytes, found)))
            count = max(bisect_right(sums, left_bytes), 0 if records else 1)
            records += self._check_records(ledger_id, portion[:count], found[:count])
            if count < len(found):
                break
            left_bytes -= sums[-1]
        return records

    def _check_records(
        self, ledger_id: int, entry_ids: Sequence[int], records: Sequence[bytes | Damaged | None]
    ) -> Sequence[bytes | Damaged | None]:
        if _are_all_records(records) and are_valid_records(records, ledger_id, entry_ids):
            return records
        checked: list[bytes | Damaged | None] = []
        for entry_id, record in zip(entry_ids, records, strict=True):
            if record is None or (isinstance(record, bytes) and _check_header(record, ledger_id, entry_id) is not None):
                checked.append(record)
            else:
                self._counters.damaged += 1
                checked.append(DAMAGED)
        return checked

    async def read_unchecked(
        self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int
    ) -> list[bytes | Damaged | None]:
        """Read records, stored and pending ones, in order, without a check. One record may exceed the bytes.

        The result may be shorter than the request, but has at least one record.
        """
        if not self._rules.list_pending_entry_ids(ledger_id):
            return await self._read_stored(ledger_id, entry_ids, max_bytes)
        pending, left_bytes = self._get_pending(ledger_id, entry_ids, max_bytes)
        stored_ids = [entry_id for entry_id, record in zip(entry_ids, pending, strict=False) if record is None]
        if not stored_ids:
            return list(pending)
        stored = await self._read_stored(ledger_id, stored_ids, left_bytes)
        records: list[bytes | Damaged | None] = []
        read = 0
        for record in pending:
            if record is not None:
                records.append(record)
            elif read < len(stored):
                records.append(stored[read])
                read += 1
            else:
                break
        return records

    async def _read_stored(
        self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int
    ) -> list[bytes | Damaged | None]:
        try:
            return await self._storage.read(ledger_id, entry_ids, max_bytes)
        except StorageFailed as error:
            self._commit.fail(error)
            raise

    def _get_pending(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> tuple[list[bytes | None], int]:
        """Return the pending records, None for all other entries, and how many of the bytes are left.

        The list ends where the bytes do, but has at least one item.
        """
        pending: list[bytes | None] = []
        for entry_id in entry_ids:
            record = self._rules.get_pending_record(ledger_id, entry_id)
            if record is not None:
                if pending and len(record) > max_bytes:
                    break
                max_bytes -= len(record)
            pending.append(record)
            if max_bytes < 0:
                break
        return pending, max_bytes

    async def read_last_add_confirmed(self, ledger_id: int) -> int:
        """Return the LAC to report. Reads the ledger's last record if that was not done since the ledger was loaded."""
        last_add_confirmed = self._rules.get_last_add_confirmed(ledger_id)
        if last_add_confirmed is not None:
            return last_add_confirmed
        last = self._rules.get_loaded_highest_entry_id(ledger_id)
        below = self._storage.list_entry_ids(ledger_id, max(0, last - _MAX_LAC_ENTRIES), last - 1, _MAX_LAC_ENTRIES)
        for entry_id in (last, *reversed(below)):
            if self._rules.get_pending_record(ledger_id, entry_id) is not None:
                continue  # the replacement of a damaged record, which is not durable yet
            (record,) = await self.read_unchecked(ledger_id, [entry_id], 0)
            header = None if record is None else _check_header(record, ledger_id, entry_id)
            if header is not None:
                return self._rules.set_loaded_lac(ledger_id, header.last_add_confirmed)
        return self._rules.set_loaded_lac(ledger_id, NO_ENTRY)


def _are_all_records(records: Sequence[bytes | Damaged | None]) -> TypeGuard[Sequence[bytes]]:
    return {*map(type, records)} <= {bytes}


def _count_bytes(record: bytes | Damaged | None) -> int:
    return len(record) if isinstance(record, bytes) else 0


def _check_header(record: bytes | Damaged, ledger_id: int, entry_id: int) -> RecordHeader | None:
    """Return the record's header; None: the record is damaged."""
    if isinstance(record, Damaged):
        return None
    try:
        return check_record(record, ledger_id, entry_id)
    except BadRecord:
        return None
