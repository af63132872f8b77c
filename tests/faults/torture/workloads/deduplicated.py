"""Topics with deduplication: each message is stored once, though many are resent.

On the topic without partitions some producers have a name that stays, and ids of their own with gaps: they are closed
after each failure, opened again, and resend (resending.py). The others of both libraries are resent to by their
libraries only, after reconnections. One topic has partitions, one has batches by key, and one has messages in chunks.

No consumer of the stock library gets the chunks: after a redelivery or a reconnection it drops a message whose first
chunk it has twice, and gets it behind later ones.

The stock library's producers have an initial sequence id. Without one, a producer that reconnects before its first
receipt numbers its next messages from the last id that the broker has stored, also if messages with these ids wait to
be resent: then they are dropped as duplicates.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pulsar

from magnetar import BatchingType
from tests.faults.torture.consumers import async_consumer, consumer, cumulatively, some_each, some_each_async
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.resending import resending_publisher
from tests.faults.torture.stock_consumers import stock_consumer, stock_reader, stock_some_each
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC, PARTITIONED, BY_KEY = "deduplicated", "deduplicated-partitioned", "deduplicated-by-key"
IN_CHUNKS = "deduplicated-in-chunks"
_SINGLE = {"batching_enabled": False}
_BATCHED = {"batching_enabled": True}
_KEY_BASED = {"batching_type": BatchingType.KeyBased}
_NUMBERED = {"initial_sequence_id": 1}
_STOCK_KEY_BASED = {**_BATCHED, "batching_type": pulsar.BatchingType.KeyBased, **_NUMBERED}
_CHUNKED = {"batching_enabled": False, "chunking_enabled": True}
_MB = 1024 * 1024


def _size(chance: Random) -> int | None:
    """As make_message has it: now and then in two chunks."""
    return 5 * _MB + chance.randrange(_MB) if chance.random() < 0.1 else chance.randrange(300)


_PAUSE_S = 1.5
_BURSTS = Load(burst=20, pause_s=_PAUSE_S)
_FEW = Load(burst=4, pause_s=_PAUSE_S)
_KEYED: dict[str, Any] = {"burst": 20, "pause_s": _PAUSE_S, "keys": 7, "keyless": 0.2}
_CHUNKS = Load(burst=2, pause_s=6.0, size=_size, options=_CHUNKED)

WORKLOAD = Workload(
    name="deduplicated",
    topics=(
        Topic(TOPIC, deduplicated=True),
        Topic(PARTITIONED, partitions=2, deduplicated=True),
        Topic(BY_KEY, order="key", deduplicated=True),
        Topic(IN_CHUNKS, deduplicated=True),
    ),
    subscriptions=(
        Subscription(TOPIC, "cumulative", "Exclusive"),
        Subscription(TOPIC, "stock", "Failover"),
        Subscription(PARTITIONED, "each", "Shared"),
        Subscription(PARTITIONED, "either", "Failover"),
        Subscription(BY_KEY, "cumulative", "Exclusive"),
        Subscription(IN_CHUNKS, "each", "Failover"),
    ),
    producers=(
        Worker(resending_publisher(TOPIC, "batched", _BURSTS)),
        Worker(resending_publisher(TOPIC, "single", Load(burst=4, pause_s=_PAUSE_S, options=_SINGLE))),
        Worker(resending_publisher(TOPIC, "stock-resending", _FEW, stock=True)),
        Worker(
            stock_publisher(TOPIC, "stock-batched", Load(burst=20, pause_s=_PAUSE_S, options={**_BATCHED, **_NUMBERED}))
        ),
        Worker(publisher(TOPIC, "asyncio", _BURSTS, asynchronous=True)),
        Worker(publisher(IN_CHUNKS, "sync", _CHUNKS)),
        Worker(stock_publisher(IN_CHUNKS, "stock", replace(_CHUNKS, options={**_CHUNKED, **_NUMBERED}))),
        Worker(publisher(PARTITIONED, "batched", _BURSTS)),
        Worker(stock_publisher(PARTITIONED, "stock-single", replace(_FEW, options=_NUMBERED))),
        Worker(publisher(BY_KEY, "sync", Load(options=_KEY_BASED, **_KEYED))),
        Worker(stock_publisher(BY_KEY, "stock", Load(options=_STOCK_KEY_BASED, **_KEYED))),
    ),
    consumers=(
        Worker(consumer(TOPIC, "cumulative", "Exclusive", "sync", cumulatively)),
        Worker(
            stock_consumer(TOPIC, "stock", "Failover", "stock", stock_some_each, receiver_queue_size=20),
            processes=2,
        ),
        Worker(stock_reader(TOPIC, "reader", receiver_queue_size=20)),
        Worker(async_consumer(PARTITIONED, "each", "Shared", "asyncio", some_each_async)),
        Worker(consumer(PARTITIONED, "either", "Failover", "sync", some_each), processes=2),
        Worker(consumer(BY_KEY, "cumulative", "Exclusive", "sync", cumulatively)),
        Worker(consumer(IN_CHUNKS, "each", "Failover", "sync", some_each, receiver_queue_size=20), processes=2),
    ),
)
