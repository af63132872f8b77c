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

# By the protocol's numbers: none, string, bool, five kinds of numbers, six of times, and the one of the topic; below
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
            response = (await client.ask(BaseCommand.GET_SCHEMA, get_schema=command)).get_schema_response
            assert response.error_code == error
            assert not response.HasField("schema")
        assert not client.is_disconnected


async def test_schema_without_registry_is_accepted_with_empty_version() -> None:
    """WIRE-1. Its version is there, and empty: Go's library publishes nothing before it has one."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for number, kind in enumerate(_PLAIN):
            response = await _register(client, kind)
            assert not response.HasField("error_code"), kind
            assert response.HasField("schema_version")
            assert response.schema_version == b""
            schema = Schema(name="s", schema_data=b"", type=kind)
            await client.open_producer(number, schema=schema)
            await client.subscribe(number, sub_type=1, schema=schema)
        assert (await _register(client, 1, "a/b")).error_code == ServerError.INVALID_TOPIC_NAME


async def test_a_schema_that_would_need_a_registry_is_refused() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for kind in _OTHERS:
            response = await _register(client, kind)
            assert response.error_code == ServerError.NOT_ALLOWED_ERROR, kind
            assert not response.HasField("schema_version")
            schema = Schema(name="s", schema_data=b"{}", type=kind)
            command = CommandProducer(topic="t", producer_id=1, request_id=client.request_id(), schema=schema)
            answer = await client.ask(BaseCommand.PRODUCER, producer=command)
            assert answer.error.error == ServerError.NOT_ALLOWED_ERROR
            subscribed = await client.try_subscribe(schema=schema)
            assert subscribed.error.error == ServerError.NOT_ALLOWED_ERROR
        assert not client.is_disconnected
