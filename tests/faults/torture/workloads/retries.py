"""A subscription whose consumers, in two processes, retry messages, nack them until they are dead letters, and
acknowledge the others. Half of the messages are batched.
"""

from __future__ import annotations

from tests.faults.torture.letters import retrying_consumer
from tests.faults.torture.producing import Load, publisher
from tests.faults.torture.workload import Letters, Subscription, Topic, Worker, Workload

TOPIC = "retries"
_LETTERS = Letters(TOPIC, "work", most=2)
_LOAD = Load(burst=20, pause_s=1.5, keys=5, keyless=0.5)
_UNBATCHED = Load(burst=20, pause_s=1.5, keys=5, keyless=0.5, options={"batching_enabled": False})

WORKLOAD = Workload(
    name=TOPIC,
    # Messages come to the retry topic from the first one, so it is drained after it.
    topics=(Topic(TOPIC), Topic(_LETTERS.retry, has_letters=True), Topic(_LETTERS.dead, has_letters=True)),
    subscriptions=(Subscription(TOPIC, "work", "Shared"), Subscription(_LETTERS.retry, "work", "Shared")),
    producers=(
        Worker(publisher(TOPIC, "batched", _LOAD)),
        Worker(publisher(TOPIC, "single", _UNBATCHED, asynchronous=True)),
    ),
    consumers=(
        Worker(retrying_consumer(_LETTERS, "sync"), processes=2),
        Worker(retrying_consumer(_LETTERS, "asyncio", asynchronous=True)),
    ),
    letters=(_LETTERS,),
)
