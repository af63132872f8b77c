"""A non-persistent topic: messages may be lost, and what comes is whole, in order, and comes once."""

from __future__ import annotations

from tests.faults.torture.consumers import async_consumer, consumer, some_each, some_each_async
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_consumers import stock_consumer, stock_some_each
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "non-persistent://public/default/non-persistent"
_LOAD = Load(burst=10, pause_s=1.0)

WORKLOAD = Workload(
    name="non_persistent",
    topics=(Topic(TOPIC, retains_all=False),),
    subscriptions=(
        Subscription(TOPIC, "native", "Exclusive"),
        Subscription(TOPIC, "stock", "Failover"),
        Subscription(TOPIC, "both", "Shared"),
    ),
    producers=(
        Worker(publisher(TOPIC, "sync", _LOAD)),
        Worker(publisher(TOPIC, "asyncio", _LOAD, asynchronous=True)),
        Worker(stock_publisher(TOPIC, "stock", _LOAD)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "native", "Exclusive", "sync", some_each)),
        Worker(stock_consumer(TOPIC, "stock", "Failover", "stock", stock_some_each)),
        Worker(async_consumer(TOPIC, "both", "Shared", "asyncio", some_each_async)),
        Worker(stock_consumer(TOPIC, "both", "Shared", "stock", stock_some_each)),
    ),
)
