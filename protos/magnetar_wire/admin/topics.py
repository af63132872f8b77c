"""Rows of the table of admin calls: topics, with and without partitions."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Partitions, Role, Scope

__all__ = ["PARTITIONED_TOPICS", "TOPICS"]

_ANY: Final = Scope.ANY_BROKER
_TOPIC: Final = Scope.TOPIC
_EACH: Final = Partitions.EACH
_ADMIN: Final = Role.TENANT_ADMIN
_USE: Final = Role.PRODUCE_OR_CONSUME

# fmt: off
TOPICS: Final = (
    AdminCall("topics", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.list(namespace: str, include_system_topic: bool = False) -> list[str]",
            "List a namespace's topics: partitions, too, but not the partitioned topics that they belong to.",
            fields={"within": "namespace", "include_system": "include_system_topic"},
        ),
    )),
    AdminCall("partitioned_topics", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.list_partitioned(namespace: str, include_system_topic: bool = False) -> list[str]",
            "List a namespace's partitioned topics.",
            fields={"within": "namespace", "include_system": "include_system_topic"},
        ),
    )),
    AdminCall("create_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, methods=(
        Method("topics.create(topic: str) -> None", "Create a topic that is not partitioned."),
    )),
    AdminCall("delete_topic", pb.DeleteRequest, pb.Done, _TOPIC, _ADMIN, topic_field="name", methods=(
        Method(
            "topics.delete(topic: str, force: bool = False) -> None",
            "Delete a topic. One with producers or consumers is refused, unless by `force`.",
            fields={"name": "topic"},
        ),
    )),
    AdminCall("truncate_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, partitions=_EACH, methods=(
        Method(
            "topics.truncate(topic: str) -> None",
            "Delete all messages that are stored now, acknowledged or not. Messages that a lease retains are deleted "
            "when it ends.",
        ),
    )),
    AdminCall("unload_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, partitions=_EACH, repeated_at_owner=True,
              methods=(
        Method("topics.unload(topic: str) -> None", "Close a topic at its broker. It is loaded again when it is used."),
    )),
    AdminCall("topic_owners", pb.TopicOwnersRequest, pb.TopicOwnersAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("topics.lookup"),
        Method("topics.lookup_partitioned"),
        Method(
            'topics.owners(topic: str, listener_name: str = "") -> list[TopicOwner]',
            "Return the owner of a topic, or of each of its partitions in their order.",
            result="owners",
        ),
    )),
    AdminCall("topic_stats", pb.TopicRequest, pb.TopicStatsAnswer, _TOPIC, _USE, partitions=_EACH, idempotent=True,
              methods=(
        Method(
            "topics.stats(topic: str) -> TopicStats",
            "Return a topic's statistics; of a partitioned topic the sums over its partitions.",
            result="stats",
        ),
    )),
    AdminCall("internal_stats", pb.TopicRequest, pb.InternalStatsAnswer, _TOPIC, _USE, idempotent=True, methods=(
        Method(
            "topics.internal_stats(topic: str) -> InternalStats",
            "Return a topic's ledgers, cursors and leases.",
            result="stats",
        ),
    )),
    # Refused with NOT_ALLOWED if the topic has producers or consumers.
    AdminCall("check_unused", pb.TopicRequest, pb.Done, _TOPIC, Role.BROKER, idempotent=True),
)

PARTITIONED_TOPICS: Final = (
    AdminCall("create_partitioned", pb.PartitionsRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.create_partitioned(topic: str, partitions: int, properties: Mapping[str, str] | None = None) "
            "-> None",
            "Create a partitioned topic.",
        ),
    )),
    AdminCall("partitioned_topic", pb.TopicRequest, pb.PartitionedTopicAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.get_partitioned(topic: str) -> PartitionedTopic",
            "Return a partitioned topic's number of partitions, and its properties.",
        ),
    )),
    AdminCall("grow_partitioned", pb.PartitionsRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.update_partitioned(topic: str, partitions: int) -> None",
            "Add partitions to a partitioned topic, up to this number. Its subscriptions get the new ones from their "
            "first message.",
        ),
    )),
    AdminCall("delete_partitioned", pb.DeleteRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.delete_partitioned(topic: str, force: bool = False) -> None",
            "Delete a partitioned topic with all its partitions. One with producers or consumers is refused, unless by "
            "`force`.",
            fields={"name": "topic"},
        ),
    )),
)
# fmt: on
