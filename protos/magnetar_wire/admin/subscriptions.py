"""Rows of the table of admin calls: subscriptions."""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.admin.call import AdminCall, Method, Partitions, Role, Scope

__all__ = ["SUBSCRIPTIONS"]

_ANY: Final = Scope.ANY_BROKER
_TOPIC: Final = Scope.TOPIC
_EACH: Final = Partitions.EACH
_CONSUME: Final = Role.CONSUME

# fmt: off
SUBSCRIPTIONS: Final = (
    AdminCall("subscriptions", pb.NamesRequest, pb.NamesAnswer, _ANY, _CONSUME, idempotent=True, methods=(
        Method(
            "subscriptions.list(topic: str) -> list[str]",
            "List a topic's durable subscriptions.",
            fields={"within": "topic"},
        ),
    )),
    AdminCall("create_subscription", pb.SubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.create(topic: str, subscription: str, start: StartPoint = MessageId.latest, "
            "properties: Mapping[str, str] | None = None) -> None",
            "Create a subscription. Messages from `start` on are retained until it acknowledges them.",
        ),
    )),
    AdminCall("delete_subscription", pb.DeleteSubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH,
              methods=(
        Method(
            "subscriptions.delete(topic: str, subscription: str, force: bool = False) -> None",
            "Delete a subscription. One with consumers is refused, unless by `force`.",
        ),
    )),
    AdminCall("reset_subscription", pb.SubscriptionRequest, pb.Done, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.reset(topic: str, subscription: str, to: StartPoint) -> None",
            "Move a subscription's cursor back or forth. If `to` is a message's id, that message is the next one.",
            fields={"start": "to"},
        ),
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
    )),
    AdminCall("expire", pb.ExpireRequest, pb.SkippedAnswer, _TOPIC, _CONSUME, partitions=_EACH, methods=(
        Method(
            "subscriptions.expire(topic: str, subscription: str, older_than_s: int) -> int",
            "Acknowledge the entries that a broker received longer ago than that, and return their number.",
            result="entries",
        ),
    )),
    AdminCall("peek", pb.PeekRequest, pb.PeekAnswer, _TOPIC, _CONSUME, partitions=Partitions.SINGLE, idempotent=True,
              methods=(Method("subscriptions.peek"),)),
    # The subscriptions that a new partition gets, and the names that `subscriptions` lists.
    AdminCall("durable_subscriptions", pb.TopicRequest, pb.DurableSubscriptionsAnswer, _TOPIC, Role.BROKER,
              idempotent=True),
)
# fmt: on
