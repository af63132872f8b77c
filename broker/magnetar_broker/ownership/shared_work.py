"""Work that many wait for: done once at a time for each key, and whole, whatever becomes of those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from magnetar_broker.errors import BrokerError, TopicUnloaded

__all__ = ["SharedWork", "outcome"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedWork(Generic[K, V]):
    def __init__(self) -> None:
        self._under_way: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._under_way

    async def result(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Of what is under way for the key, or is begun now. Raises what it raises."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._done(key, done))
        return await outcome(task)

    def _done(self, key: K, task: asyncio.Task[V]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # seen, should all who waited have gone

    async def wait(self) -> None:
        """Returns when nothing is under way."""
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    async def close(self) -> None:
        """Breaks it all off."""
        while self._under_way:
            for task in self._under_way.values():
                task.cancel()
            await asyncio.wait(list(self._under_way.values()))


async def outcome(task: asyncio.Task[V]) -> V:
    """Of a task of somebody else's: who waits for it and is cancelled does not cancel it."""
    await asyncio.wait([task])
    if task.cancelled():
        raise TopicUnloaded("the broker is shutting down: look the topic up again")
    error = task.exception()
    if error is not None:
        raise error.again() if isinstance(error, BrokerError) else error
    return task.result()
