"""When a broker must stop believing that its metadata session lives (OWN-2).

A lost session is told. A suspended one is not lost: topics that are open go on, and nothing new is made, since the
store gives no answer. But the server may give the session up one time-out after the last request that it answered was
*sent*, and another broker may have these topics from then on. So this one asks for an answer each second, and stops in
time where none comes, a second before, by its own monotonic clock, whatever the connection looks like (CHK-40). Of a
session time-out below four seconds both are a part, so that some answers in turn may be late.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock

__all__ = ["session_over"]

_PING_S: Final = 1.0
_MARGIN_S: Final = 1.0
# Of the session time-out, at most.
_MARGIN_PART: Final = 0.25
_PING_PART: Final = 0.2
_LOOK_S: Final = 0.25


async def session_over(store: MetadataStore, clock: Clock) -> str:
    """Returns, with the reason in words, when the session is lost or can't be believed any more."""
    loop = asyncio.get_running_loop()
    lost = loop.create_task(store.session.wait_lost(), name="session lost")
    silent = loop.create_task(_silent_for_too_long(store, clock), name="session silent")
    pinging = loop.create_task(_ping(store, clock), name="session ping")
    tasks = [lost, silent, pinging]
    try:
        await asyncio.wait([lost, silent], return_when=asyncio.FIRST_COMPLETED)
        return "it was lost" if lost.done() else "the store has not answered for too long"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _silent_for_too_long(store: MetadataStore, clock: Clock) -> None:
    margin_s = min(_MARGIN_S, store.session.timeout_s * _MARGIN_PART)
    while clock.monotonic() < store.session.safe_until(margin_s):
        await clock.sleep(_LOOK_S)


async def _ping(store: MetadataStore, clock: Clock) -> None:
    pause_s = min(_PING_S, store.session.timeout_s * _PING_PART)
    while True:
        with contextlib.suppress(MetadataError):
            await store.ping()
        await clock.sleep(pause_s)
