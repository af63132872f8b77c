"""Changes of a topic's subscriptions that wait for storage: one at a time per subscription.

Theory of operation
-------------------
A change is a creation, deletion, seek, reset, skip, expiry or progress of a reader. Changes are queued by the
subscription's key, its name and whether it is durable, and not by its `Subscription` object: that object is dropped
when the last consumer leaves, and the next consumer makes another one on the same cursor, or on a later cursor of that
name.

A change that looked its object up before it waited could change an object that is not in use any more. Example: an
administrator requests a reset; in the same turn of the event loop the last consumer leaves and B subscribes. The reset
moves the cursor, but B's dispatch rule does not know it: B reads on from where it was, and its next cumulative
acknowledgement undoes the reset. So there are two rules:

1. A change looks its subscription up when it begins, not when it is requested.
2. While a change of a key waits or runs, the subscription of that key is paused: nothing is delivered, no consumer
   joins, and its object is not dropped.

A change runs to its end in a task of the topic, even if its caller is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from magnetar_broker.topics.topic_tasks import TopicTasks

__all__ = ["DELETION", "SubscriptionChanges", "SubscriptionKey"]

T = TypeVar("T")

# The name of a deletion.
DELETION: Final = "its deletion"

# The name, and whether the subscription is durable: a reader may have the name of a durable one.
SubscriptionKey: TypeAlias = tuple[str, bool]


class Pausable(Protocol):
    def pause(self) -> None: ...

    def resume(self) -> None: ...


class SubscriptionChanges:
    __slots__ = ("_find_loaded", "_queues", "_tasks")

    def __init__(self, tasks: TopicTasks, find_loaded: Callable[[SubscriptionKey], Pausable | None]) -> None:
        self._tasks = tasks
        self._find_loaded = find_loaded
        # The unfinished changes of each key that has any, oldest first: a dict is an ordered set. Each waits for the
        # one before it, but when the topic closes all are cancelled, and later ones may end first.
        # The values are their names.
        self._queues: dict[SubscriptionKey, dict[asyncio.Task[Any], str]] = {}

    def is_changing(self, key: SubscriptionKey) -> bool:
        """Whether a change of the subscription waits or runs."""
        return key in self._queues

    def find_current(self, key: SubscriptionKey) -> str:
        """Return the name of the subscription's oldest unfinished change; empty: there is none."""
        return next(iter(self._queues.get(key, {}).values()), "")

    async def run_change(self, key: SubscriptionKey, name: str, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Queue the change at once, run it when all earlier changes of the subscription have ended, and return its
        result. `name`: such as "a seek"."""
        before = self._find_last(key)
        if before is None and (loaded := self._find_loaded(key)) is not None:
            loaded.pause()
        task = self._tasks.spawn(_run_after(before, change))
        self._queues.setdefault(key, {})[task] = name
        task.add_done_callback(lambda task: self._end_change(key, task))
        return await self._tasks.wait_whole(task)

    def _end_change(self, key: SubscriptionKey, task: asyncio.Task[Any]) -> None:
        queue = self._queues[key]
        del queue[task]
        if not queue:
            del self._queues[key]
            if (loaded := self._find_loaded(key)) is not None:
                loaded.resume()

    async def wait_for_changes(self, key: SubscriptionKey) -> None:
        """Return when the changes that are queued now have ended. Others may have been queued since."""
        if (last := self._find_last(key)) is not None:
            await asyncio.wait([last])

    def _find_last(self, key: SubscriptionKey) -> asyncio.Task[Any] | None:
        queue = self._queues.get(key)
        return next(reversed(queue)) if queue else None


async def _run_after(before: asyncio.Task[Any] | None, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
    if before is not None:
        await asyncio.wait([before])
    return await change()
