"""The base of workloads, which clients run during a torture. Each is a file in `workloads/`, found by its folder.

    WORKLOAD = Workload(
        name="shared",
        topics=(Topic("shared"),),
        subscriptions=(Subscription("shared", "all", "Shared"),),
        producers=(Worker(publish, processes=2),),
        consumers=(Worker(consume, processes=2),),
    )

The rig makes the topics and subscriptions, and starts client processes, publishing and consuming ones. Every `Worker`
is a function that runs in a thread of its own in that number of these, until `stop` (producers), `end_readers`
(positioned readers) or `quit` (consumers). It gets a `Clients`, which has what all workers of a process share, and
writes down what happens (checker/history.md). A process may be killed at any moment: its next run has other names for
what it opens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from magnetar.admin.models import TopicPolicies
from tests.faults.checker.things import is_persistent

if TYPE_CHECKING:
    from tests.faults.torture.clients import Clients

__all__ = ["Letters", "Subscription", "Topic", "Worker", "Workload"]


@dataclass(frozen=True, slots=True)
class Topic:
    # With its domain, if it is non-persistent.
    name: str
    # At first: a worker may have it grow.
    partitions: int = 0
    # In what order its messages are: one producer's, or, where batches are built by key, one producer's with one key.
    order: Literal["producer", "key"] = "producer"
    deduplicated: bool = False
    # All of its producers are exclusive ones.
    exclusive: bool = False
    # Its policies, besides deduplication.
    policies: TopicPolicies = field(default_factory=TopicPolicies)
    # A subscription that lags this many messages behind may lose those before them, by the topic's backlog quota.
    quota_messages: int = 0
    # Its producers wait by its backlog quota, until a slow consumer has acknowledged.
    holds_producers: bool = False
    # It has a subscription that is not read before the end, so nothing is deleted.
    retains_all: bool = True
    # It is created by its first producer during the run, and its subscriptions by consumers of a pattern. The history
    # has them from the beginning.
    appears: bool = False
    # It is a retry or dead letter topic: consumers store letters there, and no producer has it.
    has_letters: bool = False

    @property
    def is_persistent(self) -> bool:
        return is_persistent(self.name)

    @property
    def all_policies(self) -> TopicPolicies:
        return replace(self.policies, deduplication=True) if self.deduplicated else self.policies

    @property
    def has_policies(self) -> bool:
        return self.all_policies != TopicPolicies()

    @property
    def retention_s(self) -> int:
        return 60 * self.policies.retention.time_minutes if self.policies.retention else 0

    def fields(self, partitions: int) -> dict[str, Any]:
        """Return the fields of the line `topic`, with the present number of partitions."""
        optional = {
            "exclusive": self.exclusive,
            "retention_s": self.retention_s,
            "ttl_s": self.policies.message_ttl_seconds or 0,
            "quota_messages": self.quota_messages,
            "holds_producers": self.holds_producers,
        }
        return {
            "topic": self.name,
            "partitions": partitions,
            "order": self.order,
            "deduplicated": self.deduplicated,
            **{name: value for name, value in optional.items() if value},
        }

    @property
    def partition_names(self) -> tuple[str, ...]:
        """The topic itself, or the partitions that it has at first."""
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

    @property
    def is_durable(self) -> bool:
        return is_persistent(self.topic)


@dataclass(frozen=True, slots=True)
class Letters:
    """The retry and dead letter topics of a subscription."""

    topic: str
    subscription: str
    type: Literal["Shared", "Key_Shared"]
    # How often a message is redelivered before it goes to the dead letter topic.
    most: int

    @property
    def retry(self) -> str:
        return f"{self.topic}-{self.subscription}-RETRY"

    @property
    def dead(self) -> str:
        return f"{self.topic}-{self.subscription}-DLQ"

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Its own, and those of letters, which are drained later: messages come there from the first one on."""
        order: Literal["producer", "key"] = "key" if self.type == "Key_Shared" else "producer"
        letters = (Topic(self.retry, order=order, has_letters=True), Topic(self.dead, order=order, has_letters=True))
        return Topic(self.topic, order=order), *letters

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(Subscription(topic, self.subscription, self.type) for topic in (self.topic, self.retry))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the line `letters`."""
        full_name = Subscription(self.topic, self.subscription, self.type).full_name
        return {"subscription": full_name, "retry": self.retry, "dead": self.dead, "most": self.most}


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
    letters: tuple[Letters, ...] = ()
    # Readers that begin at ids: they end before anything is deleted. They run in the consumers' processes.
    positioned_readers: tuple[Worker, ...] = ()
