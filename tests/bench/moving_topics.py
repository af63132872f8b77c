"""Topics with a producer and subscriptions each, whose broker changes while they are used.

Each topic's producer sends one message after the other, and notes when each receipt came; each subscription's consumer
notes when its last message was sent. So what a client sees of a take-over is read off both.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from magnetar import ConsumerType, aio
from magnetar.admin import AsyncAdmin
from tests.running import until

__all__ = ["MovingTopics", "all_bundles_at", "moving_topics"]

_AT_ONCE: Final = 20
_PATIENCE_MS: Final = 300_000
_PATIENCE_S: Final = 300.0


class MovingTopics:
    """`moving_topics` makes it."""

    def __init__(self, topics: int, subscriptions: int, pause_s: float) -> None:
        self._pause_s = pause_s
        self._hurry = asyncio.Event()
        # Of each topic, when each receipt came; and when it was sent what got the last one.
        self.receipts: list[list[float]] = [[] for _ in range(topics)]
        self._stored_sent_at = [0.0] * topics
        # Of each subscription, when it was sent what came last.
        self._delivered_sent_at = [[0.0] * subscriptions for _ in range(topics)]
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, client: aio.Client, number: int, topic: str) -> None:
        producer = await client.create_producer(topic, send_timeout_millis=_PATIENCE_MS)
        self._tasks.append(asyncio.create_task(self._publish(number, producer)))
        for index in range(len(self._delivered_sent_at[number])):
            consumer = await client.subscribe(topic, f"s{index}", consumer_type=ConsumerType.Shared)
            self._tasks.append(asyncio.create_task(self._consume(number, index, consumer)))

    async def _publish(self, number: int, producer: aio.Producer) -> None:
        while True:
            sent_at = time.perf_counter()
            await producer.send(str(sent_at).encode())
            self.receipts[number].append(time.perf_counter())
            self._stored_sent_at[number] = sent_at
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), self._pause_s)

    async def _consume(self, number: int, index: int, consumer: aio.Consumer) -> None:
        while True:
            message = await consumer.receive()
            self._delivered_sent_at[number][index] = float(message.data())
            await consumer.acknowledge(message)

    async def wait_used(self, since: float) -> None:
        """Returns when each topic has stored, and each subscription delivered, something that was sent after that."""
        marks = [self._stored_sent_at, *self._delivered_sent_at]
        await until(
            lambda: min(min(sent_at) for sent_at in marks) > since, "all topics and subscriptions are used", _PATIENCE_S
        )

    def send_now(self) -> None:
        """Ends the pauses between messages."""
        self._hurry.set()
        self._hurry = asyncio.Event()

    def longest_gap_s(self, since: float) -> float:
        """Of any topic, between two receipts of which the later one came after that."""
        gaps = (
            later - earlier
            for receipts in self.receipts
            for earlier, later in itertools.pairwise(receipts)
            if later > since
        )
        return max(gaps, default=0.0)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def moving_topics(
    client: aio.Client, topics: Sequence[str], subscriptions: int, pause_s: float
) -> AsyncIterator[MovingTopics]:
    """All in use."""
    moving = MovingTopics(len(topics), subscriptions, pause_s)
    try:
        for begin in range(0, len(topics), _AT_ONCE):
            some = topics[begin : begin + _AT_ONCE]
            await asyncio.gather(*(moving.add(client, begin + index, topic) for index, topic in enumerate(some)))
        await moving.wait_used(time.perf_counter())
        yield moving
    finally:
        await moving.stop()


async def all_bundles_at(admin: AsyncAdmin, namespace: str, broker_id: str) -> None:
    """The namespace's topics are that broker's."""
    for bundle in await admin.namespaces.bundles(namespace):
        if bundle.broker_id and bundle.broker_id != broker_id:
            await admin.namespaces.unload(namespace, bundle.bundle, destination=broker_id)
