"""A topic with messages of up to 15 MB in chunks, among small ones, by several producers of both libraries whose chunks
interleave. Consumers that have a partition for themselves get them, and readers from the beginning or from an id on.

What is left of a message whose producer was killed is no message. Its chunks are acknowledged with later messages, or
by the client when they have been incomplete for a while.

The stock library's consumer gets none: it drops a message of which it has a chunk twice, as after a redelivery, or
after its producer has resent it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.faults.torture.consumers import consumer, cumulatively, either, reader
from tests.faults.torture.positioned_reader import positioned_reader
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.stock_producing import stock_publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "chunked"
_OPTIONS = {"batching_enabled": False, "chunking_enabled": True}
_MB = 1_000_000
_FEW: dict[str, Any] = {"receiver_queue_size": 10}


def _size(chance: Random) -> int | None:
    """As make_message has it: mostly small; two chunks, and now and then three."""
    kind = chance.random()
    if kind < 0.01:
        return 11 * _MB + chance.randrange(4 * _MB)
    if kind < 0.07:
        return 6 * _MB + chance.randrange(_MB)
    return chance.randrange(3000)


_LOAD = Load(burst=3, pause_s=4.0, size=_size, options=_OPTIONS)

WORKLOAD = Workload(
    name="chunked",
    topics=(Topic(TOPIC),),
    subscriptions=(
        Subscription(TOPIC, "cumulative", "Exclusive"),
        Subscription(TOPIC, "either", "Failover"),
    ),
    producers=(
        Worker(publisher(TOPIC, "sync", _LOAD), processes=2),
        Worker(publisher(TOPIC, "asyncio", _LOAD, asynchronous=True)),
        Worker(stock_publisher(TOPIC, "stock", _LOAD)),
    ),
    consumers=(
        Worker(consumer(TOPIC, "cumulative", "Exclusive", "sync", cumulatively, **_FEW)),
        Worker(consumer(TOPIC, "either", "Failover", "either", either, **_FEW), processes=2),
        Worker(reader(TOPIC, "reader")),
    ),
    positioned_readers=(Worker(positioned_reader(TOPIC, "positioned")),),
)
