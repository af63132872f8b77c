"""Create the workloads' topics, and subscriptions at their beginnings, before the first fault, and record them.

Each topic also has a subscription `keep`, which nobody reads until the end: so nothing is deleted, and the whole log
can be read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import magnetar
from magnetar.admin import Admin
from tests.faults.checker.recorder import Recorder
from tests.faults.torture.client_process import keep_subscriptions
from tests.faults.torture.workload import Subscription, Topic, Workload

__all__ = ["backlogs", "current_partition_names", "prepare", "subscriptions_of"]


def prepare(url: str, workloads: Sequence[Workload], recorder: Recorder) -> None:
    topics = [topic for workload in workloads for topic in workload.topics]
    with Admin(url) as admin, magnetar.Client(url) as client:
        for topic in topics:
            _make(admin, topic)
            recorder.say(
                "topic",
                topic=topic.name,
                partitions=topic.partitions,
                order=topic.order,
                deduplicated=topic.deduplicated,
            )
        for one in subscriptions_of(workloads):
            client.subscribe(
                one.topic,
                one.name,
                consumer_type=magnetar.ConsumerType[one.type],
                initial_position=magnetar.InitialPosition.Earliest,
            ).close()
            recorder.say("subscription", subscription=one.full_name, topic=one.topic, type=one.type, durable=True)


def subscriptions_of(workloads: Sequence[Workload]) -> list[Subscription]:
    """All, `keep` included."""
    return [*keep_subscriptions(workloads), *(one for workload in workloads for one in workload.subscriptions)]


def current_partition_names(admin: Admin, workloads: Sequence[Workload]) -> dict[str, tuple[str, ...]]:
    """By topic, in order. One with partitions may have grown."""
    found = {}
    for workload in workloads:
        for topic in workload.topics:
            partitions = admin.topics.get_partitioned(topic.name).partitions if topic.partitions else 0
            found[topic.name] = Topic(topic.name, partitions).partition_names
    return found


def _make(admin: Admin, topic: Topic) -> None:
    if topic.partitions:
        admin.topics.create_partitioned(topic.name, topic.partitions)
    else:
        admin.topics.create(topic.name)


def backlogs(
    admin: Admin, partition_names: Mapping[str, tuple[str, ...]], subscriptions: Sequence[Subscription]
) -> dict[str, int]:
    """Of those that have one: how many entries, over all partitions."""
    wanted = {one.full_name for one in subscriptions}
    found: dict[str, int] = {}
    for topic, parts in partition_names.items():
        for partition in parts:
            for one in admin.topics.stats(partition).subscriptions:
                name = f"{topic}.{one.subscription}"
                if name in wanted and one.backlog_entries:
                    found[name] = found.get(name, 0) + one.backlog_entries
    return found
