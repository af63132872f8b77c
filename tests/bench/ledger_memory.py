"""What a process takes that holds many small entries: run by itself, as memory once taken is not always given back.

    python -m tests.bench.ledger_memory [ENTRIES] [BYTES]

It stores so many entries in a storage of its own with the options that a bookie has, then reads some of all of them,
and prints the largest resident size that it ever had and that at the end, in MB. Entries are written in groups of
5,000, to a hundred ledgers in turn.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import psutil

from magnetar_bookie.read.record import encode_record
from magnetar_bookie.storage.interface import Changes, LedgerRecord
from magnetar_bookie.storage.rocksdb import open_rocksdb

__all__ = ["resident_mb"]

ENTRIES = 10_000_000
ENTRY_BYTES = 100
_LEDGERS = 100
_GROUP = 5_000


async def resident_mb(entries: int = ENTRIES, entry_bytes: int = ENTRY_BYTES) -> dict[str, float]:
    """In this process; to be believed only where it does nothing else."""
    process, largest = psutil.Process(), 0
    entry = bytes(entry_bytes)
    with tempfile.TemporaryDirectory() as folder:
        storage = await open_rocksdb(Path(folder))
        per_ledger = _GROUP * 2
        for group in range(entries // _GROUP):
            ledger_id = 1 + group // 2 % _LEDGERS
            first = group // (2 * _LEDGERS) * per_ledger + group % 2 * _GROUP
            records = {
                (ledger_id, entry_id): encode_record(ledger_id, entry_id, entry_id - 1, 0, entry)
                for entry_id in range(first, first + _GROUP)
            }
            storage.write(Changes(records, {ledger_id: LedgerRecord(b"key")}))
            await storage.sync()
            if group % 20 == 0:
                largest = max(largest, process.memory_info().rss)
        for ledger_id in range(1, _LEDGERS + 1):
            for first in range(0, storage.last_entry(ledger_id), 10_000):
                await storage.read(ledger_id, range(first, first + 1000), 1 << 20)
        at_end = process.memory_info().rss
        await storage.close()
    return {"largest_mb": max(largest, at_end) / 1e6, "at_end_mb": at_end / 1e6}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(resident_mb(*map(int, sys.argv[1:])))) + "\n")
