"""The handlers of GET_LAST_MESSAGE_ID and CONSUMER_STATS, which ask about an open consumer and its topic."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.server.pulsar.consumer import ConnectedConsumer
from magnetar_broker.server.pulsar.consumers import Consumers
from magnetar_broker.server.pulsar.replies import frame
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, SubscriptionType
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandConsumerStatsResponse,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    ServerError,
)

__all__ = ["get_consumer_stats", "get_last_message_id"]

_UINT64: Final = 2**64 - 1
# The protocol's names of subscription types.
_TYPES: Final = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
}


def get_last_message_id(session: ClientSession, consumers: Consumers, command: BaseCommand) -> None:
    """Handle GET_LAST_MESSAGE_ID."""
    request = command.get_last_message_id
    session.start_request(request.request_id, _answer_last_message_id(session, consumers, request))


async def _answer_last_message_id(
    session: ClientSession, consumers: Consumers, request: CommandGetLastMessageId
) -> None:
    connected = consumers.by_id.get(request.consumer_id)
    if connected is None or connected.topic is None or connected.consumer is None:
        raise BrokerError(
            ErrorCode.SERVICE_NOT_READY,
            f"consumer {request.consumer_id} is not open on this connection: retry once SUBSCRIBE is answered",
        )
    mark_delete = connected.consumer.subscription.cursor.mark_delete
    response = CommandGetLastMessageIdResponse(
        request_id=request.request_id,
        last_message_id=await _find_last(connected.topic),
        consumer_mark_delete_position=_message_id(mark_delete, connected.topic.name.partition_index),
    )
    answer = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, get_last_message_id_response=response)
    session.write(frame(answer))


async def _find_last(topic: Topic) -> MessageIdData:
    """Return the id of the topic's last readable message; an entry id of -1 if there is none.

    Lost entries are skipped, because no reader gets them.
    """
    log, partition = topic.log, topic.name.partition_index
    entry = await log.read_last_readable()
    if entry is None:
        return _message_id(Position(log.last.ledger_id, -1), partition)
    message_id = _message_id(entry.position, partition)
    if entry.batch_size:
        message_id.batch_index, message_id.batch_size = entry.batch_size - 1, entry.batch_size
    return message_id


def _message_id(position: Position, partition: int) -> MessageIdData:
    message_id = MessageIdData(ledgerId=position.ledger_id & _UINT64, entryId=position.entry_id & _UINT64)
    if partition >= 0:
        message_id.partition = partition
    return message_id


def get_consumer_stats(session: ClientSession, consumers: Consumers, command: BaseCommand) -> None:
    """Handle CONSUMER_STATS."""
    request = command.consumer_stats
    response = _make_stats(request.request_id, consumers.by_id.get(request.consumer_id))
    answer = BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE, consumer_stats_response=response)
    session.write(frame(answer))


def _make_stats(request_id: int, connected: ConnectedConsumer | None) -> CommandConsumerStatsResponse:
    """Return the statistics of a consumer. Rates of acknowledgements, redeliveries and expiry are not measured: 0."""
    consumer = None if connected is None else connected.consumer
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
        unacked_messages=consumer.capacity.unacked_messages,
        blocked_consumer_on_unacked_msgs=consumer.capacity.has_max_unacked,
        address=consumer.sink.address,
        connected_since=_format_time(consumer.connected_since_ms),
        type=_TYPES.get(subscription.type, "None"),
        msg_rate_expired=0.0,
        msg_backlog=subscription.cursor.count_unacknowledged(),
        message_ack_rate=0.0,
    )


def _format_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
