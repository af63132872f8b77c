"""A process that forks while it has a ledger storage open.

The forked process prints what it can do with the storage, and waits until its input ends; then it exits normally.
The first process writes again, prints that, and waits to be killed. Run with the folder.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import warnings
from pathlib import Path

from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_bookie.storage.rocksdb import RocksStorage, open_rocksdb


async def write(storage: RocksStorage, entry_id: int) -> str:
    try:
        storage.write(Changes({(1, entry_id): b"record"}))
        await storage.sync()
    except StorageFailed as error:
        return type(error).__name__
    return "written"


def main(folder: str) -> None:
    runner = asyncio.Runner()
    storage = runner.run(open_rocksdb(Path(folder)))
    runner.run(write(storage, 0))
    # Python warns of what is tried here.
    warnings.simplefilter("ignore", DeprecationWarning)
    forked, output = os.pipe()
    if os.fork() == 0:
        outcome = asyncio.run(write(storage, 1))
        del storage
        gc.collect()
        os.write(1, f"{outcome}\n".encode())
        os.write(output, b".")
        sys.stdin.read()
        return
    os.read(forked, 1)
    os.write(1, f"{runner.run(write(storage, 2))}\n".encode())
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1])
