"""Rows of the table of admin calls: subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_wire.admin.call import AdminCall, Method, Partitions, Role, Scope
from magnetar_wire.admin.http.message_answer import MessageEntryAnswer
from magnetar_wire.admin.http.raw_answer import CountAnswer
from magnetar_wire.admin.http.route import Route
from magnetar_wire.admin.json.explanations import EXPLANATION
from magnetar_wire.admin.json.parts import Converted, Field, Object, Part
from magnetar_wire.admin.json.positions import PositionPart, StartPart

__all__ = ["SUBSCRIPTIONS"]

_ANY: Final = Scope.ANY_BROKER
_TOPIC: Final = Scope.TOPIC
_EACH: Final = Partitions.EACH
_CONSUME: Final = Role.CONSUME

_TOPIC_PATH: Final = "/admin/v2/{topic}"
_PATH: Final = f"{_TOPIC_PATH}/subscription/{{subscription=subName}}"
_START: Final = StartPart()


def _entry_id(name: str) -> Part:
    return Converted(name, lambda at: f"{at.ledger_id}:{at.entry_id}", _parse_entry_id, {"type": "string"})


def _parse_entry_id(text: str) -> EntryPosition:
    ledger_id, entry_id = text.split(":")[:2]
    return EntryPosition(ledger_id=int(ledger_id), entry_id=int(entry_id))


# The number of entries, which Pulsar's brokers do not report.
_ENTRIES: Final = CountAnswer("entries", "X-Magnetar-Entries", "The number of entries that were acknowledged.")
# A position that another topic had, and what is not allowed on a partitioned topic without naming the partition.
_AT_POSITION: Final[Mapping[int, int]] = {ErrorCode.INCARNATION_CHANGED: 412, ErrorCode.NOT_ALLOWED: 405}
# Pulsar's AnalyzeSubscriptionBacklogResult. There are no filters of entries, so all are accepted.
_ANALYSIS: Final = Object(
    {
        "entries": "entries",
        "messages": "messages",
        "filterAcceptedEntries": Converted("entries", int),
        "filterAcceptedMessages": Converted("messages", int),
        "aborted": "aborted",
        "lostEntries": "lost_entries",
        "firstMessageId": _entry_id("first"),
        "lastMessageId": _entry_id("last"),
    },
    constants={
        "filterRejectedEntries": 0,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterRescheduledMessages": 0,
    },
)

# fmt: off
SUBSCRIPTIONS: Final = (
    AdminCall("subscriptions", pb.NamesRequest, pb.NamesAnswer, _ANY, _CONSUME, idempotent=True, methods=(
        Method(
            "subscriptions.list(topic: str) -> list[str]",
            "List a topic's durable subscriptions.",
            fields={"within": "topic"},
        ),
    ), routes=(Route("GET", "/admin/v2/{within:topic}/subscriptions", answer=Field("names")),)),
    AdminCall("create_subscription", pb.SubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method("subscriptions.create"),
    ), routes=(
        Route("PUT", _PATH, body=StartPart(properties=True), query={"replicated": "replicated"}, statuses=_AT_POSITION,
              summary="Create a subscription."),
    )),
    AdminCall("delete_subscription", pb.DeleteSubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH,
              methods=(
        Method(
            "subscriptions.delete(topic: str, subscription: str, force: bool = False) -> None",
            "Delete a subscription. One with consumers is refused, unless by `force`.",
        ),
    ), routes=(Route("DELETE", _PATH, query={"force": "force"}),)),
    AdminCall("reset_subscription", pb.SubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method("subscriptions.reset"),
    ), routes=(
        Route("POST", f"{_PATH}/resetcursor/{{start.time_ms=timestamp}}",
              summary="Move a subscription's cursor to a time."),
        Route("POST", f"{_PATH}/resetcursor", body=_START, needs_body=True, statuses=_AT_POSITION,
              summary="Move a subscription's cursor to a message."),
    )),
    AdminCall("skip", pb.SkipRequest, pb.SkippedAnswer, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.skip(topic: str, subscription: str, entries: int) -> int",
            "Acknowledge the oldest entries of the backlog, and return their number: fewer if the backlog is shorter."
            "\n\nA batch is one entry.",
            result="entries",
        ),
        Method(
            "subscriptions.skip_all(topic: str, subscription: str) -> int",
            "Acknowledge the whole backlog, and return its number of entries.",
            result="entries",
            fields={"all": "True"},
            aliases=("clear_backlog",),
        ),
    ), routes=(
        Route("POST", f"{_PATH}/skip/{{entries=numMessages}}", answer=_ENTRIES, statuses={ErrorCode.NOT_ALLOWED: 405}),
        Route("POST", f"{_PATH}/skip_all", fixed={"all": True}, answer=_ENTRIES),
    )),
    AdminCall("expire", pb.ExpireRequest, pb.SkippedAnswer, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.expire(topic: str, subscription: str, older_than_s: int) -> int",
            "Acknowledge the entries that a broker received longer ago than that, and return their number.",
            result="entries",
        ),
        Method(
            "subscriptions.expire_up_to(topic: str, subscription: str, message: MessageId, excluded: bool = False) "
            "-> int",
            "Acknowledge everything up to a message, and return the number of entries. The message itself is "
            "acknowledged, too, unless it is `excluded`. On a partitioned topic, only the message's partition changes.",
            result="entries",
            fields={"first_left": "next_message(message, excluded)", "partition": "partition_of(message)"},
        ),
    ), routes=(
        Route("POST", f"{_PATH}/expireMessages/{{older_than_s=expireTimeInSeconds}}", answer=_ENTRIES),
        Route("POST", f"{_PATH}/expireMessages", body=PositionPart("first_left"), needs_body=True, answer=_ENTRIES,
              statuses={**_AT_POSITION, ErrorCode.INVALID_ARGUMENT: 409}),
    )),
    AdminCall("expire_all", pb.ExpireRequest, pb.SkippedAnswer, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.expire_all(topic: str, older_than_s: int) -> int",
            "Acknowledge the entries that a broker received longer ago than that, on all durable subscriptions of the "
            "topic, and return their number.",
            result="entries",
        ),
    ), routes=(
        Route("POST", f"{_TOPIC_PATH}/all_subscription/expireMessages/{{older_than_s=expireTimeInSeconds}}",
              answer=_ENTRIES),
    )),
    AdminCall("subscription_properties", pb.SubscriptionRequest, pb.SubscriptionPropertiesAnswer, _TOPIC, _CONSUME,
              partitions=_EACH, idempotent=True, methods=(
        Method(
            "subscriptions.get_properties(topic: str, subscription: str) -> dict[str, str]",
            "Return a subscription's properties.",
            result="properties",
        ),
    ), routes=(Route("GET", f"{_PATH}/properties", answer=Field("properties")),)),
    AdminCall("set_subscription_properties", pb.SubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH,
              repeated_at_owner=True, methods=(
        Method(
            "subscriptions.set_properties(topic: str, subscription: str, properties: Mapping[str, str]) -> None",
            "Replace a subscription's properties.",
        ),
    ), routes=(Route("PUT", f"{_PATH}/properties", body=Field("properties"), needs_body=True),)),
    AdminCall("analyze_backlog", pb.SubscriptionRequest, pb.AnalyzeBacklogAnswer, _TOPIC, _CONSUME, partitions=_EACH,
              idempotent=True, methods=(
        Method(
            "subscriptions.analyze_backlog(topic: str, subscription: str, start: StartPoint = MessageId.earliest) "
            "-> BacklogAnalysis",
            "Count the entries and messages that a subscription has not acknowledged, by reading them. `start`: only "
            "those from there on.",
            fields={"start": "start", "partition": "partition_of(start)"},
        ),
    ), routes=(Route("POST", f"{_PATH}/analyzeBacklog", body=_START, answer=_ANALYSIS, statuses=_AT_POSITION),)),
    AdminCall("peek", pb.PeekRequest, pb.PeekAnswer, _TOPIC, _CONSUME, partitions=Partitions.SINGLE, idempotent=True,
              methods=(Method("subscriptions.peek"),), routes=(
        Route("GET", f"{_PATH}/position/{{first=messagePosition}}", fixed={"entries": 1},
              answer=MessageEntryAnswer("entries"), statuses={ErrorCode.NOT_ALLOWED: 405},
              summary="Return the messages of an entry of the backlog, by its number: the oldest one is 1."),
    )),
    AdminCall("explain_subscription", pb.ExplainRequest, pb.SubscriptionExplanationAnswer, _ANY, _CONSUME,
              idempotent=True, methods=(
        Method(
            "subscriptions.explain(topic: str, subscription: str) -> SubscriptionExplanation",
            "Return why a subscription delivers nothing, or no more, and what to do about it. The first reason is the "
            "answer.\n\nAlso if its topic can't be loaded, or no broker serves it.",
            result="explanation",
        ),
    ), routes=(Route("GET", f"{_PATH}/explain", answer=Field("explanation", of=EXPLANATION)),)),
    # At the owner of a topic or partition.
    AdminCall("explain_part", pb.ExplainRequest, pb.SubscriptionExplanationAnswer, _TOPIC, Role.BROKER,
              idempotent=True),
    # The subscriptions that a new partition gets, and the names that `subscriptions` lists.
    AdminCall("durable_subscriptions", pb.TopicRequest, pb.DurableSubscriptionsAnswer, _TOPIC, Role.BROKER,
              idempotent=True),
)
# fmt: on
