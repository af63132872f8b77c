"""Translation of SUBSCRIBE into the broker's own request."""

from __future__ import annotations

from typing import Any, Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.server.pulsar.message_ids import start_at, to_position
from magnetar_broker.server.pulsar.schemas import from_pulsar
from magnetar_broker.topics.dispatch.subscription_types import DISPATCH_RULES
from magnetar_protos.broker_pb2 import ErrorCode, KeySharedOptions, OpenConsumer, SlotRange, StartAt, SubscriptionType
from magnetar_protos.pulsar_pb2 import CommandSubscribe, KeySharedMeta

__all__ = ["SINGLE_ACTIVE", "make_open_consumer"]

# Types of subscriptions of which one consumer at a time receives messages.
SINGLE_ACTIVE: Final = tuple(one for one, rule in DISPATCH_RULES.items() if rule.delivers_in_order)
# The types of Pulsar's protocol, by their numbers in it. Its clients can't open others.
_TYPES: Final = {
    0: SubscriptionType.EXCLUSIVE,
    1: SubscriptionType.SHARED,
    2: SubscriptionType.FAILOVER,
    3: SubscriptionType.KEY_SHARED,
}
_MAX_PRIORITY: Final = 2**31 - 1


def make_open_consumer(request: CommandSubscribe, now_ms: int) -> OpenConsumer:
    """Raises `BrokerError`."""
    subscription_type = _TYPES.get(request.sub_type)
    if subscription_type is None:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"subscription type {request.sub_type} is not supported: use Exclusive, Shared, Failover or Key_Shared",
        )
    if request.read_compacted and subscription_type not in SINGLE_ACTIVE:
        raise BrokerError(
            ErrorCode.NOT_ALLOWED,
            "read_compacted is allowed for Exclusive and Failover subscriptions only: subscribe without it",
        )
    return OpenConsumer(
        consumer_id=request.consumer_id,
        topic=request.topic,
        subscription=request.subscription,
        type=subscription_type,
        consumer_name=request.consumer_name,
        priority_level=min(max(request.priority_level, 0), _MAX_PRIORITY),
        durable=request.durable,
        start=_start(request, now_ms),
        properties={one.key: one.value for one in request.metadata},
        subscription_properties={one.key: one.value for one in request.subscription_properties},
        # Topics are never compacted, so a client that requests it gets all messages.
        read_compacted=False,
        schema=from_pulsar(request.schema if request.HasField("schema") else None),
        key_shared=_key_shared(request.key_shared_meta) if subscription_type == SubscriptionType.KEY_SHARED else None,
    )


def _key_shared(meta: KeySharedMeta) -> KeySharedOptions:
    """Translate how a consumer wants to share the slots. The numbers are signed in Pulsar's protocol."""
    numbers = [meta.key_shared_mode, *(number for one in meta.hash_ranges for number in (one.start, one.end))]
    if min(numbers) < 0:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, f"Key_Shared has no mode or slot {min(numbers)}: use 0 or a larger number"
        )
    return KeySharedOptions(
        mode=meta.key_shared_mode,  # type: ignore[arg-type]  # an unknown one is refused later
        ranges=[SlotRange(first=one.start, last=one.end) for one in meta.hash_ranges],
        allow_out_of_order_delivery=meta.allow_out_of_order_delivery,
    )


def _start(request: CommandSubscribe, now_ms: int) -> StartAt:
    """Return where the subscription begins if it is created. Clients skip the messages of the entry before their id."""
    if request.start_message_rollback_duration_sec:
        return StartAt(time_ms=max(0, now_ms - request.start_message_rollback_duration_sec * 1000))
    if not request.durable and request.HasField("start_message_id"):
        position = to_position(request.start_message_id)
        start: Any = start_at(request.start_message_id)
        start.message_id.batch_index = -1
        return StartAt(earliest=True) if position < Position(0, 0) else start
    return StartAt(earliest=True) if request.initial_position == 1 else StartAt(latest=True)
