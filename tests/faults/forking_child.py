"""A process that forks while it has an embedded store open.

Both say on a line what their store does after: the forked one first. Then each waits: the forked one until its input
ends, when it exits as any program does, and the first one until it is killed. Run with the folder.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import warnings

from magnetar_metadata.embedded import EmbeddedDatabase
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import ABSENT, MetadataStore
from magnetar_wire.clock import SystemClock


async def open_with_a_node(folder: str) -> tuple[EmbeddedDatabase, MetadataStore]:
    database = await EmbeddedDatabase.open(folder, SystemClock())
    store = database.connect(owns_database=True)
    await store.put("/ephemeral", b"", ABSENT, ephemeral=True)
    return database, store


async def use(database: EmbeddedDatabase, store: MetadataStore) -> str:
    outcomes = []
    for store_now in (store, database.connect()):
        for request in (store_now.put("/after", b"", ABSENT), store_now.get("/ephemeral")):
            try:
                await request
                outcomes.append("done")
            except MetadataError as error:
                outcomes.append(type(error).__name__)
    return " ".join(outcomes)


def main(folder: str) -> None:
    runner = asyncio.Runner()
    database, store = runner.run(open_with_a_node(folder))
    # Python warns of what is tried here.
    warnings.simplefilter("ignore", DeprecationWarning)
    forked, write_end = os.pipe()
    if os.fork() == 0:
        outcomes = asyncio.run(use(database, store))
        asyncio.run(store.close())
        state = store.session.state.value
        # Not the runner: what its loop waits with is shared, and closing it would leave the first process without.
        del database, store
        gc.collect()
        os.write(1, f"{outcomes} {state}\n".encode())
        os.write(write_end, b".")
        sys.stdin.read()
        return
    os.read(forked, 1)
    os.write(1, f"{runner.run(use(database, store))}\n".encode())
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1])
