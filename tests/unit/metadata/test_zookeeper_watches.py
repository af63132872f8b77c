"""The tasks that keep ZooKeeper's watches set: how often they ask, and that they end."""

from __future__ import annotations

import asyncio
from typing import Any

from magnetar_metadata.errors import Closed, NotSent
from magnetar_metadata.store import SessionState
from magnetar_metadata.zookeeper.watches import ZooKeeperWatches
from magnetar_testing.clock import ManualClock


class Throttling:
    """A session whose server is there and turns requests away, `refusals` times."""

    state = SessionState.CONNECTED

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.requests = 0
        self.client = self.session = self

    async def request(self, path: str, call: object) -> Any:
        self.requests += 1
        await asyncio.sleep(0)
        if self.requests <= self.refusals:
            raise NotSent("throttled")


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_throttled_watches_are_retried_with_pauses() -> None:
    clock, kazoo = ManualClock(), Throttling(refusals=12)
    watches = ZooKeeperWatches(kazoo, clock)  # type: ignore[arg-type]
    flag = watches.watch("/a", with_children=True)
    for _ in range(200):
        await _turns()
        clock.advance(0.01)
    assert 5 <= kazoo.requests <= 9
    for _ in range(100):
        await _turns()
        clock.advance(0.1)
    assert kazoo.requests == 13
    await flag.wait()
    flag.close()
    await watches.close()


async def test_closing_waits_for_the_tasks_of_watches_open_and_closed() -> None:
    watches = ZooKeeperWatches(Throttling(refusals=1000), ManualClock())  # type: ignore[arg-type]
    before = asyncio.all_tasks()
    flags = [watches.watch(path, with_children=True) for path in ("/a", "/b", "/c")]
    await _turns()
    tasks = asyncio.all_tasks() - before
    assert len(tasks) == 3
    flags[0].close()
    watches.end(lambda: Closed("closed"))
    await watches.close()
    assert all(task.done() for task in tasks)
