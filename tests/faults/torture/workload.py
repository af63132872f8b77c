"""The base of workloads, which clients run during a torture. Each is a file in `workloads/`, found by its folder.

    WORKLOAD = Workload(
        name="shared",
        topics=(Topic("shared"),),
        subscriptions=(Subscription("shared", "all", "Shared"),),
        producers=(Worker(publish, processes=2),),
        consumers=(Worker(consume, processes=2),),
    )

The rig makes the topics and subscriptions, and starts client processes, publishing and consuming ones. Every `Worker`
is a function that runs in a thread of its own in as many of these as it says, until `stop` (producers) or
`quit` (consumers). It gets a `Clients`, which has what all workers of a process share, and writes down what happens
(checker/history.md). A process may be killed at any moment: its next run has other names for what it opens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.faults.torture.clients import Clients

__all__ = ["Subscription", "Topic", "Worker", "Workload"]


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    # At first: a worker may have it grow.
    partitions: int = 0
    # In what order its messages are: one producer's, or, where batches are built by key, one producer's with one key.
    order: Literal["producer", "key"] = "producer"
    deduplicated: bool = False

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The topics that are stored: itself, or the partitions that it has at first."""
        if not self.partitions:
            return (self.name,)
        return tuple(f"{self.name}-partition-{number}" for number in range(self.partitions))


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    name: str
    type: Literal["Exclusive", "Failover", "Shared", "Key_Shared"]

    @property
    def full_name(self) -> str:
        return f"{self.topic}.{self.name}"


@dataclass(frozen=True, slots=True)
class Worker:
    run: Callable[[Clients], None]
    # The number of processes of its kind in which it runs.
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    topics: tuple[Topic, ...]
    subscriptions: tuple[Subscription, ...]
    producers: tuple[Worker, ...]
    consumers: tuple[Worker, ...]
