"""Subscriptions in which each key is at one consumer at a time, and in order.

Consumers of the SDK and of Pulsar's own library join and leave every few seconds, and are killed with their processes.
They acknowledge some messages, nack others and leave the rest, and some have everything redelivered.

One topic has single messages of both libraries, the other, with partitions, batches by key. Keys of the stock library
are in other partitions, so that topic has the SDK's producers alone.
"""

from __future__ import annotations

from magnetar import BatchingType
from tests.faults.torture.consumers import async_consumer, consumer, some_each_and_all_again, some_each_async
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_consumers import stock_consumer, stock_some_each
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC, PARTITIONED = "key-shared", "key-shared-partitioned"
_SINGLE = Load(burst=20, pause_s=1.5, keys=20, keyless=0.1, options={"batching_enabled": False})
_BY_KEY = Load(burst=30, pause_s=1.5, keys=20, keyless=0.1, options={"batching_type": BatchingType.KeyBased})

WORKLOAD = Workload(
    name="key_shared",
    topics=(Topic(TOPIC, order="key"), Topic(PARTITIONED, partitions=2, order="key")),
    subscriptions=(Subscription(TOPIC, "keys", "Key_Shared"), Subscription(PARTITIONED, "keys", "Key_Shared")),
    producers=(
        Worker(publisher(TOPIC, "sync", _SINGLE)),
        Worker(stock_publisher(TOPIC, "stock", _SINGLE)),
        Worker(publisher(PARTITIONED, "asyncio", _BY_KEY, asynchronous=True)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "keys", "Key_Shared", "sync", some_each_and_all_again), processes=2),
        Worker(async_consumer(TOPIC, "keys", "Key_Shared", "asyncio", some_each_async)),
        Worker(stock_consumer(TOPIC, "keys", "Key_Shared", "stock", stock_some_each), processes=2),
        Worker(consumer(PARTITIONED, "keys", "Key_Shared", "sync", some_each_and_all_again), processes=2),
        Worker(async_consumer(PARTITIONED, "keys", "Key_Shared", "asyncio", some_each_async)),
    ),
)
