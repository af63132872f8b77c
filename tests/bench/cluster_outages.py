"""How long publishing stops while a part of a cluster is dead, as clients see it: for `bench_cluster.py`.

`cluster.killed_broker_s`: a broker is killed (-9) while producers publish to topics on it. Of each of these topics the
longest time without a receipt counts, from the last receipt before the kill. The metadata session takes 10 s to end.
`cluster.zookeeper_back_s`: ZooKeeper is killed, and started again after brokers have lost their sessions. It is the
time from that start, Java's own included, until a publish to a new topic and to each existing one has a receipt.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from magnetar import aio
from magnetar.admin import AsyncAdmin
from magnetar_cli.cluster import LocalCluster
from tests.bench.bench_ledger import in_thread

__all__ = ["gaps_of_killed_brokers", "seconds_until_zookeeper_is_used"]

_TOPICS: Final = 8
_PAUSE_S: Final = 0.005
# After a kill, before the next: what is looked at besides the first receipt.
_SETTLED_S: Final = 1.0
# Beyond the session timeout.
_DOWN_S: Final = 15.0


@dataclass(slots=True)
class _Publishing:
    topic: str
    # On the monotonic clock.
    receipts: list[float] = field(default_factory=list)

    async def run(self, client: aio.Client) -> None:
        producer = await client.create_producer(self.topic, send_timeout_millis=0)
        while True:
            await producer.send(b"a message")
            self.receipts.append(time.monotonic())
            await asyncio.sleep(_PAUSE_S)

    async def wait_receipt(self, after: float) -> None:
        while not self.receipts or self.receipts[-1] <= after:
            await asyncio.sleep(_PAUSE_S)

    def longest_gap(self, since: float) -> float:
        """From the last receipt before `since` on."""
        first = max(at for at, one in enumerate(self.receipts) if one <= since)
        return max(later - earlier for earlier, later in itertools.pairwise(self.receipts[first:]))


async def gaps_of_killed_brokers(cluster: LocalCluster, kills: int) -> list[float]:
    """Seconds, of each topic at each kill."""
    gaps: list[float] = []
    async with _publishing(cluster, "killed") as (_, all_publishing), AsyncAdmin(cluster.service_url) as admin:
        for _ in range(kills):
            owners = {one.topic: (await admin.topics.lookup(one.topic)).broker_id for one in all_publishing}
            killed = owners[all_publishing[0].topic]
            affected = [one for one in all_publishing if owners[one.topic] == killed]
            await asyncio.gather(*(one.wait_receipt(time.monotonic()) for one in affected))
            at = time.monotonic()
            await in_thread(lambda name=killed: cluster.kill(name))  # type: ignore[misc]
            # The first of them may have left before the kill.
            for _ in range(2):
                await asyncio.gather(*(one.wait_receipt(time.monotonic()) for one in affected))
            await asyncio.sleep(_SETTLED_S)
            gaps += [one.longest_gap(at) for one in affected]
            await in_thread(lambda name=killed: cluster.start(name))  # type: ignore[misc]
    return gaps


async def seconds_until_zookeeper_is_used(cluster: LocalCluster, turns: int) -> list[tuple[float, float]]:
    """From ZooKeeper's start until it answers, and until all is published to, of each turn."""
    seconds: list[tuple[float, float]] = []
    async with _publishing(cluster, "suspended") as (client, all_publishing):
        for turn in range(turns):
            await in_thread(lambda: cluster.kill("zookeeper"))
            await asyncio.sleep(_DOWN_S)
            began = time.monotonic()

            starting = asyncio.create_task(_started_at(cluster, "zookeeper"))
            publishing = _Publishing(f"made-{time.time_ns()}-{turn}")
            publishing_once = asyncio.create_task(publishing.run(client))
            await asyncio.gather(*(one.wait_receipt(began) for one in (publishing, *all_publishing)))
            used = time.monotonic()
            seconds.append((await starting - began, used - began))
            publishing_once.cancel()
            await asyncio.wait([publishing_once])
    return seconds


async def _started_at(cluster: LocalCluster, name: str) -> float:
    """Starts it: when it answered."""
    await in_thread(lambda: cluster.start(name))
    return time.monotonic()


@contextlib.asynccontextmanager
async def _publishing(cluster: LocalCluster, name: str) -> AsyncIterator[tuple[aio.Client, list[_Publishing]]]:
    async with aio.Client(cluster.service_url, operation_timeout_seconds=120) as client:
        publishing = [_Publishing(f"{name}-{number}") for number in range(_TOPICS)]
        tasks = [asyncio.create_task(one.run(client)) for one in publishing]
        try:
            began = time.monotonic()
            await asyncio.gather(*(one.wait_receipt(began) for one in publishing))
            yield client, publishing
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
