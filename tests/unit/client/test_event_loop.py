"""The loop that all synchronous clients share, by itself."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from magnetar import aio
from magnetar._threads.event_loop import BackgroundLoop
from magnetar.exceptions import AlreadyClosed
from tests.running import GENEROUS_S, run
from tests.unit.client.scene import scene


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


def test_a_client_of_asyncio_is_closed_in_a_child() -> None:
    """CHK-60: its state is the parent's. Calls in the child raise an error for that, and closing it touches nothing; in
    the parent it goes on.
    """

    async def in_child(client: aio.Client) -> None:
        with pytest.raises(AlreadyClosed, match="before the process forked"):
            await client.create_producer("t")
        await client.close()
        client.shutdown()

    async def go() -> None:
        async with scene() as (broker, client):
            producer = await client.create_producer("t")
            pid = os.fork()
            if pid == 0:
                try:
                    asyncio.run(in_child(client))
                    os._exit(0)
                finally:
                    os._exit(1)
            assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
            await producer.send(b"x")
            assert broker.topic("t").payloads() == [b"x"]

    run(go())
