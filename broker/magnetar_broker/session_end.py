"""Detect that a broker's metadata session is over, or must be assumed to be (OWN-2).

A lost session is reported. A suspended one is not lost: open topics go on, and nothing is created, since the store does
not answer. But the server may expire the session one timeout after the last request that it answered was *sent*, and
from then on another broker may own these topics. So this broker sends a request each second, and assumes that the
session is over one second before that timeout if none is answered. It measures by its own monotonic clock, in
any state of the connection (CHK-40). With a timeout below four seconds both times are a fraction of it, so that a few
late answers do not end the session.

A process that was paused for longer finds out only after it has handled some of what arrived in the meantime. So each
request that relies on the session checks the time itself (`is_trusted`): else a consumer that connected during the
pause would get what was acknowledged at the next owner.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock

__all__ = ["is_trusted", "wait_session_end"]

_PING_INTERVAL_S: Final = 1.0
_MARGIN_S: Final = 1.0
# The same as fractions of the session timeout, which are upper limits.
_MARGIN_FRACTION: Final = 0.25
_PING_FRACTION: Final = 0.2
_CHECK_INTERVAL_S: Final = 0.25


def is_trusted(store: MetadataStore, clock: Clock) -> bool:
    """Return whether the session can't have been expired by now, as far as this broker knows."""
    margin_s = min(_MARGIN_S, store.session.timeout_s * _MARGIN_FRACTION)
    return clock.monotonic() < store.session.safe_until(margin_s)


async def wait_session_end(store: MetadataStore, clock: Clock) -> str:
    """Return the reason, once the session is lost or must be assumed to be."""
    loop = asyncio.get_running_loop()
    lost = loop.create_task(store.session.wait_lost(), name="session lost")
    silent = loop.create_task(_wait_silent_too_long(store, clock), name="session silent")
    pinging = loop.create_task(_ping(store, clock), name="session ping")
    tasks = [lost, silent, pinging]
    try:
        await asyncio.wait([lost, silent], return_when=asyncio.FIRST_COMPLETED)
        return "it was lost" if lost.done() else "the store has not answered for too long"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _wait_silent_too_long(store: MetadataStore, clock: Clock) -> None:
    while is_trusted(store, clock):
        await clock.sleep(_CHECK_INTERVAL_S)


async def _ping(store: MetadataStore, clock: Clock) -> None:
    pause_s = min(_PING_INTERVAL_S, store.session.timeout_s * _PING_FRACTION)
    while True:
        with contextlib.suppress(MetadataError):
            await store.ping()
        await clock.sleep(pause_s)
