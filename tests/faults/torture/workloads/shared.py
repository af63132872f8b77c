"""A topic whose messages are dispatched to consumers in two processes, which acknowledge some of each batch, nack
others, and leave the rest to the next consumer. One producer abandons messages without a receipt in time.
"""

from __future__ import annotations

from tests.faults.torture.consumers import async_consumer, consumer, some_each, some_each_async
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "shared"
_TIMELY_MS = 3000

WORKLOAD = Workload(
    name="shared",
    topics=(Topic(TOPIC),),
    subscriptions=(Subscription(TOPIC, "all", "Shared"),),
    producers=(
        Worker(publisher(TOPIC, "batched")),
        Worker(publisher(TOPIC, "timely", Load(burst=40, options={"send_timeout_millis": _TIMELY_MS}))),
        Worker(publisher(TOPIC, "asyncio", Load(burst=40, keys=5), asynchronous=True)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "all", "Shared", "sync", some_each, most=30), processes=2),
        Worker(async_consumer(TOPIC, "all", "Shared", "asyncio", some_each_async), processes=2),
    ),
)
