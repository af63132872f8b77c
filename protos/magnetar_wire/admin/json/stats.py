"""Statistics of topics as JSON, with the names of Pulsar's TopicStats, SubscriptionStats, ConsumerStats and
PublisherStats.

`TOPIC_STATS` is a topic's, `PARTITIONED_STATS` a partitioned topic's. A broker writes them, and the Python admin reads
them from brokers of Magnetar and of Pulsar.

- What Magnetar knows and Pulsar doesn't has names of its own: `blockedBy`, `lostEntries` …
- What Magnetar does not have at all (transactions, compaction, replication …) is written as Pulsar does for a topic
  without it: the `constants`.
- What Magnetar can't know is left out.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.message import Message

from magnetar_protos.broker_pb2 import SlotRange
from magnetar_wire.admin.json.parts import Converted, Field, Object, Part, Schema
from magnetar_wire.admin.json.values import check_text

__all__ = ["PARTITIONED_STATS", "REASON", "SUBSCRIPTION_STATS", "TOPIC_STATS"]


class _Count(Field):
    """A number that is not negative. Pulsar writes -1, or NaN as a text, for what it does not know."""

    def fill(self, message: Message, value: Any, where: str) -> None:
        if isinstance(value, str) or (isinstance(value, int | float) and value < 0):
            value = 0
        super().fill(message, value, where)


class _OwnerBroker(Part):
    """The owner's name in Pulsar's REST API: the address of its HTTP server, or its id if it has none."""

    fields = frozenset(["owner_broker", "owner_http_address"])

    def to_json(self, message: Message) -> Any:
        stats: Any = message
        return stats.owner_http_address or stats.owner_broker or None

    def fill(self, message: Message, value: Any, where: str) -> None:
        stats: Any = message
        stats.owner_broker = check_text(value, where)

    def schema(self, descriptor: Any) -> Schema:
        return _TEXT


class _Computed(Part):
    """A value that follows from other fields, and is not read."""

    fields: frozenset[str] = frozenset()

    def __init__(self, compute: Callable[[Any], Any], schema: Schema) -> None:
        self._compute = compute
        self._schema = schema

    def to_json(self, message: Message) -> Any:
        return self._compute(message)

    def fill(self, message: Message, value: Any, where: str) -> None:
        return

    def schema(self, descriptor: Any) -> Schema:
        return self._schema


class _Sums(Part):
    """The statistics of a partitioned topic: those of the field `stats`, and more properties."""

    fields = frozenset(["stats", "partitions"])

    def __init__(self, stats: Part, more: Object) -> None:
        self._stats = stats
        self._more = more

    def to_json(self, message: Any) -> Any:
        return self._stats.to_json(message.stats) | self._more.to_json(message)

    def fill(self, message: Any, value: Any, where: str) -> None:
        message.stats.SetInParent()
        self._stats.fill(message.stats, value, where)
        self._more.fill(message, value, where)

    def schema(self, descriptor: Any) -> Schema:
        made = self._stats.schema(descriptor.fields_by_name["stats"].message_type)
        more = self._more.schema(descriptor)
        return made | {"title": "PartitionedTopicStats", "properties": made["properties"] | more["properties"]}


# The year 9999 ends then: there are no later dates in JSON.
_LAST_SECOND: Final = 253_402_300_799
_NUMBER: Final[Schema] = {"type": "number"}
_WHOLE: Final[Schema] = {"type": "integer"}
_TEXT: Final[Schema] = {"type": "string"}
_TYPES: Final = {"EXCLUSIVE": "Exclusive", "SHARED": "Shared", "FAILOVER": "Failover", "KEY_SHARED": "Key_Shared"}
_TYPES_BY_NAME: Final = {name: kind for kind, name in _TYPES.items()}


# An idle topic has the same times in each answer.
@functools.lru_cache(maxsize=1024)
def _format_time(time_ms: int) -> str:
    seconds = min(max(time_ms / 1000, 0), _LAST_SECOND)
    at = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parse_time(text: Any) -> int:
    return max(0, round(datetime.datetime.fromisoformat(text).timestamp() * 1000))


_CONNECTED_SINCE: Final = Converted(
    "connected_since_ms",
    lambda time_ms: _format_time(time_ms) if time_ms else None,
    _parse_time,
    {"type": "string", "format": "date-time"},
)
# Java puts a slash in front of the address of a socket.
_ADDRESS: Final = Converted(
    "address",
    lambda address: f"/{address}" if address else None,
    lambda text: str(text).removeprefix("/"),
    {"type": "string"},
)
_TYPE: Final = Converted(
    "type", lambda kind: _TYPES.get(kind, "None"), lambda text: _TYPES_BY_NAME.get(text, ""), {"type": "string"}
)


def _average(traffic: str) -> Part:
    def compute(stats: Any) -> float:
        rates = getattr(stats, traffic)
        return rates.bytes_per_s / rates.messages_per_s if rates.messages_per_s else 0.0

    return _Computed(compute, _NUMBER)


def _rates(field: str, way: str) -> Mapping[str, Part]:
    return {
        f"msgRate{way}": _Count(f"{field}.messages_per_s"),
        f"msgThroughput{way}": _Count(f"{field}.bytes_per_s"),
    }


def _counters(field: str, way: str) -> Mapping[str, Part]:
    return {
        f"bytes{way}Counter": _Count(f"{field}.bytes"),
        f"msg{way}Counter": _Count(f"{field}.messages"),
        f"entries{way}Counter": _Count(f"{field}.entries"),
    }


_PUBLISHER: Final = Object(
    {
        **_rates("received", "In"),
        "averageMsgSize": _average("received"),
        "chunkedMessageRate": _Count("chunks_per_s"),
        "producerId": _Count("producer_id"),
        "supportsPartialProducer": "partial",
        # Producers that are merged have none.
        "producerName": Field("producer_name", absent_if_empty=True),
        "address": _ADDRESS,
        "connectedSince": _CONNECTED_SINCE,
        "clientVersion": "client_version",
        "metadata": "properties",
        "accessMode": Field("access_mode", absent_if_empty=True),
        **_counters("received", "In"),
    },
)

_DRAINING: Final = {
    "drainingHashesCount": _Count("draining_slots"),
    "drainingHashesClearedTotal": _Count("drained_slots"),
    "drainingHashesUnackedMessages": _Count("draining_entries"),
}
_DRAINING_SLOT: Final = Object({"hash": "slot", "unackMsgs": _Count("entries"), "blockedAttempts": _Count("blocked")})


def _parse_range(pair: Any) -> SlotRange:
    first, last = pair
    return SlotRange(first=first, last=last)


# Absent for other types of subscriptions.
_KEY_RANGES: Final = Converted(
    "key_ranges",
    lambda ranges: [[one.first, one.last] for one in ranges] or None,
    lambda pairs: [_parse_range(pair) for pair in pairs or ()],
    {"type": "array", "items": {"type": "array", "items": _WHOLE}},
)
_KEY_RANGE_TEXTS: Final = _Computed(
    lambda stats: [f"[{one.first}, {one.last}]" for one in stats.key_ranges] or None,
    {"type": "array", "items": _TEXT},
)

REASON: Final = Object(
    {
        "code": "code",
        "text": "text",
        "action": "action",
        "facts": "facts",
        "normal": "normal",
        "partitions": "partitions",
    },
)

_CONSUMER: Final = Object(
    {
        **_rates("delivered", "Out"),
        **_counters("delivered", "Out"),
        "msgRateRedeliver": _Count("redelivered_per_s"),
        "messageAckRate": _Count("acknowledged_per_s"),
        "chunkedMessageRate": _Count("chunks_per_s"),
        "consumerName": "consumer_name",
        "availablePermits": "permits",
        "unackedMessages": _Count("unacknowledged_messages"),
        "avgMessagesPerEntry": _Computed(
            lambda stats: round(stats.delivered.messages / max(1, stats.delivered.entries)), _WHOLE
        ),
        "blockedConsumerOnUnackedMsgs": "blocked_on_unacknowledged",
        "lastAckedTime": _Computed(lambda stats: _format_time(stats.last_acknowledged_ms), _TEXT),
        "lastConsumedTime": _Computed(lambda stats: _format_time(stats.last_delivered_ms), _TEXT),
        "lastConsumedFlowTimestamp": _Count("last_flow_ms"),
        "lastAckedTimestamp": _Count("last_acknowledged_ms"),
        "lastConsumedTimestamp": _Count("last_delivered_ms"),
        "address": _ADDRESS,
        "connectedSince": _CONNECTED_SINCE,
        "clientVersion": "client_version",
        "metadata": "properties",
        "priorityLevel": _Count("priority_level"),
        "blockedBy": "blocked_by",
        "reason": Field("reason", of=REASON),
        "redeliveredMessages": _Count("redelivered_messages"),
        "acknowledgedEntries": _Count("acknowledged_entries"),
        **_DRAINING,
        "drainingHashes": Field("draining", of=_DRAINING_SLOT, absent_if_empty=True),
        "keyHashRanges": _KEY_RANGE_TEXTS,
        "keyHashRangeArrays": _KEY_RANGES,
    },
)

SUBSCRIPTION_STATS: Final = Object(
    {
        **_rates("delivered", "Out"),
        **_counters("delivered", "Out"),
        "msgRateRedeliver": _Count("redelivered_per_s"),
        "messageAckRate": _Count("acknowledged_per_s"),
        "chunkedMessageRate": _Count("chunks_per_s"),
        "msgBacklog": _Count("backlog_entries"),
        "backlogSize": "backlog_bytes",
        "earliestMsgPublishTimeInBacklog": _Count("backlog_since_ms"),
        # There are no delayed messages: they are refused.
        "msgBacklogNoDelayed": _Computed(lambda stats: stats.backlog_entries, _WHOLE),
        "blockedSubscriptionOnUnackedMsgs": "blocked_on_unacknowledged",
        "msgInReplay": _Count("to_be_redelivered"),
        "unackedMessages": _Count("unacknowledged_messages"),
        "type": _TYPE,
        "activeConsumerName": Field("active_consumer", absent_if_empty=True),
        "msgRateExpired": _Count("expired_per_s"),
        "totalMsgExpired": _Count("expired_entries"),
        "lastExpireTimestamp": _Count("last_expired_ms"),
        "lastConsumedFlowTimestamp": _Count("last_flow_ms"),
        "lastConsumedTimestamp": _Count("last_delivered_ms"),
        "lastAckedTimestamp": _Count("last_acknowledged_ms"),
        "lastMarkDeleteAdvancedTimestamp": _Count("last_advanced_ms"),
        "consumers": Field("consumers", of=_CONSUMER),
        "isDurable": "durable",
        "durable": "durable",
        "nonContiguousDeletedMessagesRanges": _Count("acknowledged_ranges"),
        "subscriptionProperties": "properties",
        "backlogMessages": _Count("backlog_messages"),
        "blockedBy": "blocked_by",
        "reasons": Field("reasons", of=REASON),
        "keySharedMode": Field("key_shared_mode", absent_if_empty=True),
        "allowOutOfOrderDelivery": "allow_out_of_order_delivery",
        **_DRAINING,
        "mixedBatches": _Count("mixed_batches"),
        "damaged": "damaged",
        "redeliveredMessages": _Count("redelivered_messages"),
        "acknowledgedEntries": _Count("acknowledged_entries"),
        "dispatchThrottledMsgEventsBySubscriptionLimit": _Count("throttled_messages_by_subscription"),
        "dispatchThrottledBytesEventsBySubscriptionLimit": _Count("throttled_bytes_by_subscription"),
        "dispatchThrottledMsgEventsByTopicLimit": _Count("throttled_messages_by_topic"),
        "dispatchThrottledBytesEventsByTopicLimit": _Count("throttled_bytes_by_topic"),
        "dispatchThrottledMsgEventsByBrokerLimit": _Count("throttled_messages_by_broker"),
        "dispatchThrottledBytesEventsByBrokerLimit": _Count("throttled_bytes_by_broker"),
        "msgDropRate": _Count("dropped_per_s"),
        "droppedMessages": _Count("dropped_messages"),
    },
    constants={
        "msgDelayed": 0,
        "isReplicated": False,
        "replicated": False,
        "consumersAfterMarkDeletePosition": {},
        "delayedMessageIndexSizeInBytes": 0,
        "filterProcessedMsgCount": 0,
        "filterAcceptedMsgCount": 0,
        "filterRejectedMsgCount": 0,
        "filterRescheduledMsgCount": 0,
    },
)

_LOST: Final = Object({"ledgerId": "ledger_id", "entryId": "entry_id", "reason": "reason"})

TOPIC_STATS: Final = Object(
    {
        **_rates("received", "In"),
        **_rates("delivered", "Out"),
        **_counters("received", "In"),
        **_counters("delivered", "Out"),
        "averageMsgSize": _average("received"),
        "msgChunkPublished": _Computed(lambda stats: stats.chunks > 0, {"type": "boolean"}),
        "storageSize": _Count("storage_bytes"),
        "backlogSize": "backlog_bytes",
        "oldestBacklogMessageAgeSeconds": "oldest_backlog_age_s",
        "oldestBacklogMessageSubscriptionName": Field("oldest_backlog_subscription", absent_if_empty=True),
        "backlogQuotaLimitSize": "backlog_quota_bytes",
        "backlogQuotaLimitTime": "backlog_quota_seconds",
        "backlogEvictionsBySize": _Count("evictions_by_size"),
        "backlogEvictionsByTime": _Count("evictions_by_age"),
        "waitingPublishers": _Count("waiting_producers"),
        "earliestMsgPublishTimeInBacklogs": _Count("oldest_backlog_ms"),
        "publishRateLimitedTimes": _Count("publish_limited_times"),
        "publishers": Field("producers", of=_PUBLISHER),
        "subscriptions": Field("subscriptions", of=SUBSCRIPTION_STATS, key="subscription"),
        "nonContiguousDeletedMessagesRanges": _Count("acknowledged_ranges"),
        "ownerBroker": _OwnerBroker(),
        "lastPublishTimeStamp": _Count("last_publish_ms"),
        "topic": "topic",
        "incarnation": "incarnation",
        "chunks": _Count("chunks"),
        "refusedEntries": _Count("refused_entries"),
        "failedEntries": _Count("failed_entries"),
        "storedEntries": _Count("stored_entries"),
        "messagesEver": _Count("messages_ever"),
        "pendingBytes": _Count("pending_bytes"),
        "waitingFor": "waiting_for",
        "deduplicationStatus": "deduplication_status",
        "topicEpoch": "topic_epoch",
        "notInEffect": "not_in_effect",
        "lostEntries": _Count("lost_entries"),
        "lost": Field("lost", of=_LOST),
        "msgDropRate": _Count("dropped_per_s"),
    },
    constants={
        "systemTopicBytesInCounter": 0,
        "bytesOutInternalCounter": 0,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "ongoingTxnCount": 0,
        "abortedTxnCount": 0,
        "committedTxnCount": 0,
        "replication": {},
        "delayedMessageIndexSizeInBytes": 0,
        "compaction": {
            "lastCompactionRemovedEventCount": 0,
            "lastCompactionSucceedTimestamp": 0,
            "lastCompactionFailedTimestamp": 0,
            "lastCompactionDurationTimeInMills": 0,
        },
    },
)

_METADATA: Final = Object({"partitions": "stats.partitions"}, constants={"deleted": False})

PARTITIONED_STATS: Final = _Sums(
    TOPIC_STATS, Object({"metadata": _METADATA, "partitions": Field("partitions", of=TOPIC_STATS, key="topic")})
)
