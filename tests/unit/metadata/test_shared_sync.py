"""Syncs that concurrent callers share: which call joins which sync."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar_metadata.errors import NotSent
from magnetar_metadata.store import MetadataStore, Node, Stat
from magnetar_metadata.zookeeper.shared_sync import SharedSync


class Server:
    """Each sync waits for an answer."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[None]] = []
        self.shared = SharedSync(self._send)

    async def _send(self) -> None:
        answer = asyncio.get_running_loop().create_future()
        self.sent.append(answer)
        await answer

    def call(self) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.shared.sync())


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_call_joins_a_sync_that_was_not_sent_and_none_in_flight() -> None:
    """OWN-2, CHK-49: the one in flight may lack what was changed before the call. Any number of calls cost one more."""
    server = Server()
    first = server.call()
    await turns()
    later = [server.call() for _ in range(100)]
    await turns()
    assert len(server.sent) == 1
    server.sent[0].set_result(None)
    await first
    await turns()
    assert not any(call.done() for call in later)
    assert len(server.sent) == 2
    latest = server.call()
    await turns()
    server.sent[1].set_result(None)
    await asyncio.gather(*later)
    await turns()
    assert not latest.done()
    assert len(server.sent) == 3
    server.sent[2].set_result(None)
    await latest
    again = server.call()
    await turns()
    server.sent[3].set_result(None)
    await again


async def test_calls_in_one_turn_share_a_sync() -> None:
    """CHK-49"""
    server = Server()
    calls = [server.call() for _ in range(10)]
    await turns()
    [answer] = server.sent
    answer.set_result(None)
    await asyncio.gather(*calls)


async def test_a_sync_that_fails_does_so_for_its_own_callers_alone() -> None:
    """OWN-2: the one that waits behind it is sent all the same"""
    server = Server()
    failing = [server.call() for _ in range(2)]
    await turns()
    later = server.call()
    await turns()
    server.sent[0].set_exception(NotSent("no connection"))
    for call in failing:
        with pytest.raises(NotSent):
            await call
    await turns()
    server.sent[1].set_result(None)
    await later


async def test_a_caller_that_is_cancelled_leaves_the_sync_to_the_others() -> None:
    """Also the one that began it, in flight or waiting."""
    server = Server()
    first, other = server.call(), server.call()
    await turns()
    waiting, joined = server.call(), server.call()
    await turns()
    first.cancel()
    waiting.cancel()
    await turns()
    assert first.cancelled()
    assert waiting.cancelled()
    server.sent[0].set_result(None)
    await other
    await turns()
    server.sent[1].set_result(None)
    await joined


async def test_the_end_is_waited_for() -> None:
    """Of the sync in flight and of the one behind it: each caller hears what became of its own."""
    server = Server()
    await server.shared.wait_ended()
    calls = [server.call()]
    await turns()
    calls.append(server.call())
    await turns()
    ending = asyncio.ensure_future(server.shared.wait_ended())
    for number in range(2):
        await turns()
        assert not ending.done()
        server.sent[number].set_exception(NotSent("closed"))
    await ending
    assert [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)] == [NotSent, NotSent]


async def test_a_fresh_read_is_sent_when_its_sync_is_answered() -> None:
    """OWN-2: a sync that it joins may be sent later than a read that is sent at once"""
    server, read = Server(), False

    class Store:
        sync = staticmethod(server.shared.sync)

        async def get(self, path: str) -> Node | None:
            nonlocal read
            read = True
            return Node(b"new", Stat(0, 0))

    store: Any = Store()
    server.call()
    await turns()
    reading = asyncio.ensure_future(MetadataStore.get_after_sync(store, "/a"))
    await turns()
    server.sent[0].set_result(None)
    await turns()
    assert not read
    server.sent[1].set_result(None)
    assert await reading == Node(b"new", Stat(0, 0))
