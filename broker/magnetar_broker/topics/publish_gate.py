"""Decides when a topic's producers may publish: it has memory for more entries, and its publish rates allow more.

Entries that may not be published yet wait at their producer, in order; none is refused or dropped for that. The two
listeners publish them when the gate opens (`publish_when_open`), and pause clients in the meantime.

There are two rates, of the topic and of the broker. An entry that has passed all checks counts, with its messages and
its stored bytes; one that is refused does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.rate_limit import UNLIMITED, RateLimit
from magnetar_broker.topics.token_bucket import Left

__all__ = ["PublishGate"]


class PublishGate:
    __slots__ = ("_is_lifted", "_topic_limit", "_turns", "budget", "limited_times", "limits")

    def __init__(self, budget: PublishBudget, topic_limit: RateLimit, broker_limit: RateLimit) -> None:
        self.budget = budget
        self._topic_limit = topic_limit
        self.limits = (topic_limit, broker_limit)
        self._is_lifted = False
        # The turns that `publish_when_open` waits for, with the limit and what is to be published.
        self._turns: dict[Callable[[], object], tuple[RateLimit, Callable[[], object]]] = {}
        # How often a producer had to wait for a rate.
        self.limited_times = 0

    @property
    def is_closed(self) -> bool:
        return self.budget.is_full or self._find_exceeded() is not None

    def _find_exceeded(self) -> RateLimit | None:
        if self._is_lifted:
            return None
        return next((limit for limit in self.limits if limit.must_wait()), None)

    def left(self) -> Left:
        """Return how much may be published now, by the rates."""
        if self._is_lifted:
            return UNLIMITED
        topic, broker = (limit.left() for limit in self.limits)
        if topic is UNLIMITED:
            return broker
        return Left(min(topic.messages, broker.messages), min(topic.bytes, broker.bytes))

    def count(self, messages: int, size_bytes: int) -> None:
        """Count entries that are published."""
        for limit in self.limits:
            limit.take(messages, size_bytes)

    async def publish_when_open(self, publish: Callable[[], object]) -> None:
        """Call `publish` once, when the gate has opened. It publishes what may be published now, which may be nothing,
        and the caller waits again for the rest."""
        await self.budget.wait_for_capacity()
        limit = self._find_exceeded()
        if limit is None:
            publish()
            return
        self.limited_times += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def turn() -> None:
            try:
                publish()
            finally:
                if not done.done():
                    done.set_result(None)

        self._turns[turn] = limit, publish
        limit.wait_for_turn(turn)
        try:
            await done
        finally:
            limit.forget(turn)
            del self._turns[turn]

    def release(self, publish: Callable[[], object]) -> None:
        """Let `publish_when_open` return: the producer has left."""
        for turn, (limit, waiting) in list(self._turns.items()):
            if waiting == publish:
                limit.forget(turn)
                turn()

    def lift(self) -> None:
        """Limit no rate any more: the topic is being closed, and entries that wait will not be stored."""
        self._is_lifted = True
        for turn, (limit, _) in list(self._turns.items()):
            limit.forget(turn)
            turn()

    def describe_rate_shortage(self) -> str:
        """Return which rate publishing waits for; empty: for none."""
        return next(filter(None, (limit.describe_shortage() for limit in self.limits)), "")

    @property
    def waiting_for(self) -> str:
        """Which rate entries wait for; empty: none do."""
        return next((limit.describe_wait() for limit, _ in self._turns.values()), "")

    def recheck(self) -> None:
        """Publish now what the topic's rate allows: its policies have changed."""
        self._topic_limit.recheck()
