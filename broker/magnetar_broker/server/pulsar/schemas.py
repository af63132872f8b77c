"""Schemas: their translation, and the handlers of GET_SCHEMA and GET_OR_CREATE_SCHEMA, which any broker answers.

On the wire bytes are type 0, or -1, which some libraries have for them. Types below -1 are those that libraries have
for the topic's own schema: consumers decode by it (-3 and 21), producers send bytes of it (-4). A producer or consumer
of these types, and one without a schema, needs no registry.

GET_OR_CREATE_SCHEMA registers the schemas that a producer sends after its first one. A schema of these types is
answered with an empty version, which means that there is none: Go's library does not publish before it has an answer.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.definitions import check_number_of_properties
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.replies import frame, shorten
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.server.request_errors import as_broker_error
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.topic_schemas import TopicSchemas
from magnetar_protos import pulsar_pb2, schema_pb2
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.entry_pb2 import KeyValue
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
)
from magnetar_protos.schema_pb2 import SchemaType
from magnetar_wire.topic_name import TopicName

__all__ = ["from_pulsar", "get_or_create_schema", "get_schema"]

_AUTO_CONSUME: Final = -3
_KNOWN: Final = frozenset(SchemaType.values())
# Bytes of answers that a client has not read, above which it gets no more schemas.
_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024


def from_pulsar(schema: pulsar_pb2.Schema | None) -> schema_pb2.Schema:
    """Translate a schema. Raises `BrokerError` for an unknown type, and for too many properties."""
    if schema is None:
        return schema_pb2.Schema()
    if schema.type <= 0:
        is_auto = schema.type == _AUTO_CONSUME
        return schema_pb2.Schema(type=SchemaType.AUTO_CONSUME if is_auto else SchemaType.BYTES)
    if schema.type not in _KNOWN:
        raise BrokerError(
            ErrorCode.UNSUPPORTED,
            f"schema {schema.name!r:.100} has the type {schema.type}, which the broker does not know: use one of 0 … "
            f"{max(_KNOWN)}",
            "schema",
        )
    check_number_of_properties(len(schema.properties))
    return schema_pb2.Schema(
        type=SchemaType.Name(schema.type),
        name=schema.name,
        definition=schema.schema_data,
        properties={one.key: one.value for one in schema.properties},
    )


def _to_pulsar(topic: TopicName, schema: schema_pb2.Schema) -> pulsar_pb2.Schema:
    """Translate a schema. As in Pulsar, it has the name of its topic."""
    return pulsar_pb2.Schema(
        name=f"{topic.tenant}/{topic.namespace}/{topic.base.local_name}",
        schema_data=schema.definition,
        type=schema.type,
        properties=[KeyValue(key=key, value=value) for key, value in sorted(schema.properties.items())],
    )


def get_schema(session: ClientSession, command: BaseCommand) -> None:
    """Handle GET_SCHEMA."""
    session.spawn(_get_schema(session, command.get_schema))


async def _get_schema(session: ClientSession, request: CommandGetSchema) -> None:
    response = CommandGetSchemaResponse(request_id=request.request_id)
    try:
        with as_broker_error("Reading a schema"):
            await _read_schema(session, request, response)
    except BrokerError as error:
        response.error_code, response.error_message = server_error(error.code, error.about), shorten(error)
    session.write(frame(BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE, get_schema_response=response)))


async def _read_schema(session: ClientSession, request: CommandGetSchema, response: CommandGetSchemaResponse) -> None:
    if request.HasField("schema_version") and not request.schema_version:
        raise BrokerError(
            ErrorCode.INCOMPATIBLE_SCHEMA, "the schema version is empty: leave it out to get the latest schema"
        )
    server, topic = session.context.server, TopicName.parse(request.topic)
    with server.lookup_limit.hold():
        async with session.schema_readers:
            version, schema = await server.get_session().schema_access.read(topic, request.schema_version)
            if (waiting_bytes := session.outbound.waiting_bytes) > _MAX_WAITING_BYTES:
                raise BrokerError(
                    ErrorCode.TOO_MANY_REQUESTS,
                    f"the client has not read {waiting_bytes:,} bytes of answers: read them first",
                )
            if schema.ByteSize() > (maximum := server.settings.max_message_size):
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED,
                    f"the schema has {schema.ByteSize():,} bytes, more than max_message_size = {maximum:,}, above "
                    "which clients accept no frame",
                )
            response.schema.CopyFrom(_to_pulsar(topic, schema))
            response.schema_version = version


def get_or_create_schema(session: ClientSession, command: BaseCommand) -> None:
    """Handle GET_OR_CREATE_SCHEMA."""
    session.spawn(_get_or_create_schema(session, command.get_or_create_schema))


async def _get_or_create_schema(session: ClientSession, request: CommandGetOrCreateSchema) -> None:
    response = CommandGetOrCreateSchemaResponse(request_id=request.request_id)
    try:
        with as_broker_error("Registering a schema"):
            name = TopicName.parse(request.topic)
            if is_system_topic(name):
                raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a system topic: only servers publish to it")
            schemas = TopicSchemas(name, session.context.broker_session().schema_access)
            response.schema_version = await schemas.admit_producer(from_pulsar(request.schema), session.address)
    except BrokerError as error:
        response.error_code, response.error_message = server_error(error.code, error.about), shorten(error)
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, get_or_create_schema_response=response)
    session.write(frame(answer))
