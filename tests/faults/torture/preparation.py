"""Create the workloads' topics, and subscriptions at their beginnings, before the first fault, and record them.

Most topics also have a subscription `keep`, which nobody reads until the end: so nothing is deleted, and the whole log
can be read again.

Statistics show when deduplication is on. Nothing shows when a broker has noticed another policy: that takes at most
twice the time for which brokers cache policies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import magnetar
from magnetar.admin import Admin, TopicPolicies
from tests.faults.checker.recorder import Recorder
from tests.faults.torture.client_process import keep_subscriptions
from tests.faults.torture.connections import short_name
from tests.faults.torture.consuming import KINDS
from tests.faults.torture.workload import Subscription, Topic, Workload

__all__ = ["backlogs", "current_partition_names", "prepare", "subscriptions_of"]

# Twice `metadata_cache_ttl_seconds`, and a bit.
_POLICIES_S: Final = 12.0
_LONGEST_S: Final = 60.0


def prepare(url: str, workloads: Sequence[Workload], recorder: Recorder) -> None:
    topics = [topic for workload in workloads for topic in workload.topics]
    with Admin(url) as admin, magnetar.Client(url) as client:
        appearing = {topic.name for topic in topics if topic.appears}
        for topic in topics:
            if not topic.appears:
                _make(admin, topic)
            recorder.say("topic", **topic.fields(topic.partitions))
        for one in subscriptions_of(workloads):
            if one.topic not in appearing:
                _subscribe(client, one)
            recorder.say(
                "subscription", subscription=one.full_name, topic=one.topic, type=one.type, durable=one.is_durable
            )
        for letters in [one for workload in workloads for one in workload.letters]:
            recorder.say("letters", **letters.fields)
        for topic in topics:
            if topic.deduplicated:
                _wait_for_deduplication(admin, topic)
    if any(topic.policies != TopicPolicies() for topic in topics):
        time.sleep(_POLICIES_S)


def subscriptions_of(workloads: Sequence[Workload]) -> list[Subscription]:
    """Return all subscriptions, `keep` included."""
    return [*keep_subscriptions(workloads), *(one for workload in workloads for one in workload.subscriptions)]


def _subscribe(client: magnetar.Client, one: Subscription) -> None:
    earliest = magnetar.InitialPosition.Earliest
    client.subscribe(one.topic, one.name, consumer_type=KINDS[one.type], initial_position=earliest).close()


def current_partition_names(admin: Admin, workloads: Sequence[Workload]) -> dict[str, tuple[str, ...]]:
    """Return each topic's present partitions, in order. A partitioned topic may have grown, and one that was to appear
    may not have done so.
    """
    found = {}
    existing = {short_name(name) for name in admin.topics.list("public/default")}
    for workload in workloads:
        for topic in workload.topics:
            if topic.appears and topic.name not in existing:
                continue
            partitions = admin.topics.get_partitioned(topic.name).partitions if topic.partitions else 0
            found[topic.name] = Topic(topic.name, partitions).partition_names
    return found


def _make(admin: Admin, topic: Topic) -> None:
    if topic.partitions:
        admin.topics.create_partitioned(topic.name, topic.partitions)
    else:
        admin.topics.create(topic.name)
    if topic.has_policies:
        admin.topics.change_policies(topic.name, topic.all_policies)


def _wait_for_deduplication(admin: Admin, topic: Topic) -> None:
    deadline = time.monotonic() + _LONGEST_S
    for name in topic.partition_names:  # it is noticed within seconds
        while admin.topics.stats(name).deduplication_status != "Enabled":
            if time.monotonic() > deadline:
                raise TimeoutError(f"deduplication of {name} was not switched on")
            time.sleep(0.1)


def backlogs(
    admin: Admin, partition_names: Mapping[str, tuple[str, ...]], subscriptions: Sequence[Subscription]
) -> dict[str, int]:
    """Return the subscriptions with a backlog, and its number of entries in all partitions. One that nobody has created
    yet, on a topic that has appeared, has a backlog, too.
    """
    wanted = {one.full_name for one in subscriptions}
    backlog: dict[str, int] = {}
    for topic, parts in partition_names.items():
        for partition in parts:
            for one in admin.topics.stats(partition).subscriptions:
                name = f"{topic}.{one.subscription}"
                if name in wanted:
                    backlog[name] = backlog.get(name, 0) + one.backlog_entries
    missing = {one.full_name: 1 for one in subscriptions if one.topic in partition_names}
    return {name: entries for name, entries in (missing | backlog).items() if entries}
