"""A topic without partitions: producers of each kind, a consumer that has it for itself and acknowledges all up to the
last it got, and a reader from the first message on."""

from __future__ import annotations

from tests.faults.torture.consumers import consumer, cumulatively, reader
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "exclusive"

WORKLOAD = Workload(
    name="exclusive",
    topics=(Topic(TOPIC),),
    subscriptions=(Subscription(TOPIC, "cumulative", "Exclusive"),),
    producers=(
        Worker(publisher(TOPIC, "batched")),
        Worker(publisher(TOPIC, "single", Load(burst=4, options={"batching_enabled": False}))),
        Worker(publisher(TOPIC, "asyncio", Load(burst=40), asynchronous=True)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "cumulative", "Exclusive", "sync", cumulatively)),
        Worker(reader(TOPIC, "reader")),
    ),
)
