"""Few messages of all sizes: null ones, empty ones, such of a megabyte and more, and now and then one that is too large
for anybody; compressed in each of the ways there are. Consumers get them in batches, and one by one by a listener."""

from __future__ import annotations

from random import Random

from magnetar import CompressionType
from magnetar_wire.limits import MAX_MESSAGE_BYTES
from tests.faults.torture.consumers import batch_consumer, listening_consumer, some_each
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC = "sizes"


def _size(chance: Random) -> int | None:
    """As make_message has it."""
    kind = chance.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return 0
    if kind < 0.215:
        return MAX_MESSAGE_BYTES + 1
    most = 1_300_000 if kind < 0.25 else 200_000 if kind < 0.4 else 8_000
    return 1 + chance.randrange(most)


_LOAD = Load(burst=3, pause_s=1.5, size=_size, keys=4, keyless=0.5, one_of={"compression_type": list(CompressionType)})

WORKLOAD = Workload(
    name="sizes",
    topics=(Topic(TOPIC),),
    subscriptions=(Subscription(TOPIC, "all", "Shared"),),
    producers=(
        Worker(publisher(TOPIC, "sync", _LOAD)),
        Worker(publisher(TOPIC, "asyncio", _LOAD, asynchronous=True)),
    ),
    consumers=(
        Worker(batch_consumer(TOPIC, "all", "Shared", "batches", some_each)),
        Worker(listening_consumer(TOPIC, "all", "Shared", "listener", some_each)),
    ),
)
