"""Batches by key, of both libraries: what one producer sends with one key stays in order. The topic without partitions
has producers of both; keys of the stock library are in other partitions, so the other topic has the SDK's alone.
"""

from __future__ import annotations

import pulsar

from magnetar import BatchingType
from tests.faults.torture.consumers import async_consumer, consumer, cumulatively, either, some_each_async
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_consumers import stock_consumer, stock_some_each
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC, PARTITIONED = "by-key", "by-key-partitioned"
_LOAD = Load(burst=30, pause_s=1.5, keys=9, keyless=0.2, options={"batching_type": BatchingType.KeyBased})
_STOCK_LOAD = Load(
    burst=30,
    pause_s=1.5,
    keys=9,
    keyless=0.2,
    options={"batching_enabled": True, "batching_type": pulsar.BatchingType.KeyBased},
)

WORKLOAD = Workload(
    name="by_key",
    topics=(Topic(TOPIC, order="key"), Topic(PARTITIONED, partitions=2, order="key")),
    subscriptions=(
        Subscription(TOPIC, "cumulative", "Exclusive"),
        Subscription(TOPIC, "stock", "Shared"),
        Subscription(PARTITIONED, "either", "Failover"),
        Subscription(PARTITIONED, "each", "Shared"),
    ),
    producers=(
        Worker(publisher(TOPIC, "sync", _LOAD)),
        Worker(stock_publisher(TOPIC, "stock", _STOCK_LOAD)),
        Worker(publisher(PARTITIONED, "sync", _LOAD)),
        Worker(publisher(PARTITIONED, "asyncio", _LOAD, asynchronous=True)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "cumulative", "Exclusive", "sync", cumulatively)),
        Worker(stock_consumer(TOPIC, "stock", "Shared", "stock", stock_some_each)),
        Worker(consumer(PARTITIONED, "either", "Failover", "sync", either), processes=2),
        Worker(async_consumer(PARTITIONED, "each", "Shared", "asyncio", some_each_async)),
    ),
)
