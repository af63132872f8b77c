"""What a client asks to find its way: who serves a topic, how many partitions it has, what its last message is; and
what the broker knows of a consumer.

LOOKUP is always answered with the owner's address (CONNECT): nobody is sent from one broker to the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.interface import Home
from magnetar_broker.server.pulsar.consumer_stats import consumer_stats
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.replies import OWN_ERROR, frame, told_text
from magnetar_broker.server.pulsar.schema_commands import schema_commands
from magnetar_broker.server.pulsar.topic_lists import TopicListsForClients
from magnetar_broker.server.pulsar.transactions import transaction_commands
from magnetar_broker.topic.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetLastMessageId,
    CommandGetLastMessageIdResponse,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["FindingForClients"]

_log = logging.getLogger(__name__)
_UINT64: Final = 2**64 - 1


class FindingForClients:
    """Of one connection."""

    def __init__(self, connection: PulsarConnection) -> None:
        self._connection = connection
        self._topic_lists = TopicListsForClients(connection)
        self.commands: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.LOOKUP: self._lookup,
            BaseCommand.PARTITIONED_METADATA: self._partitions,
            BaseCommand.GET_LAST_MESSAGE_ID: self._last_message_id,
            BaseCommand.CONSUMER_STATS: self._consumer_stats,
            **self._topic_lists.commands,
            **schema_commands(connection),
            **transaction_commands(connection),
        }

    def close(self) -> None:
        """The connection has ended."""
        self._topic_lists.close()

    def _lookup(self, command: BaseCommand) -> None:
        self._connection.spawn(self._answer_lookup(command.lookup_topic))

    async def _answer_lookup(self, asked: CommandLookupTopic) -> None:
        connection = self._connection
        told = CommandLookupTopicResponse(request_id=asked.request_id)
        counters = connection.door.counters
        counters.lookups += 1
        try:
            serving = connection.door.serving()
            with serving.finding.counted():
                home = await serving.ownership.home(TopicName.parse(asked.topic))
            counters.lookups_elsewhere += not home.here
            told.broker_service_url = f"pulsar://{self._reached_at(home, asked.advertised_listener_name)}"
            told.response, told.authoritative = CommandLookupTopicResponse.CONNECT, True
        except Exception as error:  # noqa: BLE001 (the client waits for an answer)
            counters.lookups_failed += 1
            told.response = CommandLookupTopicResponse.FAILED
            told.error, told.message = _said(error)
        connection.write(frame(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_topic_response=told)))

    def _reached_at(self, home: Home, named: str) -> str:
        connection = self._connection
        if home.here and not named and connection.door.tells_where_they_came and connection.came_to:
            return connection.came_to
        return home.advertised.pulsar_at(named or connection.listening.listener_name)

    def _partitions(self, command: BaseCommand) -> None:
        self._connection.spawn(self._answer_partitions(command.partition_metadata))

    async def _answer_partitions(self, asked: CommandPartitionedTopicMetadata) -> None:
        told = CommandPartitionedTopicMetadataResponse(request_id=asked.request_id)
        try:
            serving = self._connection.door.serving()
            with serving.finding.counted():
                name = TopicName.parse(asked.topic)
                told.partitions = await serving.catalog.partitions(name, asked.metadata_auto_creation_enabled)
            told.response = CommandPartitionedTopicMetadataResponse.SUCCESS
        except Exception as error:  # noqa: BLE001 (the client waits for an answer)
            told.response = CommandPartitionedTopicMetadataResponse.FAILED
            told.error, told.message = _said(error)
        answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partition_metadata_response=told)
        self._connection.write(frame(answer))

    def _consumer_stats(self, command: BaseCommand) -> None:
        asked = command.consumer_stats
        told = consumer_stats(asked.request_id, self._connection.consumers.get(asked.consumer_id))
        self._connection.write(
            frame(BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE, consumer_stats_response=told))
        )

    def _last_message_id(self, command: BaseCommand) -> None:
        asked = command.get_last_message_id
        self._connection.ask(asked.request_id, self._answer_last_message_id(asked))

    async def _answer_last_message_id(self, asked: CommandGetLastMessageId) -> None:
        consumer = self._connection.consumers.get(asked.consumer_id)
        if consumer is None or consumer.topic is None or consumer.opened_as is None:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"consumer {asked.consumer_id} is not open here")
        mark_delete = consumer.opened_as.subscription.cursor.mark_delete
        told = CommandGetLastMessageIdResponse(
            request_id=asked.request_id,
            last_message_id=await _last_of(consumer.topic),
            consumer_mark_delete_position=_id(mark_delete, consumer.topic.name.partition_index),
        )
        answer = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE, get_last_message_id_response=told)
        self._connection.write(frame(answer))


async def _last_of(topic: Topic) -> MessageIdData:
    """An entry id of -1: there is no message. Entries that are lost are passed over: no reader will get them."""
    log, partition = topic.log, topic.name.partition_index
    entry = await log.last_readable()
    if entry is None:
        return _id(Position(log.last.ledger_id, -1), partition)
    told = _id(entry.position, partition)
    if entry.batch_size:
        told.batch_index, told.batch_size = entry.batch_size - 1, entry.batch_size
    return told


def _id(position: Position, partition: int) -> MessageIdData:
    told = MessageIdData(ledgerId=position.ledger_id & _UINT64, entryId=position.entry_id & _UINT64)
    if partition >= 0:
        told.partition = partition
    return told


def _said(error: Exception) -> tuple[ServerError, str]:
    if isinstance(error, InvalidTopicName):
        return ServerError.INVALID_TOPIC_NAME, told_text(error)
    if isinstance(error, BrokerError):
        return server_error(error.code), told_text(error)
    _log.error("a request to find something failed", exc_info=error)
    return ServerError.UNKNOWN_ERROR, OWN_ERROR
