"""Reading records from the disk: never more than so many bytes and one record, each held against its checksum.

How large a record is, nobody knows before it is read. So what is asked for may come to more than there is memory for,
and the storage is told where to stop. A record that fails its checksum is damaged, as one is that the storage can't
read. None of the two is ever "absent".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, TypeGuard

from magnetar_bookie.core.counters import BookieCounters
from magnetar_bookie.core.ledger_replicas import LedgerReplicas
from magnetar_bookie.read.record import NO_ENTRY, BadRecord, RecordHeader, are_valid_records, check_record
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.storage.interface import DAMAGED, Damaged, LedgerStorage, StorageFailed

__all__ = ["RecordReader"]

# So many entries are asked for at a time: they take memory as well.
_PORTION: Final = 1000
# So many entries below a damaged last one are looked at for a LAC.
_LOOKED_BACK: Final = 100


class RecordReader:
    def __init__(
        self, storage: LedgerStorage, replicas: LedgerReplicas, commit: GroupCommit, counters: BookieCounters
    ) -> None:
        self._storage = storage
        self._replicas = replicas
        self._commit = commit
        self._counters = counters

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        """The records from the first on, up to so many bytes; the first always. None: not held.

        Damaged ones count, as they were read.
        """
        found: list[bytes | Damaged | None] = []
        room = max_bytes
        while len(found) < len(entry_ids) and room > 0:
            asked = entry_ids[len(found) : len(found) + _PORTION]
            held = await self.held(ledger_id, asked, room)
            sums = list(accumulate(map(len, held) if _records_only(held) else map(_size, held)))
            fit = max(bisect_right(sums, room), 0 if found else 1)
            found += self._checked(ledger_id, asked[:fit], held[:fit])
            if fit < len(held):
                break
            room -= sums[-1]
        return found

    def _checked(
        self, ledger_id: int, entry_ids: Sequence[int], held: Sequence[bytes | Damaged | None]
    ) -> Sequence[bytes | Damaged | None]:
        if _records_only(held) and are_valid_records(held, ledger_id, entry_ids):
            return held
        checked: list[bytes | Damaged | None] = []
        for entry_id, one in zip(entry_ids, held, strict=True):
            if one is None or (isinstance(one, bytes) and _header(one, ledger_id, entry_id) is not None):
                checked.append(one)
            else:
                self._counters.damaged += 1
                checked.append(DAMAGED)
        return checked

    async def held(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        """What is held, unchecked, what is in line for the disk included: up to so many bytes and one record.

        It may be less than what was asked for, but not nothing.
        """
        if not self._replicas.entries_in_line(ledger_id):
            return await self._read(ledger_id, entry_ids, max_bytes)
        in_line, room = self._in_line(ledger_id, entry_ids, max_bytes)
        on_disk = [entry_id for entry_id, record in zip(entry_ids, in_line, strict=False) if record is None]
        if not on_disk:
            return list(in_line)
        read = await self._read(ledger_id, on_disk, room)
        held: list[bytes | Damaged | None] = []
        at = 0
        for record in in_line:
            if record is not None:
                held.append(record)
            elif at < len(read):
                held.append(read[at])
                at += 1
            else:
                break
        return held

    async def _read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        try:
            return await self._storage.read(ledger_id, entry_ids, max_bytes)
        except StorageFailed as error:
            self._commit.fail(error)
            raise

    def _in_line(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> tuple[list[bytes | None], int]:
        """What is in line of the entries, and None for those that are not, up to so many bytes; the first always.

        Returns as well how many bytes there is room for besides.
        """
        in_line: list[bytes | None] = []
        for entry_id in entry_ids:
            record = self._replicas.in_line(ledger_id, entry_id)
            if record is not None:
                if in_line and len(record) > max_bytes:
                    break
                max_bytes -= len(record)
            in_line.append(record)
            if max_bytes < 0:
                break
        return in_line, max_bytes

    async def last_add_confirmed(self, ledger_id: int) -> int:
        """What may be said. Reads the ledger's last record where nobody has since the ledger came to mind."""
        known = self._replicas.last_add_confirmed(ledger_id)
        if known is not None:
            return known
        last = self._replicas.loaded_highest(ledger_id)
        below = self._storage.entry_ids(ledger_id, max(0, last - _LOOKED_BACK), last - 1, _LOOKED_BACK)
        for entry_id in (last, *reversed(below)):
            if self._replicas.in_line(ledger_id, entry_id) is not None:
                continue  # it was damaged, and is not durable yet
            (record,) = await self.held(ledger_id, [entry_id], 0)
            header = None if record is None else _header(record, ledger_id, entry_id)
            if header is not None:
                return self._replicas.loaded(ledger_id, header.last_add_confirmed)
        return self._replicas.loaded(ledger_id, NO_ENTRY)


def _records_only(held: Sequence[bytes | Damaged | None]) -> TypeGuard[Sequence[bytes]]:
    return {*map(type, held)} <= {bytes}


def _size(held: bytes | Damaged | None) -> int:
    return len(held) if isinstance(held, bytes) else 0


def _header(record: bytes | Damaged, ledger_id: int, entry_id: int) -> RecordHeader | None:
    if isinstance(record, Damaged):
        return None
    try:
        return check_record(record, ledger_id, entry_id)
    except BadRecord:
        return None
