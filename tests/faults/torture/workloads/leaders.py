"""Topics with one producer at a time: candidates of both libraries in two processes compete for them, with all of the
exclusive access modes. Who has the topic with partitions has all of them.
"""

from __future__ import annotations

from tests.faults.torture.consumers import consumer, cumulatively, either
from tests.faults.torture.leading import candidate, stock_candidate
from tests.faults.torture.producing import Load
from tests.faults.torture.workload import Subscription, Topic, Worker, Workload

TOPIC, PARTITIONED = "leaders", "leaders-partitioned"
_LOAD = Load(burst=15, pause_s=1.0)
_SINGLE = Load(burst=4, pause_s=1.0, options={"batching_enabled": False})

WORKLOAD = Workload(
    name="leaders",
    topics=(Topic(TOPIC, exclusive=True), Topic(PARTITIONED, partitions=2, exclusive=True)),
    subscriptions=(
        Subscription(TOPIC, "cumulative", "Exclusive"),
        Subscription(PARTITIONED, "either", "Failover"),
    ),
    producers=(
        Worker(candidate(TOPIC, "batched", _LOAD), processes=2),
        Worker(candidate(TOPIC, "single", _SINGLE), processes=2),
        Worker(stock_candidate(TOPIC, "stock", _SINGLE)),
        Worker(candidate(PARTITIONED, "batched", _LOAD), processes=2),
        Worker(candidate(PARTITIONED, "single", _SINGLE), processes=2),
    ),
    consumers=(
        Worker(consumer(TOPIC, "cumulative", "Exclusive", "sync", cumulatively)),
        Worker(consumer(PARTITIONED, "either", "Failover", "either", either), processes=2),
    ),
)
