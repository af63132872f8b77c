"""What a client asks about the schema of a topic. There is no registry (schemas.py), so no topic has one.

A client that is told so takes messages as bytes. One that wants to register a schema which needs no registry is
answered as if that had been done, with the version that says that there is none: Go's library does not publish before
it has such an answer, be it a string's schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.replies import frame, told_text
from magnetar_broker.server.pulsar.schemas import check_schema
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchemaResponse,
)
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection

__all__ = ["schema_commands"]


def schema_commands(connection: PulsarConnection) -> dict[int, Callable[[BaseCommand], None]]:
    def get(command: BaseCommand) -> None:
        asked = command.get_schema
        error = _wrong_with(asked.topic) or BrokerError(
            ErrorCode.TOPIC_NOT_FOUND, f"topic {asked.topic!r:.100} has no schema: its messages are bytes"
        )
        told = CommandGetSchemaResponse(
            request_id=asked.request_id, error_code=server_error(error.code), error_message=told_text(error)
        )
        connection.write(frame(BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, get_schema_response=told)))

    def get_or_create(command: BaseCommand) -> None:
        asked = command.get_or_create_schema
        told = CommandGetOrCreateSchemaResponse(request_id=asked.request_id)
        error = _wrong_with(asked.topic)
        try:
            check_schema(asked.schema)
        except BrokerError as refused:
            error = error or refused
        if error is None:
            told.schema_version = b""
        else:
            told.error_code, told.error_message = server_error(error.code), told_text(error)
        answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=told)
        connection.write(frame(answer))

    return {BaseCommand.GET_SCHEMA: get, BaseCommand.GET_OR_CREATE_SCHEMA: get_or_create}


def _wrong_with(topic: str) -> BrokerError | None:
    try:
        TopicName.parse(topic)
    except InvalidTopicName as error:
        return BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error))
    return None
