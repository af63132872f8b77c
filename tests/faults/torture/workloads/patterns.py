"""Topics that appear one after another during the run, and consumers of all of them by their names."""

from __future__ import annotations

from tests.faults.torture.consumers import some_each_async
from tests.faults.torture.pattern_consumers import appearing_later, pattern_consumer
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

_TOPICS = tuple(Topic(f"pattern-{number}", appears=True, retains_all=False) for number in range(6))
_PATTERN = "persistent://public/default/pattern-.*"
_EVERY_S = 7.0
_LOAD = Load(burst=10, pause_s=2.0)

WORKLOAD = Workload(
    name="patterns",
    topics=_TOPICS,
    subscriptions=tuple(Subscription(topic.name, "all", "Shared") for topic in _TOPICS),
    producers=tuple(
        Worker(appearing_later(publisher(topic.name, "sync", _LOAD), _EVERY_S * number))
        for number, topic in enumerate(_TOPICS)
    ),
    consumers=(Worker(pattern_consumer(_PATTERN, _TOPICS, "all", "asyncio", some_each_async), processes=2),),
)
