"""Reading records from the disk: in bounded portions, each record held against its checksum.

A record that fails it is damaged, as one is that the storage can't read. None of the two is ever "absent".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_bookie.core.ledger_replicas import LedgerReplicas
from magnetar_bookie.read.record import NO_ENTRY, BadRecord, Header, check_record
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.storage.interface import DAMAGED, Damaged, LedgerStorage, StorageFailed

__all__ = ["RecordReader"]

# The first portion, as nobody knows yet how large the ledger's records are; and the largest.
_FIRST_PORTION: Final = 2
_LARGEST_PORTION: Final = 1000
# So many entries below a damaged last one are looked at for a LAC.
_LOOKED_BACK: Final = 100


class RecordReader:
    def __init__(self, storage: LedgerStorage, replicas: LedgerReplicas, commit: GroupCommit) -> None:
        self._storage = storage
        self._replicas = replicas
        self._commit = commit

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged]:
        """The records of entries that are held, from the first on, up to so many bytes; the first always."""
        found: list[bytes | Damaged] = []
        room, largest, portion = max_bytes, 1, _FIRST_PORTION
        while len(found) < len(entry_ids):
            asked = entry_ids[len(found) : len(found) + portion]
            for entry_id, held in zip(asked, await self.held(ledger_id, asked), strict=True):
                # None: it was dropped meanwhile. The caller will find the ledger deleted.
                record = DAMAGED if held is None or not _header(held, ledger_id, entry_id) else held
                size = len(record) if isinstance(record, bytes) else 0
                if found and size > room:
                    return found
                found.append(record)
                room -= size
                largest = max(largest, size)
            portion = max(1, min(_LARGEST_PORTION, room // largest))
        return found

    async def held(self, ledger_id: int, entry_ids: Sequence[int]) -> list[bytes | Damaged | None]:
        """What is held, unchecked, what is in line for the disk included."""
        in_line = [self._replicas.in_line(ledger_id, entry_id) for entry_id in entry_ids]
        on_disk = [entry_id for entry_id, record in zip(entry_ids, in_line, strict=True) if record is None]
        if not on_disk:
            return list(in_line)
        try:
            read = iter(await self._storage.read(ledger_id, on_disk))
        except StorageFailed as error:
            self._commit.fail(error)
            raise
        return [next(read) if record is None else record for record in in_line]

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
            (record,) = await self.held(ledger_id, [entry_id])
            header = None if record is None else _header(record, ledger_id, entry_id)
            if header is not None:
                return self._replicas.loaded(ledger_id, header.last_add_confirmed)
        return self._replicas.loaded(ledger_id, NO_ENTRY)


def _header(record: bytes | Damaged, ledger_id: int, entry_id: int) -> Header | None:
    if isinstance(record, Damaged):
        return None
    try:
        return check_record(record, ledger_id, entry_id)
    except BadRecord:
        return None
