"""The loop that all synchronous clients share, by itself."""

from __future__ import annotations

import threading

from magnetar._loop import BackgroundLoop
from tests.running import GENEROUS_S


class NoClient:
    async def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def forked(self) -> None: ...

    def close_at_exit(self, timeout_s: float) -> None: ...


def test_the_loop_outlives_its_clients() -> None:
    """What gRPC has for it after the last client has left is no error, which would take other loops' events along, and
    is done when the next client comes."""
    background = BackgroundLoop()
    first, second = NoClient(), NoClient()
    background.enter(first)
    loop = background._loop
    assert loop is not None
    background.leave(first)
    assert background._thread is None
    done = threading.Event()
    loop.call_soon_threadsafe(done.set)
    assert not done.is_set()
    background.enter(second)
    assert background._loop is loop
    assert done.wait(GENEROUS_S)
    background.leave(second)
