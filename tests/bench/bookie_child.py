"""A bookie in a process of its own, for the benchmarks: the production service, storage and transport, no metadata.

`python -m tests.bench.bookie_child FOLDER` prints its address, and then answers each line of standard input with one of
standard output: `stats` with what was synced since the last time and the resident memory, `fill LEDGER COUNT SIZE` when
that many entries are stored. It ends when standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import psutil

from magnetar_bookie.read.record import encode_record
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.storage.interface import Changes
from magnetar_bookie.storage.rocksdb import RocksStorage, StorageSettings, open_rocksdb
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.process.memory_tuning import keep_freed_memory

# Entries of one group when a ledger is filled.
_FILLED_TOGETHER: Final = 5_000


class Counted:
    """A storage that counts what goes through it."""

    def __init__(self, storage: RocksStorage) -> None:
        self._storage = storage
        self.groups = self.records = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def write(self, changes: Changes) -> None:
        if changes.records:
            self.groups += 1
            self.records += len(changes.records)
        self._storage.write(changes)


async def main(folder: Path) -> None:
    keep_freed_memory()
    storage = await open_rocksdb(folder, StorageSettings())
    counted = Counted(storage)
    bookie = Bookie(folder.name, counted, SystemClock())  # type: ignore[arg-type]
    listener = await GrpcTransport().listen("127.0.0.1:0", bookie)
    say(listener.address)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, *arguments = line.split()
        if command == "fill":
            await fill(storage, *map(int, arguments))
        resident = psutil.Process().memory_info().rss
        say(json.dumps({"groups": counted.groups, "records": counted.records, "resident_bytes": resident}))
        counted.groups = counted.records = 0
    await listener.close()
    await bookie.close()
    await storage.close()


async def fill(storage: RocksStorage, ledger_id: int, count: int, size: int) -> None:
    payload = bytes(size)
    for first in range(0, count, _FILLED_TOGETHER):
        group = Changes()
        for entry_id in range(first, min(first + _FILLED_TOGETHER, count)):
            record = encode_record(ledger_id, entry_id, entry_id - 1, size * (entry_id + 1), payload)
            group.records[ledger_id, entry_id] = record
        storage.write(group)
        await storage.sync()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
