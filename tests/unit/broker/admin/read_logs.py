"""A topic that is read by plans, and its messages."""

from __future__ import annotations

import asyncio

from magnetar import aio
from tests.unit.broker.broker_scene import BrokerScene

LOGS = "public/default/logs"
# The number of entries of a ledger, which is closed as soon as it is full.
SMALL = {"managed_ledger_max_entries_per_ledger": 5, "managed_ledger_min_ledger_rollover_time_minutes": 0}


async def create_topic(scene: BrokerScene) -> None:
    """Create the topic with a subscription that retains all messages."""
    await scene.admin.topics.create(LOGS)
    await scene.admin.subscriptions.create(LOGS, "keep")


async def publish(client: aio.Client, count: int, *, batch: int = 0, first: int = 0, topic: str = LOGS) -> None:
    """Publish the messages b"<number>". `batch`: the number of messages of an entry; 0: they are not batched."""
    producer = await client.create_producer(
        topic,
        batching_enabled=batch > 0,
        batching_max_messages=batch or 1,
        batching_max_publish_delay_ms=60_000,
    )
    await asyncio.gather(*(producer.send(b"%d" % number) for number in range(first, first + count)))
    await producer.close()


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]
