"""A topic with partitions whose schema evolves while messages are written and read. Producers in two processes offer
each new definition at the same moment, to the owners of all partitions, and so does one of Pulsar's own library.
Consumers read with an older and a newer definition, or with that of each message."""

from __future__ import annotations

from magnetar.schema import AutoConsumeSchema
from tests.faults.torture import evolution
from tests.faults.torture.consumers import async_consumer, consumer, either, some_each, some_each_async
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.typed_consuming import typed_log, watch_registry
from tests.faults.torture.typed_producing import TypedProducerLog, TypedStockProducerLog, offerer
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "typed"
_LOAD = Load(burst=30, keys=7, keyless=0.5)
# Without keys: the library maps them to other partitions.
_STOCK_LOAD = Load(burst=30, options={"batching_enabled": True})
_OLDER, _NEWER, _ANY = (typed_log(one) for one in (evolution.OLDER, evolution.NEWER, None))

WORKLOAD = Workload(
    name="typed",
    topics=(Topic(TOPIC, partitions=2),),
    subscriptions=(
        Subscription(TOPIC, "older", "Failover"),
        Subscription(TOPIC, "newer", "Shared"),
        Subscription(TOPIC, "any", "Shared"),
    ),
    producers=(
        Worker(publisher(TOPIC, "sync", _LOAD, make_log=TypedProducerLog), processes=2),
        Worker(publisher(TOPIC, "asyncio", _LOAD, asynchronous=True, make_log=TypedProducerLog)),
        Worker(stock_publisher(TOPIC, "stock", _STOCK_LOAD, make_log=TypedStockProducerLog)),
        Worker(offerer(TOPIC)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "older", "Failover", "older", either, make_log=_OLDER, schema=evolution.OLDER.schema)),
        Worker(
            async_consumer(
                TOPIC, "newer", "Shared", "newer", some_each_async, make_log=_NEWER, schema=evolution.NEWER.schema
            )
        ),
        Worker(consumer(TOPIC, "any", "Shared", "any", some_each, make_log=_ANY, schema=AutoConsumeSchema())),
        Worker(watch_registry(TOPIC)),
    ),
)
