"""A process that changes an embedded store until it is killed, and prints what was acknowledged.

Each transaction puts a pair of nodes, /left/n and /right/n; when it is answered, n is printed. Some values are large,
so that a kill can interrupt a write. Run it with the folder and the first number.
"""

from __future__ import annotations

import asyncio
import os
import sys

from magnetar_metadata.embedded import open_embedded
from magnetar_metadata.errors import OutcomeUnknown, SessionLost
from magnetar_metadata.store import ABSENT, Put, SessionState
from magnetar_wire.clock import SystemClock

_WRITERS = 4


async def change_until_killed(folder: str, first: int) -> None:
    store = await open_embedded(folder, SystemClock())
    await store.put("/ephemeral", b"", ABSENT, ephemeral=True)

    async def write(number: int) -> None:
        while True:
            value = b"%d" % number if number % 5 else b"%d" % number * 40_000
            await store.transaction([Put(f"/left/{number}", value, ABSENT), Put(f"/right/{number}", value, ABSENT)])
            os.write(1, b"%d\n" % number)
            number += _WRITERS

    await asyncio.gather(*(write(first + n) for n in range(_WRITERS)))


async def change_on_a_failing_disk(folder: str, flag: str, kind: str) -> None:
    """Print the results of changes before, during and after a disk failure (the shim looks for the flag file)."""
    store = await open_embedded(folder, SystemClock())
    await store.put("/before", b"", ABSENT)
    with open(flag, "w", encoding="ascii") as file:  # noqa: ASYNC230 - a child with nothing else to do
        file.write(kind)
    outcomes = []
    for path in ("/while", "/after"):
        if path == "/after":
            os.remove(flag)
        try:
            await store.put(path, b"", ABSENT)
            outcomes.append("made")
        except (OutcomeUnknown, SessionLost) as error:
            outcomes.append(type(error).__name__)
    outcomes.append("lost" if store.session.state is SessionState.LOST else "alive")
    await store.close()
    async with await open_embedded(folder, SystemClock()) as store:
        outcomes.append(f"{len(await store.children('/'))} nodes")
    os.write(1, " ".join(outcomes).encode())


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(change_until_killed(sys.argv[1], int(sys.argv[2])))
    else:
        asyncio.run(change_on_a_failing_disk(*sys.argv[1:4]))
