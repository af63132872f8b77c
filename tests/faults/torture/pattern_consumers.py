"""Consumers of all topics with a name, also of those that appear during the run.

The history has a consumer for each of these topics, from when the pattern is subscribed to: a topic that appears is to
be consumed from its first message on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tests.faults.torture.clients import Clients
from tests.faults.torture.connections import HasParts
from tests.faults.torture.consumers import AsyncAct, async_consumer
from tests.faults.torture.consuming import ConsumerLog
from tests.faults.torture.workload import Subscription, Topic

__all__ = ["appearing_later", "pattern_consumer"]

Run = Callable[[Clients], None]


class _PatternLog(ConsumerLog):
    def __init__(self, clients: Clients, topics: Sequence[Topic], subscription: str, worker: str) -> None:
        super().__init__(clients, topics[0].name, subscription, worker)
        self._topics = [topic.name for topic in topics]
        self._subscription_name = subscription

    def opened(self, front: HasParts | None) -> None:
        """Connections are not watched, since they are of several consumers."""
        super().opened(None)

    def _say(self, what: str, **fields: Any) -> None:
        partition = fields.get("place")
        for topic in self._topics if partition is None else [partition]:
            full_name = Subscription(topic, self._subscription_name, "Shared").full_name
            consumer = self.name.replace(self.subscription, full_name, 1)
            if what == "opening":
                fields["subscription"] = full_name
            self.clients.recorder.say(what, consumer=consumer, **fields)


def pattern_consumer(pattern: str, topics: Sequence[Topic], subscription: str, worker: str, act: AsyncAct) -> Run:
    def make_log(clients: Clients, _: object, subscription: str, worker: str) -> ConsumerLog:
        return _PatternLog(clients, topics, subscription, worker)

    return async_consumer(re.compile(pattern), subscription, "Shared", worker, act, make_log=make_log)


def appearing_later(publish: Run, after_s: float) -> Run:
    """The topic is created by its first producer."""

    def wait_and_publish(clients: Clients) -> None:
        if not clients.stopping.wait(after_s):
            publish(clients)

    return wait_and_publish
