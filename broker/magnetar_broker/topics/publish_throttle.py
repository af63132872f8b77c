"""Decides when a topic's producers may publish: while its memory has capacity, and its publish rates are not reached.

Entries that must wait stay with their producer's connection, in order: none is refused or dropped. Both listeners
publish them as soon as that is allowed (`publish_when_allowed`), and in the meantime read nothing more from the client.

Two rates apply: the one of the topic and the one of the broker (rate_limit.py). An entry that has passed all checks
counts, with its messages and its stored bytes. One that is refused does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_broker.topics.token_bucket import UNLIMITED, Allowance

__all__ = ["PublishThrottle"]


class PublishThrottle:
    __slots__ = ("_has_ended", "_topic_limit", "_waiting", "budget", "limited_times", "limits")

    def __init__(self, budget: PublishBudget, topic_limit: RateLimit, broker_limit: RateLimit) -> None:
        self.budget = budget
        self._topic_limit = topic_limit
        self.limits = (topic_limit, broker_limit)
        # The topic is being closed.
        self._has_ended = False
        # The calls of `publish_when_allowed` that wait for a rate: what the limit calls in their turn, the limit, and
        # what they publish.
        self._waiting: dict[Callable[[], object], tuple[RateLimit, Callable[[], object]]] = {}
        # How often a producer had to wait for a rate.
        self.limited_times = 0

    @property
    def must_wait(self) -> bool:
        return self.budget.is_full or self._find_reached_limit() is not None

    def _find_reached_limit(self) -> RateLimit | None:
        if self._has_ended:
            return None
        return next((limit for limit in self.limits if limit.must_wait()), None)

    def get_allowance(self) -> Allowance:
        """Return how many messages and bytes the rates allow to publish now."""
        if self._has_ended:
            return UNLIMITED
        topic, broker = (limit.get_allowance() for limit in self.limits)
        if topic is UNLIMITED:
            return broker
        return Allowance(min(topic.messages, broker.messages), min(topic.bytes, broker.bytes))

    def record_published(self, messages: int, size_bytes: int) -> None:
        for limit in self.limits:
            limit.record_passed(messages, size_bytes)

    async def publish_when_allowed(self, publish: Callable[[], object]) -> None:
        """Call `publish` once, when it need not wait. It publishes what is allowed at that time, which may be nothing.
        The caller calls this again for the rest."""
        await self.budget.wait_for_capacity()
        limit = self._find_reached_limit()
        if limit is None:
            publish()
            return
        self.limited_times += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def use_turn() -> None:
            try:
                publish()
            finally:
                if not done.done():
                    done.set_result(None)

        self._waiting[use_turn] = limit, publish
        limit.wait_for_turn(use_turn)
        try:
            await done
        finally:
            limit.cancel_turn(use_turn)
            del self._waiting[use_turn]

    def release(self, publish: Callable[[], object]) -> None:
        """Let `publish_when_allowed` call this `publish` now, and return: its producer has left."""
        for use_turn, (limit, waiting) in list(self._waiting.items()):
            if waiting == publish:
                limit.cancel_turn(use_turn)
                use_turn()

    def end(self) -> None:
        """Limit nothing any more: the topic is being closed, and entries that wait will not be stored."""
        self._has_ended = True
        for use_turn, (limit, _) in list(self._waiting.items()):
            limit.cancel_turn(use_turn)
            use_turn()

    def describe_reached_rate(self) -> str:
        """Return which rate is reached; empty: none is."""
        return next(filter(None, (limit.describe_reached() for limit in self.limits)), "")

    @property
    def waiting_for(self) -> str:
        """Which rate entries wait for; empty: no entry waits for a rate."""
        return next((limit.describe_wait() for limit, _ in self._waiting.values()), "")

    def follow_rate_change(self) -> None:
        """Publish now what the topic's rate allows, because its policies have changed."""
        self._topic_limit.follow_rate_change()
