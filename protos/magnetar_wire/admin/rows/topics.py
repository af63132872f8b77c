"""Rows of the table of admin calls: topics, with and without partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.admin.call import AdminCall, Method, Partitions, Role, Scope
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.internal_stats import (
    INTERNAL_STATS,
    LEDGER_INFO,
    PARTITIONED_INTERNAL_STATS,
    PARTITIONED_METADATA,
)
from magnetar_wire.admin.json.parts import Either, Field, Object, Part, Schema
from magnetar_wire.admin.json.positions import PositionPart
from magnetar_wire.admin.json.stats import PARTITIONED_STATS, TOPIC_STATS
from magnetar_wire.admin.json.values import InvalidJson, format_value

__all__ = ["PARTITIONED_TOPICS", "TOPICS"]

_ANY: Final = Scope.ANY_BROKER
_TOPIC: Final = Scope.TOPIC
_EACH: Final = Partitions.EACH
_ADMIN: Final = Role.TENANT_ADMIN
_USE: Final = Role.PRODUCE_OR_CONSUME

_NAMESPACE: Final = "/admin/v2/persistent/{within:namespace}"
_NON_PERSISTENT: Final = "/admin/v2/non-persistent/{within:namespace}"
_OF_PERSISTENT: Final = {"domain": "persistent"}
_OF_NON_PERSISTENT: Final = {"domain": "non-persistent"}
_SYSTEM: Final = {"includeSystemTopic": "include_system"}
_PATH: Final = "/admin/v2/{topic}"
_NAME: Final = "/admin/v2/{name:topic}"
_PARTITIONS: Final = f"{_PATH}/partitions"
# A call for one topic that has partitions is answered as if it was missing.
_NOT_PARTITIONED: Final[Mapping[int, int]] = {ErrorCode.NOT_ALLOWED: 404}
_FORCE: Final = {"force": "force"}
_STATS_QUERY: Final = {
    "getPreciseBacklog": "precise_backlog",
    "subscriptionBacklogSize": "subscription_backlog_size",
    "getEarliestTimeInBacklog": "earliest_time_in_backlog",
    "excludePublishers": "exclude_producers",
    "excludeConsumers": "exclude_consumers",
}


class _Sums(Part):
    """The query's parameter for the sums over the partitions. Pulsar's brokers do not have it, and answer 404 for a
    partitioned topic."""

    fields = frozenset(["without_partitions"])

    def to_json(self, message: Any) -> Any:
        return None if message.without_partitions else True

    def fill(self, message: Any, value: Any, where: str) -> None:
        if value not in ("true", "false"):
            raise InvalidJson(f"{where}: {format_value(value)} is not true or false")
        message.without_partitions = value == "false"

    def schema(self, descriptor: Any) -> Schema:
        return {"type": "boolean"}


class _Mode(Part):
    """The query's parameter with the domain of the listed topics."""

    fields = frozenset(["domain"])
    _domains: Final = {"PERSISTENT": "persistent", "NON_PERSISTENT": "non-persistent", "ALL": "all"}

    def to_json(self, message: Any) -> Any:
        return next((mode for mode, domain in self._domains.items() if domain == message.domain), None)

    def fill(self, message: Any, value: Any, where: str) -> None:
        if value not in self._domains:
            raise InvalidJson(f"{where}: {format_value(value)} is none of {', '.join(self._domains)}")
        message.domain = self._domains[value]

    def schema(self, descriptor: Any) -> Schema:
        return {"type": "string", "enum": list(self._domains)}

    def carries(self, message: Any) -> bool:
        return not message.domain or message.domain in self._domains.values()


# fmt: off
TOPICS: Final = (
    AdminCall("topics", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.list(namespace: str, include_system_topic: bool = False, domain: str = 'persistent') -> list[str]",
            "List a namespace's topics: partitions, too, but not the partitioned topics that they belong to. The "
            "domain `non-persistent` has those that store nothing, while a broker has loaded them; `all` has both.",
            fields={"within": "namespace", "include_system": "include_system_topic", "domain": "domain"},
        ),
    ), routes=(
        Route("GET", _NAMESPACE, query={**_SYSTEM, "bundle": "bundle"}, fixed=_OF_PERSISTENT, answer=Field("names")),
        Route("GET", _NON_PERSISTENT, query={**_SYSTEM, "bundle": "bundle"}, fixed=_OF_NON_PERSISTENT,
              answer=Field("names")),
        Route("GET", f"{_NON_PERSISTENT}/{{bundle}}", query=_SYSTEM, fixed=_OF_NON_PERSISTENT, answer=Field("names")),
        Route("GET", "/admin/v2/namespaces/{within:namespace}/topics", query={**_SYSTEM, "mode": _Mode()},
              answer=Field("names")),
    )),
    AdminCall("partitioned_topics", pb.NamesRequest, pb.NamesAnswer, _ANY, _USE, idempotent=True, methods=(
        Method(
            "topics.list_partitioned(namespace: str, include_system_topic: bool = False, domain: str = 'persistent') "
            "-> list[str]",
            "List a namespace's partitioned topics, of this domain.",
            fields={"within": "namespace", "include_system": "include_system_topic", "domain": "domain"},
        ),
    ), routes=(
        Route("GET", f"{_NAMESPACE}/partitioned", query=_SYSTEM, fixed=_OF_PERSISTENT, answer=Field("names")),
        Route("GET", f"{_NON_PERSISTENT}/partitioned", query=_SYSTEM, fixed=_OF_NON_PERSISTENT, answer=Field("names")),
    )),
    AdminCall("create_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, methods=(
        Method(
            "topics.create(topic: str, properties: Mapping[str, str] | None = None) -> None",
            "Create a topic that is not partitioned.",
        ),
    ), routes=(Route("PUT", _PATH, body=Field("properties"), statuses={ErrorCode.TOPIC_NOT_FOUND: 412}),)),
    AdminCall("delete_topic", pb.DeleteRequest, pb.Done, _TOPIC, _ADMIN, topic_field="name", methods=(
        Method(
            "topics.delete(topic: str, force: bool = False) -> None",
            "Delete a topic. One with producers or consumers is refused, unless by `force`.",
            fields={"name": "topic"},
        ),
    ), routes=(Route("DELETE", _NAME, query=_FORCE),)),
    AdminCall("truncate_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, partitions=_EACH, methods=(
        Method(
            "topics.truncate(topic: str) -> None",
            "Delete all messages that are stored now, acknowledged or not. Messages that a lease retains are deleted "
            "when it ends.",
        ),
    ), routes=(Route("DELETE", f"{_PATH}/truncate"),)),
    AdminCall("trim_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, partitions=_EACH, idempotent=True, methods=(
        Method(
            "topics.trim(topic: str) -> None",
            "Delete ledgers that no subscription needs and that nothing retains. Brokers also do so by themselves.",
        ),
    ), routes=(Route("POST", f"{_PATH}/trim", empty_status=200),)),
    AdminCall("unload_topic", pb.TopicRequest, pb.Done, _TOPIC, _ADMIN, partitions=_EACH, repeated_at_owner=True,
              methods=(
        Method("topics.unload(topic: str) -> None", "Close a topic at its broker. It is loaded again when it is used."),
    ), routes=(Route("PUT", f"{_PATH}/unload"),)),
    AdminCall("topic_properties", pb.TopicRequest, pb.TopicPropertiesAnswer, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "topics.properties(topic: str) -> dict[str, str]",
            "Return a topic's properties; of a partition, its own.",
            result="properties",
        ),
    ), routes=(Route("GET", f"{_PATH}/properties", answer=Field("properties")),)),
    AdminCall("update_topic_properties", pb.TopicPropertiesRequest, pb.Done, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "topics.update_properties(topic: str, properties: Mapping[str, str]) -> None",
            "Add properties to a topic, or replace those of the same names.",
        ),
        Method(
            "topics.remove_properties(topic: str, names: Sequence[str]) -> None",
            "Remove a topic's properties of these names, if it has them.",
            fields={"removed": "names"},
        ),
    ), routes=(
        Route("PUT", f"{_PATH}/properties", body=Field("properties")),
        Route("DELETE", f"{_PATH}/properties", query={"key": "removed"},
              summary="Remove a topic's properties of these names, if it has them."),
    )),
    # Of the node of a topic without partitions, which only its owner changes.
    AdminCall("update_stored_properties", pb.TopicPropertiesRequest, pb.Done, _TOPIC, Role.BROKER, idempotent=True),
    AdminCall("topic_owners", pb.TopicOwnersRequest, pb.TopicOwnersAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("topics.lookup"),
        Method("topics.lookup_partitioned"),
        Method("topics.owners"),
    )),
    AdminCall("topic_stats", pb.TopicStatsRequest, pb.TopicStatsAnswer, _TOPIC, _USE, partitions=_EACH, idempotent=True,
              methods=(Method("topics.stats"),), routes=(
        Route("GET", "/admin/v2/{topic}/stats", query={**_STATS_QUERY, "sums": _Sums()},
              implied={"without_partitions": True}, answer=Field("stats", of=TOPIC_STATS),
              summary="Return a topic's statistics; with `sums` of a partitioned topic those over its partitions."),
    )),
    AdminCall("partitioned_stats", pb.TopicStatsRequest, pb.PartitionedStatsAnswer, _TOPIC, _USE, partitions=_EACH,
              idempotent=True, methods=(Method("topics.partitioned_stats"),), routes=(
        Route("GET", "/admin/v2/{topic}/partitioned-stats", query={**_STATS_QUERY, "perPartition": "per_partition"},
              answer=PARTITIONED_STATS,
              summary="Return the statistics of a partitioned topic, and with `perPartition` those of each partition."),
    )),
    AdminCall("backlog_size", pb.BacklogSizeRequest, pb.BacklogSizeAnswer, _TOPIC, _USE, idempotent=True,
              partitions=_EACH, methods=(
        Method(
            "topics.backlog_size(topic: str, message: MessageId) -> int",
            "Return about how many bytes are stored after a message; on a partitioned topic, of its partition.",
            result="bytes",
            fields={"after": "next_message(message, False)", "partition": "partition_of(message)"},
        ),
    ), routes=(
        Route("PUT", "/admin/v2/{topic}/backlogSize", body=PositionPart("after"), needs_body=True,
              answer=Field("bytes"), statuses={ErrorCode.INCARNATION_CHANGED: 412, ErrorCode.NOT_ALLOWED: 405}),
    )),
    AdminCall("internal_stats", pb.TopicRequest, pb.InternalStatsAnswer, _TOPIC, _USE, idempotent=True, methods=(
        Method(
            "topics.internal_stats(topic: str) -> InternalStats",
            "Return a topic's ledgers, cursors and leases.",
            result="stats",
        ),
    ), routes=(
        Route("GET", f"{_PATH}/internalStats", answer=Field("stats", of=INTERNAL_STATS), statuses=_NOT_PARTITIONED),
        Route("GET", f"{_PATH}/internal-info", answer=Field("stats", of=LEDGER_INFO), statuses=_NOT_PARTITIONED,
              summary="Return a topic's ledgers and cursors."),
    )),
    # Refused with NOT_ALLOWED if the topic has producers or consumers.
    AdminCall("check_unused", pb.TopicRequest, pb.Done, _TOPIC, Role.BROKER, idempotent=True),
    # Sent to the first partition: its clients are notified that the topic has this many partitions.
    AdminCall("report_growth", pb.PartitionsRequest, pb.Done, _TOPIC, Role.BROKER, idempotent=True),
)

PARTITIONED_TOPICS: Final = (
    AdminCall("create_partitioned", pb.PartitionsRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.create_partitioned(topic: str, partitions: int, properties: Mapping[str, str] | None = None) "
            "-> None",
            "Create a partitioned topic.",
        ),
    ), routes=(
        Route("PUT", _PARTITIONS, body=Either(Field("partitions"), Object({
            "partitions": "partitions", "properties": "properties",
        }, required="partitions")), object_type="application/vnd.partitioned-topic-metadata+json", needs_body=True,
              out_of_range_status=406, statuses={ErrorCode.INVALID_ARGUMENT: 406}),
    )),
    AdminCall("create_missed_partitions", pb.TopicRequest, pb.Done, _ANY, _ADMIN, idempotent=True, methods=(
        Method(
            "topics.create_missed_partitions(topic: str) -> None",
            "Create the partitions of a partitioned topic that were never used, or were deleted.",
        ),
    ), routes=(Route("POST", f"{_PATH}/createMissedPartitions"),)),
    AdminCall("topic_partitions", pb.TopicPartitionsRequest, pb.PartitionedTopicAnswer, _ANY, _USE, idempotent=True,
              methods=(
        Method(
            "topics.find_partitions(topic: str, create: bool = False) -> PartitionedTopic",
            "Return a topic's number of partitions, 0 if it is not partitioned, and its properties if it is.\n\n"
            "With `create`, a topic that does not exist is created if that is allowed on first use: with its "
            "partitions, or later, by a producer or consumer.",
        ),
    ), routes=(
        Route("GET", _PARTITIONS, query={"checkAllowAutoCreation": "create"}, answer=PARTITIONED_METADATA),
    )),
    AdminCall("partitioned_topic", pb.TopicRequest, pb.PartitionedTopicAnswer, _ANY, _USE, idempotent=True, methods=(
        Method("topics.get_partitioned"),
    ), routes=(Route("GET", _PARTITIONS, answer=PARTITIONED_METADATA, client_only=True),)),
    AdminCall("partitioned_internal_stats", pb.TopicRequest, pb.PartitionedInternalStatsAnswer, _ANY, _USE,
              idempotent=True, methods=(
        Method("topics.partitioned_internal_stats"),
    ), routes=(
        Route("GET", f"{_PATH}/partitioned-internalStats", answer=PARTITIONED_INTERNAL_STATS,
              summary="Return the ledgers, cursors and leases of each partition of a partitioned topic."),
    )),
    AdminCall("grow_partitioned", pb.PartitionsRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.update_partitioned(topic: str, partitions: int) -> None",
            "Add partitions to a partitioned topic, up to this number. Its subscriptions get the new ones from their "
            "first message.",
        ),
    ), routes=(
        Route("POST", _PARTITIONS, body=Field("partitions"), needs_body=True, out_of_range_status=422, statuses={
            ErrorCode.NOT_FOUND: 409, ErrorCode.NOT_ALLOWED: 422, ErrorCode.INVALID_ARGUMENT: 406,
        }),
    )),
    AdminCall("delete_partitioned", pb.DeleteRequest, pb.Done, _ANY, _ADMIN, methods=(
        Method(
            "topics.delete_partitioned(topic: str, force: bool = False) -> None",
            "Delete a partitioned topic with all its partitions. One with producers or consumers is refused, unless by "
            "`force`.",
            fields={"name": "topic"},
        ),
    ), routes=(Route("DELETE", f"{_NAME}/partitions", query=_FORCE),)),
)
# fmt: on
