"""Schemas, of which no topic has one."""

from __future__ import annotations

from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandProducer,
    Schema,
    ServerError,
)
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

# By the protocol's numbers: none, string, bool, five kinds of numbers, six of times, and whatever the topic has; below
# 0 are those of libraries that send their own.
_PLAIN = (0, 1, *range(5, 15), *range(16, 20), 21, -1, -2, -3, -4)
# JSON, Protobuf, Avro, pairs, native Protobuf.
_OTHERS = (2, 3, 4, 15, 20)


async def _register(client: PulsarClient, kind: int, topic: str = "t") -> CommandGetOrCreateSchemaResponse:
    schema = Schema(name="s", schema_data=b"{}", type=kind)
    command = CommandGetOrCreateSchema(request_id=client.request_id(), topic=topic, schema=schema)
    answer = await client.ask(BaseCommand.GET_OR_CREATE_SCHEMA, get_or_create_schema=command)
    assert answer.type == BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, answer
    return answer.get_or_create_schema_response


async def test_no_topic_has_a_schema() -> None:
    """WIRE-1. Java's library takes this code, and no other, for a topic whose messages are bytes."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for topic, error in (("t", ServerError.TOPIC_NOT_FOUND), ("a/b", ServerError.INVALID_TOPIC_NAME)):
            command = CommandGetSchema(request_id=client.request_id(), topic=topic)
            told = (await client.ask(BaseCommand.GET_SCHEMA, get_schema=command)).get_schema_response
            assert told.error_code == error
            assert not told.HasField("schema")
        assert not client.gone


async def test_schema_without_registry_is_accepted_with_empty_version() -> None:
    """WIRE-1. Its version is there, and empty: Go's library publishes nothing before it has one."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for number, kind in enumerate(_PLAIN):
            told = await _register(client, kind)
            assert not told.HasField("error_code"), kind
            assert told.HasField("schema_version")
            assert told.schema_version == b""
            schema = Schema(name="s", schema_data=b"", type=kind)
            await client.open_producer(number, schema=schema)
            await client.subscribe(number, sub_type=1, schema=schema)
        assert (await _register(client, 1, "a/b")).error_code == ServerError.INVALID_TOPIC_NAME


async def test_a_schema_that_would_need_a_registry_is_refused() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for kind in _OTHERS:
            told = await _register(client, kind)
            assert told.error_code == ServerError.NOT_ALLOWED_ERROR, kind
            assert not told.HasField("schema_version")
            schema = Schema(name="s", schema_data=b"{}", type=kind)
            command = CommandProducer(topic="t", producer_id=1, request_id=client.request_id(), schema=schema)
            answer = await client.ask(BaseCommand.PRODUCER, producer=command)
            assert answer.error.error == ServerError.NOT_ALLOWED_ERROR
            subscribed = await client.try_subscribe(schema=schema)
            assert subscribed.error.error == ServerError.NOT_ALLOWED_ERROR
        assert not client.gone
