"""A topic with small messages and chunked ones, of which the stock library's readers begin at an id, or seek to one.

The SDK's readers do that in `chunked`.
"""

from __future__ import annotations

from random import Random

from tests.faults.torture.positioned_reader import positioned_reader
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Topic, Worker, Workload

TOPIC = "positioned"
_OPTIONS = {"batching_enabled": False, "chunking_enabled": True}


def _size(chance: Random) -> int | None:
    return 6_000_000 if chance.random() < 0.05 else chance.randrange(3000)


_LOAD = Load(burst=3, pause_s=4.0, size=_size, options=_OPTIONS)

WORKLOAD = Workload(
    name=TOPIC,
    topics=(Topic(TOPIC),),
    subscriptions=(),
    producers=(Worker(publisher(TOPIC, "sync", _LOAD)), Worker(stock_publisher(TOPIC, "stock", _LOAD))),
    consumers=(),
    positioned_readers=(Worker(positioned_reader(TOPIC, "stock-positioned", stock=True)),),
)
