"""The loop that all synchronous clients share, by itself."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from magnetar._loop import BackgroundLoop
from tests.running import GENEROUS_S


class NoClient:
    async def _suspend(self) -> None: ...

    def _resume(self) -> None: ...

    def _forked(self) -> None: ...

    def _close_at_exit(self, timeout_s: float) -> None: ...


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


def test_a_fork_waits_for_grpc_s_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-60: its core ends a moment after its last object, and a child would have a lock that nobody releases."""
    monkeypatch.setitem(sys.modules, "grpc", sys)  # it is there; what of it does not matter
    named, ended = threading.Event(), threading.Event()

    def core() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("event_engine")
        named.set()
        time.sleep(0.1)
        ended.set()

    thread = threading.Thread(target=core)
    thread.start()
    assert named.wait(GENEROUS_S)
    background = BackgroundLoop()
    background.before_fork()
    try:
        assert ended.is_set()
    finally:
        background.after_fork_in_parent()
        thread.join()
