"""Fresh reads that concurrent callers share.

A caller must get what was written before its call, so it can't join a read that is in flight already. It joins the next
one, which begins as soon as that one has ended. So at most two reads per key are in flight or waiting, however many
callers there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from magnetar_broker.single_flight import wait_for_result

__all__ = ["SharedReads"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedReads(Generic[K, V]):
    def __init__(self, read: Callable[[K], Coroutine[Any, Any, V]]) -> None:
        self._read = read
        # By key: the read that is in flight, and the one that waits for its end.
        self._in_flight: dict[K, asyncio.Task[V]] = {}
        self._waiting: dict[K, asyncio.Task[V]] = {}

    async def read(self, key: K) -> V:
        """Return the result of a read that begins after this call. Raises what the read raises."""
        task = self._waiting.get(key)
        if task is None:
            before = self._in_flight.get(key)
            task = self._waiting[key] = asyncio.get_running_loop().create_task(self._run(key, before))
            task.add_done_callback(lambda done: self._remove(key, done))
        return await wait_for_result(task)

    async def _run(self, key: K, before: asyncio.Task[V] | None) -> V:
        if before is not None:
            await asyncio.wait([before])
        self._in_flight[key] = self._waiting.pop(key)
        return await self._read(key)

    def _remove(self, key: K, task: asyncio.Task[V]) -> None:
        for tasks in (self._waiting, self._in_flight):
            if tasks.get(key) is task:
                del tasks[key]
        if not task.cancelled():
            task.exception()  # retrieved, in case all callers were cancelled

    async def close(self) -> None:
        """Cancel all reads."""
        while tasks := [*self._in_flight.values(), *self._waiting.values()]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
