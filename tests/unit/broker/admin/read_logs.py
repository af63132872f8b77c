"""A topic that is read by plans: its name, and what is published to it."""

from __future__ import annotations

import asyncio

from magnetar import aio
from tests.unit.broker.broker_scene import BrokerScene

LOGS = "public/default/logs"
# Ledgers of so many entries, that end as soon as they are full.
SMALL = {"managed_ledger_max_entries_per_ledger": 5, "managed_ledger_min_ledger_rollover_time_minutes": 0}


async def kept(scene: BrokerScene) -> None:
    """The topic, with a subscription that keeps all that comes."""
    await scene.admin.topics.create(LOGS)
    await scene.admin.subscriptions.create(LOGS, "keep")


async def publish(client: aio.Client, count: int, *, batch: int = 0, first: int = 0, topic: str = LOGS) -> None:
    """Messages b"<number>"; with `batch` so many to an entry."""
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
