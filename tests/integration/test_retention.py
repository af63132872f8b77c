"""What becomes of messages that are published before anybody subscribes, on a standalone that is stopped and killed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from magnetar import ConsumerType, InitialPosition, MessageId, aio
from magnetar.admin import AsyncAdmin
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import run, until, within

pytestmark = pytest.mark.slow

_MESSAGES = 1_000


async def _publish(client: aio.Client, topic: str) -> None:
    producer = await client.create_producer(topic)
    await asyncio.gather(*(producer.send(b"%d" % number) for number in range(_MESSAGES)))
    await producer.close()


async def _read_all(client: aio.Client, topic: str) -> list[int]:
    reader = await client.create_reader(topic, MessageId.earliest)
    found = []
    while await reader.has_message_available():
        found.append(int((await within(reader.read_next(), "the next message")).data()))
    await reader.close()
    return found


async def _consume_all(client: aio.Client, topic: str, *, messages: int = _MESSAGES) -> list[int]:
    consumer = await client.subscribe(topic, "later", ConsumerType.Exclusive, initial_position=InitialPosition.Earliest)
    found = []
    for _ in range(messages):
        message = await within(consumer.receive(), "the next message")
        await consumer.acknowledge(message)
        found.append(int(message.data()))
    await consumer.close()
    return found


async def _begins_in_a_deleted_ledger(admin: AsyncAdmin, topic: str) -> bool:
    return not (await admin.topics.internal_stats(topic)).ledgers


async def _with_clients(url: str, work: Callable[[aio.Client, AsyncAdmin], Awaitable[None]]) -> None:
    async with aio.Client(url) as client, AsyncAdmin(url) as admin:
        await work(client, admin)


def test_messages_without_subscription_survive_restarts(tmp_path: Path) -> None:
    """RET-1: for a reader, and for a first subscription; also after it has acknowledged all of it."""

    async def publish(client: aio.Client, _: AsyncAdmin) -> None:
        await _publish(client, "orders")
        await client.create_producer("read")
        await _consume_all(client, "read", messages=0)
        await _publish(client, "read")
        await _consume_all(client, "read")

    async def found(client: aio.Client, admin: AsyncAdmin) -> None:
        # Both topics are loaded, and housekeeping deletes the ledgers of the other one.
        assert await _read_all(client, "orders") == list(range(_MESSAGES))
        await client.create_producer("read")
        await until(partial(_begins_in_a_deleted_ledger, admin, "read"), "what was acknowledged is deleted")
        assert await _read_all(client, "orders") == list(range(_MESSAGES))

    async def consumed(client: aio.Client, admin: AsyncAdmin) -> None:
        await found(client, admin)
        assert await _consume_all(client, "orders") == list(range(_MESSAGES))

    with StandaloneProcess(tmp_path / "data", topic_housekeeping_interval_seconds=0.05) as server:
        run(_with_clients(server.service_url, publish))
        server.stop()
        server.start()
        run(_with_clients(server.service_url, found))
        server.kill()
        server.start()
        run(_with_clients(server.service_url, consumed))
        server.stop()
        server.start()
        run(_with_clients(server.service_url, found))


def test_with_0_minutes_it_is_deleted(tmp_path: Path) -> None:
    """RET-1: Pulsar's way, where an operator sets it."""

    async def deleted(client: aio.Client, admin: AsyncAdmin) -> None:
        await client.create_producer("orders")
        await until(partial(_begins_in_a_deleted_ledger, admin, "orders"), "the closed ledger is deleted")
        assert await _read_all(client, "orders") == []

    with StandaloneProcess(
        tmp_path / "data", topic_housekeeping_interval_seconds=0.05, default_retention_without_subscription_minutes=0
    ) as server:
        run(_with_clients(server.service_url, lambda client, _: _publish(client, "orders")))
        server.stop()
        server.start()
        run(_with_clients(server.service_url, deleted))
