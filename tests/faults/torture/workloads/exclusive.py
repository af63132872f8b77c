"""A topic without partitions: producers of each kind, consumers that have it for themselves, each its subscription, of
which one acknowledges all up to the last it got and one refuses some, and a reader from the first message on."""

from __future__ import annotations

from tests.faults.torture.consumers import consumer, cumulatively, reader, some_each
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "exclusive"

WORKLOAD = Workload(
    name="exclusive",
    topics=(Topic(TOPIC),),
    subscriptions=(Subscription(TOPIC, "cumulative", "Exclusive"), Subscription(TOPIC, "refusing", "Exclusive")),
    producers=(
        Worker(publisher(TOPIC, "batched")),
        Worker(publisher(TOPIC, "single", Load(burst=4, options={"batching_enabled": False}))),
        Worker(publisher(TOPIC, "asyncio", Load(burst=40), asynchronous=True)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "cumulative", "Exclusive", "sync", cumulatively)),
        Worker(consumer(TOPIC, "refusing", "Exclusive", "refusing", some_each)),
        Worker(reader(TOPIC, "reader")),
    ),
)
