"""A topic with partitions, and consumers in two processes, one of which is served for each partition. They acknowledge
some messages one by one, and all up to one, by turns, or refuse some. Messages have keys, or have none; they are
compressed."""

from __future__ import annotations

from magnetar import CompressionType
from tests.faults.torture.consumers import consumer, cumulatively, either, some_each
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "failover"
_LZ4 = {"compression_type": CompressionType.LZ4}
_ZSTD = {"compression_type": CompressionType.ZSTD}

WORKLOAD = Workload(
    name="failover",
    topics=(Topic(TOPIC, partitions=3),),
    subscriptions=tuple(Subscription(TOPIC, name, "Failover") for name in ("either", "cumulative", "refusing")),
    producers=(
        Worker(publisher(TOPIC, "keyed", Load(keys=11, options=_LZ4))),
        Worker(publisher(TOPIC, "keyless", Load(options=_ZSTD))),
        Worker(publisher(TOPIC, "asyncio", Load(burst=40, keys=11, keyless=0.5), asynchronous=True)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "either", "Failover", "either", either), processes=2),
        Worker(consumer(TOPIC, "cumulative", "Failover", "cumulative", cumulatively), processes=2),
        Worker(consumer(TOPIC, "refusing", "Failover", "refusing", some_each), processes=2),
    ),
)
