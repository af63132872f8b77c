"""Subscriptions, Shared and Key_Shared, whose consumers retry messages, nack them until they are dead letters, and
acknowledge the others. Half of the producers batch messages.

Key_Shared promises that a key's messages are at one consumer at a time, letters included, and come in order as long as
none becomes a letter. A retried message comes later, among its key's other messages; a dead letter leaves the order.
"""

from __future__ import annotations

from magnetar import BatchingType
from tests.faults.torture.letters import letter_consumer
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Letters, Worker, Workload

_SHARED = Letters("retries", "work", "Shared", most=2)
_BY_KEY = Letters("retries-by-key", "work", "Key_Shared", most=2)
_LOAD = Load(burst=20, pause_s=1.5, keys=5, keyless=0.5, one_of={"batching_enabled": (False, True)})
_KEYED_LOAD = Load(
    burst=20,
    pause_s=1.5,
    keys=5,
    keyless=0.2,
    options={"batching_type": BatchingType.KeyBased},
    one_of={"batching_enabled": (False, True)},
)

WORKLOAD = Workload(
    name="retries",
    topics=(*_SHARED.topics, *_BY_KEY.topics),
    subscriptions=(*_SHARED.subscriptions, *_BY_KEY.subscriptions),
    producers=(
        Worker(publisher(_SHARED.topic, "sync", _LOAD)),
        Worker(publisher(_BY_KEY.topic, "asyncio", _KEYED_LOAD, asynchronous=True)),
    ),
    consumers=(
        Worker(letter_consumer(_SHARED, "any"), processes=2),
        Worker(letter_consumer(_BY_KEY, "any"), processes=2),
    ),
    letters=(_SHARED, _BY_KEY),
)
