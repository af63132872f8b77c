"""One shared run at a time for each key: concurrent callers wait for the same result.

The run is not cancelled when callers are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from magnetar_broker.errors import BrokerError, TopicUnloaded

__all__ = ["SingleFlight", "wait_for_result"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    def __init__(self) -> None:
        self._in_flight: dict[K, asyncio.Task[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._in_flight

    async def run(self, key: K, work: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the result of the run in flight for the key, or start one. Raises what `work` raises."""
        task = self._in_flight.get(key)
        if task is None:
            task = self._in_flight[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._remove(key, done))
        return await wait_for_result(task)

    def _remove(self, key: K, task: asyncio.Task[V]) -> None:
        del self._in_flight[key]
        if not task.cancelled():
            task.exception()  # retrieved, in case all callers were cancelled

    async def wait_idle(self) -> None:
        """Return when nothing is in flight."""
        while self._in_flight:
            await asyncio.wait(list(self._in_flight.values()))

    async def close(self) -> None:
        """Cancel everything that is in flight."""
        while self._in_flight:
            for task in self._in_flight.values():
                task.cancel()
            await asyncio.wait(list(self._in_flight.values()))


async def wait_for_result(task: asyncio.Task[V]) -> V:
    """Return the result of a task that others may wait for, too: it is not cancelled when the caller is."""
    await asyncio.wait([task])
    if task.cancelled():
        raise TopicUnloaded("the broker is shutting down: look the topic up again")
    error = task.exception()
    if error is not None:
        raise error.again() if isinstance(error, BrokerError) else error
    return task.result()
