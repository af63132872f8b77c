"""A SUBSCRIBE, in the words of the topic's subscriptions."""

from __future__ import annotations

from typing import Any, Final

from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.message_ids import place_of, position_of
from magnetar_broker.server.pulsar.schemas import check_schema
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer, StartAt, SubscriptionType
from magnetar_protos.pulsar_pb2 import CommandSubscribe

__all__ = ["ONE_AT_A_TIME", "open_consumer_of"]

ONE_AT_A_TIME: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
_MAX_PRIORITY: Final = 2**31 - 1


def open_consumer_of(asked: CommandSubscribe, now_ms: int) -> OpenConsumer:
    """Raises `BrokerError`."""
    check_schema(asked.schema if asked.HasField("schema") else None)
    if asked.sub_type not in SubscriptionType.values():
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"there is no subscription type {asked.sub_type}")
    if asked.read_compacted and asked.sub_type not in ONE_AT_A_TIME:
        raise BrokerError(
            ErrorCode.NOT_ALLOWED,
            "read_compacted is for Exclusive and Failover subscriptions: others read all there is",
        )
    return OpenConsumer(
        consumer_id=asked.consumer_id,
        topic=asked.topic,
        subscription=asked.subscription,
        type=SubscriptionType.Name(SubscriptionType.ValueType(asked.sub_type)),
        consumer_name=asked.consumer_name,
        priority_level=min(max(asked.priority_level, 0), _MAX_PRIORITY),
        durable=asked.durable,
        start=_start(asked, now_ms),
        properties={one.key: one.value for one in asked.metadata},
        subscription_properties={one.key: one.value for one in asked.subscription_properties},
        # Nothing is compacted yet, so what a client gets that asks for what is left of that is everything.
        read_compacted=False,
    )


def _start(asked: CommandSubscribe, now_ms: int) -> StartAt:
    """Where the subscription begins if this makes it. Clients pass over what is before their id in its entry."""
    if asked.start_message_rollback_duration_sec:
        return StartAt(time_ms=max(0, now_ms - asked.start_message_rollback_duration_sec * 1000))
    if not asked.durable and asked.HasField("start_message_id"):
        position = position_of(asked.start_message_id)
        start: Any = place_of(asked.start_message_id)
        start.place.batch_index = -1
        return StartAt(earliest=True) if position < Position(0, 0) else start
    return StartAt(earliest=True) if asked.initial_position == 1 else StartAt(latest=True)
