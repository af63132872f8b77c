"""Schemas, and the handlers of GET_SCHEMA and GET_OR_CREATE_SCHEMA.

There is no schema registry, so no topic has a schema, and clients receive its messages as bytes. A schema that needs no
registry is accepted and not stored; any other is refused, because Pulsar would check it against the topic's earlier
schemas. An accepted registration is answered with an empty version, which means that there is none: Go's library does
not publish before it has this answer, even for a string schema.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.replies import frame, shorten
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchemaResponse,
    Schema,
)
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName

__all__ = ["check_schema", "get_or_create_schema", "get_schema"]

# Schema types that need no registry: bytes (-1, or 0, which most libraries send for them), string (1), types with a
# single form (5 to 14, 16 to 19), and those that stand for the topic's own schema (21, and below -1).
_TYPES_WITHOUT_REGISTRY: Final = frozenset((-1, 0, 1, *range(5, 15), *range(16, 20), 21, -2, -3, -4))


def check_schema(schema: Schema | None) -> None:
    """Raise `BrokerError` for a schema that needs a registry."""
    if schema is not None and schema.type not in _TYPES_WITHOUT_REGISTRY:
        raise BrokerError(
            ErrorCode.UNSUPPORTED,
            f"schema {schema.name!r:.100} of type {schema.type} needs a schema registry, which the broker does not "
            "have: use bytes or strings, and encode and decode in the application",
        )


def get_schema(session: ClientSession, command: BaseCommand) -> None:
    """Handle GET_SCHEMA."""
    request = command.get_schema
    error = _check_topic(request.topic) or BrokerError(
        ErrorCode.TOPIC_NOT_FOUND, f"topic {request.topic!r:.100} has no schema: its messages are bytes"
    )
    response = CommandGetSchemaResponse(
        request_id=request.request_id, error_code=server_error(error.code), error_message=shorten(error)
    )
    session.write(frame(BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, get_schema_response=response)))


def get_or_create_schema(session: ClientSession, command: BaseCommand) -> None:
    """Handle GET_OR_CREATE_SCHEMA."""
    request = command.get_or_create_schema
    response = CommandGetOrCreateSchemaResponse(request_id=request.request_id)
    error = _check_topic(request.topic)
    try:
        check_schema(request.schema)
    except BrokerError as schema_error:
        error = error or schema_error
    if error is None:
        response.schema_version = b""
    else:
        response.error_code, response.error_message = server_error(error.code), shorten(error)
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=response)
    session.write(frame(answer))


def _check_topic(topic: str) -> BrokerError | None:
    """Return the error of an invalid topic name."""
    try:
        TopicName.parse(topic)
    except InvalidTopicName as error:
        return BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error))
    return None
