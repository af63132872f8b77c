"""CONSUMER_STATS: what the broker knows of a consumer, and of its subscription, for the client that has it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from magnetar_broker.server.pulsar.consumer import ConnectedConsumer
from magnetar_broker.topic.consumer import Consumer
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_protos.pulsar_pb2 import CommandConsumerStatsResponse, ServerError

__all__ = ["consumer_stats"]

# As libraries know them.
_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
}


def consumer_stats(request_id: int, connected: ConnectedConsumer | None) -> CommandConsumerStatsResponse:
    """Rates of acknowledgements, redeliveries and expiry are not measured: they stay 0."""
    consumer = None if connected is None else connected.opened_as
    if connected is None or consumer is None:
        return CommandConsumerStatsResponse(
            request_id=request_id,
            error_code=ServerError.CONSUMER_NOT_FOUND,
            error_message="the consumer is not open on this connection",
        )
    subscription, delivered = consumer.subscription, consumer.counters.delivered
    return CommandConsumerStatsResponse(
        request_id=request_id,
        msg_rate_out=delivered.messages_per_s,
        msg_throughput_out=delivered.bytes_per_s,
        msg_rate_redeliver=0.0,
        consumer_name=consumer.name,
        available_permits=max(0, connected.permits),
        unacked_messages=consumer.state.held.total,
        blocked_consumer_on_unacked_msgs=_is_blocked(consumer),
        address=consumer.sink.address,
        connected_since=_shown(consumer.connected_since_ms),
        type=_TYPES.get(subscription.type, "None"),
        msg_rate_expired=0.0,
        msg_backlog=subscription.cursor.open_entries(),
        message_ack_rate=0.0,
    )


def _is_blocked(consumer: Consumer) -> bool:
    dispatch = consumer.subscription.dispatch
    return dispatch is not None and 0 < dispatch.limits.max_unacked_per_consumer <= consumer.state.held.total


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
