"""Closing a client while one of its producers or consumers is being closed."""

from __future__ import annotations

import asyncio

import pytest

from magnetar import AlreadyClosed, MagnetarException, aio
from magnetar_testing.clock import ManualClock
from tests.running import GENEROUS_S
from tests.unit.broker.broker_scene import running_broker
from tests.unit.client.consume_scene import core_of


async def _open_both(client: aio.Client) -> tuple[aio.Producer[bytes], aio.Consumer[bytes]]:
    return await client.create_producer("t"), await client.subscribe("t", "s")


async def test_a_client_that_closes_waits_for_what_is_being_closed() -> None:
    """What was sent is persisted, and what was acknowledged is. No timeout ends on this clock."""
    async with running_broker() as scene:
        client = scene.client(_clock=ManualClock())
        producer, consumer = await _open_both(client)
        await producer.send(b"first")
        await consumer.acknowledge(await consumer.receive())
        sending = asyncio.create_task(producer.send(b"second"))
        await asyncio.sleep(0)
        closings = [asyncio.create_task(one.close()) for one in (producer, consumer, consumer)]
        await asyncio.sleep(0)
        async with asyncio.timeout(GENEROUS_S):
            await client.close()
            assert all(closing.done() for closing in closings)
            await asyncio.gather(*closings)
            await sending
        stats = await scene.admin.topics.stats("t")
        assert stats.subscription("s").backlog_entries == 1


async def test_a_shutdown_ends_what_is_being_closed() -> None:
    async with running_broker() as scene:
        client = scene.client(_clock=ManualClock())
        producer, consumer = await _open_both(client)
        for bookie in scene.bookies:
            bookie.hold()
        sending = asyncio.create_task(producer.send(b"second"))
        await asyncio.sleep(0)
        closings = [asyncio.create_task(one.close()) for one in (producer, consumer)]
        await asyncio.sleep(0)
        client.shutdown()
        async with asyncio.timeout(GENEROUS_S):
            await client.close()
            await asyncio.gather(*closings)
            with pytest.raises(MagnetarException):
                await sending
        for bookie in scene.bookies:
            bookie.resume()


async def test_a_child_does_not_wait_for_what_its_parent_was_closing() -> None:
    async with running_broker() as scene:
        client = scene.client()
        core = core_of(await client.subscribe("t", "s"))
        closing = asyncio.create_task(core.close())
        await asyncio.sleep(0)
        core.forked(AlreadyClosed("it was created before the process forked"))
        await core.close()
        assert not closing.done()
        await closing
        await client.close()
