"""Schemas at the Pulsar listener: producers, consumers, GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from magnetar.admin import NamespacePolicies
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.schemas import from_pulsar
from magnetar_protos.entry_pb2 import KeyValue
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    CommandProducer,
    Schema,
    ServerError,
)
from magnetar_wire.schemas import MAX_DEFINITION_BYTES, encode_schema_version
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

# By the protocol's numbers: bytes, and the topic's own schema.
_WITHOUT = (0, -1, -2, -3, -4, 21)
_STRING, _JSON, _AVRO, _INT64 = 1, 2, 4, 9
_NAMESPACE = "public/default"
_V0, _V1 = encode_schema_version(0), encode_schema_version(1)


def _record(*fields: dict[str, Any], kind: int = _AVRO) -> Schema:
    definition = json.dumps({"type": "record", "name": "R", "fields": list(fields)}).encode()
    properties = [KeyValue(key="k", value="v")]
    return Schema(name="R", schema_data=definition, type=kind, properties=properties)


_A = {"name": "a", "type": "int"}
_FIRST = _record(_A)
_SECOND = _record(_A, {"name": "b", "type": "string", "default": ""})
_OTHER = _record({"name": "a", "type": "string"})
_PLAIN = Schema(name="s", schema_data=b"", type=_STRING)


async def _register(client: PulsarClient, schema: Schema, topic: str = "t") -> CommandGetOrCreateSchemaResponse:
    command = CommandGetOrCreateSchema(request_id=client.request_id(), topic=topic, schema=schema)
    answer = await client.ask(BaseCommand.GET_OR_CREATE_SCHEMA, get_or_create_schema=command)
    assert answer.type == BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE, answer
    return answer.get_or_create_schema_response


async def _get(client: PulsarClient, topic: str = "t", version: bytes | None = None) -> CommandGetSchemaResponse:
    command = CommandGetSchema(request_id=client.request_id(), topic=topic)
    if version is not None:
        command.schema_version = version
    return (await client.ask(BaseCommand.GET_SCHEMA, get_schema=command)).get_schema_response


async def _refused_producer(client: PulsarClient, schema: Schema | None, topic: str = "t") -> ServerError:
    command = CommandProducer(topic=topic, producer_id=100, request_id=client.request_id(), schema=schema)
    answer = await client.ask(BaseCommand.PRODUCER, producer=command)
    assert answer.type == BaseCommand.ERROR, answer
    return answer.error.error


async def _refused_consumer(client: PulsarClient, schema: Schema, topic: str = "t") -> ServerError:
    answer = await client.try_subscribe(100, topic, schema=schema)
    assert answer.type == BaseCommand.ERROR, answer
    return answer.error.error


async def test_producers_add_versions_and_clients_read_them() -> None:
    """SCH-1, WIRE-1"""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        opened = await client.open_producer(1, schema=_FIRST)
        assert opened.schema_version == _V0
        assert (await client.open_producer(2, schema=_SECOND)).schema_version == _V1
        assert (await client.open_producer(3, schema=_FIRST)).schema_version == _V0
        assert (await client.open_producer(4)).schema_version == b""
        for version, number, schema in ((None, _V1, _SECOND), (_V0, _V0, _FIRST), (_V1, _V1, _SECOND)):
            got = await _get(client, version=version)
            assert not got.HasField("error_code"), got
            assert got.schema_version == number
            assert got.schema == Schema(
                name="public/default/t", schema_data=schema.schema_data, type=_AVRO, properties=schema.properties
            )


async def test_partitions_share_the_schema_of_their_topic() -> None:
    """SCH-1"""
    async with running_pulsar_broker() as scene:
        await scene.admin.topics.create_partitioned("parts", 2)
        client = await scene.pulsar_client()
        for number, schema, version in ((0, _FIRST, _V0), (1, _SECOND, _V1)):
            opened = await client.open_producer(number, f"parts-partition-{number}", schema=schema)
            assert opened.schema_version == version
        for name in ("parts", "parts-partition-0"):
            got = await _get(client, name)
            assert (got.schema_version, got.schema.name) == (_V1, "public/default/parts")


async def test_absent_schemas_have_pulsars_errors() -> None:
    """SCH-1, WIRE-1. Java's library takes this code, and no other, for a topic whose messages are bytes."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, schema=_FIRST)
        for topic, version, error in (
            ("none", None, ServerError.TOPIC_NOT_FOUND),
            ("a/b", None, ServerError.INVALID_TOPIC_NAME),
            ("t", _V1, ServerError.TOPIC_NOT_FOUND),
            ("t", b"\x7f" + b"\xff" * 7, ServerError.TOPIC_NOT_FOUND),
            ("t", b"\xff" * 8, ServerError.NOT_ALLOWED_ERROR),
            ("t", b"1", ServerError.NOT_ALLOWED_ERROR),
            ("t", b"0" * 1000, ServerError.NOT_ALLOWED_ERROR),
            ("t", b"", ServerError.INCOMPATIBLE_SCHEMA),
        ):
            got = await _get(client, topic, version)
            assert got.error_code == error, (topic, version)
            assert not got.HasField("schema")
        assert not client.is_disconnected


async def test_registration_answers_with_the_version() -> None:
    """SCH-1, WIRE-1. A version is there, and empty, for bytes: Go's library publishes nothing before it has one."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        assert (await _register(client, _FIRST)).error_code == ServerError.TOPIC_NOT_FOUND
        await client.open_producer(1)
        for kind in _WITHOUT:
            response = await _register(client, Schema(name="s", schema_data=b"", type=kind))
            assert not response.HasField("error_code"), response
            assert response.HasField("schema_version")
            assert response.schema_version == b""
        assert (await _register(client, _FIRST)).schema_version == _V0
        assert (await _register(client, _SECOND)).schema_version == _V1
        assert (await _register(client, _FIRST)).schema_version == _V0
        refused = await _register(client, _OTHER)
        assert refused.error_code == ServerError.INCOMPATIBLE_SCHEMA
        assert not refused.HasField("schema_version")
        assert (await _register(client, _PLAIN, "a/b")).error_code == ServerError.INVALID_TOPIC_NAME
        assert (await _register(client, _PLAIN, "__change_events")).error_code == ServerError.NOT_ALLOWED_ERROR


@pytest.mark.parametrize("has_schema", [False, True])
async def test_bytes_and_the_topics_own_schema_need_no_registry(has_schema: bool) -> None:
    """WIRE-1"""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        if has_schema:
            await client.open_producer(100, schema=_FIRST)
        for number, kind in enumerate(_WITHOUT):
            schema = Schema(name="s", schema_data=b"", type=kind)
            assert (await client.open_producer(number, schema=schema)).schema_version == b""
            await client.subscribe(number, sub_type=1, schema=schema)


async def test_incompatible_schemas_are_refused() -> None:
    """SCH-2, WIRE-1. Libraries don't retry after this code."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, schema=_FIRST)
        for schema in (_OTHER, _record(_A, kind=_JSON), _PLAIN):
            assert await _refused_producer(client, schema) == ServerError.INCOMPATIBLE_SCHEMA
            assert await _refused_consumer(client, schema) == ServerError.INCOMPATIBLE_SCHEMA
        await client.subscribe(schema=_FIRST)
        assert (await _get(client)).schema_version == _V0


async def test_openings_without_a_new_schema_need_no_bookie() -> None:
    """SCH-1, WIRE-1. Libraries retry after the error of the others."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, schema=_FIRST)
        for bookie in scene.bookies:
            bookie.failing.add("add")
        assert await _refused_producer(client, _SECOND) == ServerError.PERSISTENCE_ERROR
        assert (await _register(client, _SECOND)).error_code == ServerError.PERSISTENCE_ERROR
        assert (await client.open_producer(2, schema=_FIRST)).schema_version == _V0
        await client.open_producer(3)
        assert (await _get(client)).schema_version == _V0
        for bookie in scene.bookies:
            bookie.failing.clear()
        assert (await client.open_producer(4, schema=_SECOND)).schema_version == _V1


@pytest.mark.parametrize("durable", [True, False])
async def test_consumer_adds_the_first_schema_of_an_unused_topic(durable: bool) -> None:
    """SCH-2. One that takes any schema is not in the way; readers do it, too."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.subscribe(1, sub_type=1, schema=Schema(name="", schema_data=b"", type=21))
        await client.subscribe(2, subscription="own", sub_type=1, schema=_FIRST, durable=durable)
        assert (await _get(client)).schema_version == _V0


async def test_consumer_adds_no_schema_to_a_topic_in_use() -> None:
    """SCH-2. By a producer, a consumer of bytes, or messages."""
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, "producer")
        await client.subscribe(2, "consumer")
        writer = await scene.pulsar_client()
        await writer.open_producer(1, "messages", producer_name="p")
        writer.publish(1, 0, name="p")
        await writer.receipts(1, 1)
        writer.cut()
        for topic in ("producer", "consumer", "messages"):
            assert await _refused_consumer(client, _FIRST, topic) == ServerError.INCOMPATIBLE_SCHEMA
            assert (await _get(client, topic)).error_code == ServerError.TOPIC_NOT_FOUND


async def test_policies_count_for_the_next_producer_of_a_loaded_topic() -> None:
    """SCH-2"""
    async with running_pulsar_broker(metadata_cache_ttl_seconds=0.001) as scene:
        scene.broker_session.schema_access.policies_age_s = 0.0
        client = await scene.pulsar_client()
        await client.open_producer(1, schema=_FIRST)
        change = scene.admin.namespaces.change_policies
        await change(_NAMESPACE, NamespacePolicies(schema_validation_enforced=True))
        await _until_refused(client, None)
        await client.open_producer(2, "bytes")
        await change(_NAMESPACE, NamespacePolicies(allow_schema_auto_update=False))
        await _until_refused(client, _SECOND)
        assert (await client.open_producer(3, schema=_FIRST)).schema_version == _V0
        await change(_NAMESPACE, NamespacePolicies(allow_schema_auto_update=True))
        await change(_NAMESPACE, NamespacePolicies(schema_compatibility="ALWAYS_COMPATIBLE"))
        await until(lambda: _is_accepted(client, _OTHER), "the policy counts")
        assert (await _get(client)).schema_version == _V1


async def _is_accepted(client: PulsarClient, schema: Schema) -> bool:
    return not (await _register(client, schema)).HasField("error_code")


async def _until_refused(client: PulsarClient, schema: Schema | None) -> None:
    ids = itertools.count(100)

    async def is_refused() -> bool:
        command = CommandProducer(topic="t", producer_id=next(ids), request_id=client.request_id(), schema=schema)
        answer = await client.ask(BaseCommand.PRODUCER, producer=command)
        assert answer.type == BaseCommand.PRODUCER_SUCCESS or answer.error.error == ServerError.INCOMPATIBLE_SCHEMA
        return answer.type == BaseCommand.ERROR

    await until(is_refused, "the policy counts")


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(Schema(name="n", schema_data=b"", type=22), id="unknown type"),
        pytest.param(Schema(name="n", schema_data=b"", type=2**31 - 1), id="type out of range"),
        pytest.param(Schema(name="n", schema_data=b"{", type=_AVRO), id="no JSON"),
        pytest.param(Schema(name="n", schema_data=b"\xff\xfe\xfd", type=_JSON), id="no UTF-8"),
        pytest.param(Schema(name="n", schema_data=b"[" * 100_000, type=_AVRO), id="deep"),
        pytest.param(Schema(name="n", schema_data=b" " * MAX_DEFINITION_BYTES + b"x", type=_AVRO), id="too large"),
        pytest.param(
            Schema(
                name="n",
                schema_data=_FIRST.schema_data,
                type=_AVRO,
                properties=[KeyValue(key=f"{number}", value="v" * 500) for number in range(3_000)],
            ),
            id="too many properties",
        ),
    ],
)
async def test_invalid_schemas_are_refused_for_good(schema: Schema) -> None:
    """SCH-1. The connection, and other requests on it, are not affected."""
    error = ServerError.INCOMPATIBLE_SCHEMA if schema.type < 22 else ServerError.NOT_ALLOWED_ERROR
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, schema=_FIRST)
        assert await _refused_producer(client, schema) == error
        assert await _refused_consumer(client, schema) == error
        assert (await _register(client, schema)).error_code == error
        assert (await _get(client)).schema_version == _V0


def test_properties_are_counted_before_they_are_copied() -> None:
    with pytest.raises(BrokerError, match="1001 properties, and 1000 are allowed"):
        from_pulsar(Schema(type=_AVRO, properties=[KeyValue(key="same", value="")] * 1001))


async def test_schema_of_the_maximum_size_is_stored_and_read() -> None:
    """SCH-1"""
    doc = "x" * (MAX_DEFINITION_BYTES - 1_000)
    schema = _record({"name": "a", "type": "int", "doc": doc})
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        assert (await client.open_producer(1, schema=schema)).schema_version == _V0
        assert (await _get(client)).schema.schema_data == schema.schema_data


async def test_schemas_are_refused_while_the_client_reads_none() -> None:
    """SCH-1. Answers wait in the broker's memory until the client reads them."""
    schema = _record({"name": "a", "type": "int", "doc": "x" * 900_000})
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.open_producer(1, schema=schema)
        client.stop_reading()
        for _ in range(200):
            command = CommandGetSchema(request_id=client.request_id(), topic="t")
            client.send(BaseCommand(type=BaseCommand.GET_SCHEMA, get_schema=command))
        await until(lambda: not client.tasks, "all requests that were read are answered")
        assert client.session.outbound.waiting_bytes < 16_000_000
        client.read_on()
