"""Clients of Pulsar's own library, at the brokers' Pulsar listener: some have a topic and its subscriptions for
themselves, some share them with the SDK's.

The topic without partitions has producers of each kind, one of them with a name from the broker, and a consumer that
stays open and is to get everything in the log's order. Nobody else publishes to the topic with partitions, so that
other clients' receipts don't hide that these got none; one abandons messages without a receipt in time.
"""

from __future__ import annotations

from random import Random

import pulsar

from tests.faults.torture.consumers import async_consumer, consumer, either, some_each_async
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_consumers import stock_consumer, stock_cumulatively, stock_reader, stock_some_each
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC, PARTITIONED = "stock", "stock-partitioned"
_BATCHED = {"batching_enabled": True}
_TIMELY_MS = 3000
# Who shares a subscription with those who acknowledge part of a batch: without it the library acknowledges a batch when
# all its messages were acknowledged to it, and does not count those that others have done before, so it never would.
_BY_INDEX = {"batch_index_ack_enabled": True}
_COMPRESSIONS = [getattr(pulsar.CompressionType, name) for name in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")]


def _size(chance: Random) -> int | None:
    """As make_message has it: null and empty ones, and now and then a large one."""
    kind = chance.random()
    if kind < 0.08:
        return None
    if kind < 0.16:
        return 0
    return 1 + chance.randrange(200_000 if kind < 0.19 else 300)


_NAMELESS = Load(
    burst=30,
    size=_size,
    keys=5,
    keyless=0.5,
    options={**_BATCHED, "producer_name": None},
    one_of={"compression_type": _COMPRESSIONS},
)

WORKLOAD = Workload(
    name="stock",
    topics=(Topic(TOPIC), Topic(PARTITIONED, partitions=2)),
    subscriptions=(
        Subscription(TOPIC, "cumulative", "Exclusive"),
        Subscription(TOPIC, "refusing", "Exclusive"),
        Subscription(TOPIC, "staying", "Shared"),
        Subscription(TOPIC, "both", "Shared"),
        Subscription(PARTITIONED, "renewed", "Failover"),
        Subscription(PARTITIONED, "both", "Failover"),
    ),
    producers=(
        Worker(stock_publisher(TOPIC, "batched", Load(options=_BATCHED))),
        Worker(stock_publisher(TOPIC, "single", Load(burst=6, size=_size))),
        Worker(stock_publisher(TOPIC, "nameless", _NAMELESS)),
        Worker(publisher(TOPIC, "native", Load(burst=30))),
        Worker(stock_publisher(PARTITIONED, "keyed", Load(keys=11, options=_BATCHED))),
        Worker(stock_publisher(PARTITIONED, "timely", Load(options={**_BATCHED, "send_timeout_millis": _TIMELY_MS}))),
    ),
    consumers=(
        Worker(stock_consumer(TOPIC, "cumulative", "Exclusive", "cumulative", stock_cumulatively, stays=True)),
        Worker(stock_consumer(TOPIC, "refusing", "Exclusive", "refusing", stock_some_each, stays=True)),
        Worker(stock_consumer(TOPIC, "staying", "Shared", "staying", stock_some_each, stays=True), processes=2),
        Worker(stock_consumer(TOPIC, "both", "Shared", "stock", stock_some_each, **_BY_INDEX)),
        Worker(async_consumer(TOPIC, "both", "Shared", "native", some_each_async)),
        Worker(stock_reader(TOPIC, "reader")),
        Worker(stock_consumer(PARTITIONED, "renewed", "Failover", "renewed", stock_cumulatively), processes=2),
        Worker(stock_consumer(PARTITIONED, "both", "Failover", "stock", stock_cumulatively, **_BY_INDEX)),
        Worker(consumer(PARTITIONED, "both", "Failover", "native", either)),
    ),
)
