"""pulsar-client's schemas, as it comes, on a real standalone: what producers and consumers may have, and that versions
evolve.

With MAGNETAR_TEST_PULSAR_URL the same runs on another server (tests/stock_clients.py).
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pulsar
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pulsar import MessageId
from pulsar.schema import (
    AvroSchema,
    BytesSchema,
    Integer,
    JsonSchema,
    ProtobufNativeSchema,
    Record,
    Schema,
    String,
    StringSchema,
)

from tests.running import GENEROUS_S
from tests.stock_clients import EARLIEST, LONG_MS, StockServer, topic

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow


class Point(Record):  # type: ignore[misc]
    x = Integer()


class Named(Record):  # type: ignore[misc]
    """The next version of `Point`."""

    _avro_name = "Point"
    x = Integer()
    name = String(required_default=True)


class Text(Record):  # type: ignore[misc]
    """No version of `Point`."""

    _avro_name = "Point"
    x = String(required=True)


def _receive(consumer: pulsar.Consumer) -> pulsar.Message:
    message = consumer.receive(LONG_MS)
    consumer.acknowledge(message)
    return message


def _version(message: pulsar.Message) -> int | None:
    encoded = message.schema_version()
    return int.from_bytes(encoded.encode("latin-1"), "big") if encoded else None


def _stored(server: StockServer, name: str) -> Any:
    """The latest schema over HTTP."""
    path = name.replace("persistent://", "")
    with urllib.request.urlopen(f"{server.http_url}/admin/v2/schemas/{path}/schema", timeout=GENEROUS_S) as answer:
        return json.load(answer)


def _refused(client: pulsar.Client, name: str, schema: Schema) -> None:
    """A producer, a consumer and a reader with the schema are refused for good."""
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(name, schema=schema)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(name, "refused", schema=schema)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_reader(name, MessageId.earliest, schema=schema)


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        pytest.param(AvroSchema(Named), Named(x=7, name="ü"), "AVRO", id="avro"),
        pytest.param(JsonSchema(Named), Named(x=7, name="ü"), "JSON", id="json"),
        pytest.param(StringSchema(), "grüße", "STRING", id="string"),
        pytest.param(ProtobufNativeSchema(Timestamp), Timestamp(seconds=7), "PROTOBUF_NATIVE", id="protobuf"),
    ],
)
def test_values_and_the_version_of_their_schema_arrive(
    server: StockServer, client: pulsar.Client, schema: Schema, value: Any, kind: str
) -> None:
    """SCH-1, WIRE-1"""
    name = topic("typed")
    consumer = client.subscribe(name, "s", schema=schema)
    producer = client.create_producer(name, schema=schema)
    producer.send(value)
    message = _receive(consumer)
    assert (message.value(), _version(message)) == (value, 0)
    stored = _stored(server, name)
    assert (stored["version"], stored["type"]) == (0, kind)
    client.create_producer(name, schema=schema).send(value)
    assert _version(_receive(consumer)) == 0


def test_bytes_need_no_schema(client: pulsar.Client) -> None:
    """SCH-1, WIRE-1: neither on a topic without one, nor on a topic that has one."""
    for name in (topic("bytes"), topic("typed")):
        if "typed" in name:
            client.create_producer(name, schema=AvroSchema(Point))
        consumer = client.subscribe(name, "s", schema=BytesSchema())
        client.create_producer(name, schema=BytesSchema()).send(b"\xff")
        client.create_producer(name).send(b"\xfe")
        received = [_receive(consumer) for _ in range(2)]
        assert [(message.data(), _version(message)) for message in received] == [(b"\xff", None), (b"\xfe", None)]


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_messages_of_two_versions_are_read_by_either(client: pulsar.Client, kind: type[Schema]) -> None:
    """SCH-1, SCH-2, WIRE-1: each message has the version with which it was encoded."""
    name = topic("evolving")
    for schema, value in ((kind(Point), Point(x=1)), (kind(Named), Named(x=2, name="b")), (kind(Point), Point(x=3))):
        producer = client.create_producer(name, schema=schema)
        producer.send(value)
        producer.close()
    consumer = client.subscribe(name, "new", schema=kind(Named), **EARLIEST)
    received = [_receive(consumer) for _ in range(3)]
    assert [_version(message) for message in received] == [0, 1, 0]
    assert [message.value().x for message in received] == [1, 2, 3]
    if kind is AvroSchema:
        assert [message.value().name for message in received] == [None, "b", None]
    older = client.subscribe(name, "old", schema=kind(Point), **EARLIEST)
    assert [_receive(older).value().x for _ in range(3)] == [1, 2, 3]


def test_schemas_that_do_not_fit_are_refused(server: StockServer, client: pulsar.Client) -> None:
    """SCH-2, WIRE-1: by what they say, by their kind; and the topic is as it was."""
    name = topic("checked")
    producer = client.create_producer(name, schema=AvroSchema(Point))
    for schema in (AvroSchema(Text), JsonSchema(Point), StringSchema()):
        _refused(client, name, schema)
    assert _stored(server, name)["version"] == 0
    producer.send(Point(x=1))
    reader = client.create_reader(name, MessageId.earliest, schema=AvroSchema(Point))
    assert reader.read_next(LONG_MS).value().x == 1


def test_consumer_adds_the_schema_of_an_unused_topic_only(server: StockServer, client: pulsar.Client) -> None:
    """SCH-2, WIRE-1"""
    unused, used = topic("unused"), topic("used")
    client.subscribe(unused, "s", schema=AvroSchema(Point))
    assert _stored(server, unused)["version"] == 0
    client.create_producer(used).send(b"x")
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(used, "s", schema=AvroSchema(Point))
    client.create_producer(used, schema=AvroSchema(Point)).send(Point(x=1))
    consumer = client.subscribe(used, "s", schema=AvroSchema(Point))
    client.create_producer(used, schema=AvroSchema(Named)).send(Named(x=2, name="b"))
    assert _receive(consumer).value().x == 2


def test_partitions_share_a_schema(server: StockServer, client: pulsar.Client) -> None:
    """SCH-1, WIRE-1"""
    name = server.make_partitioned(topic("parts"), 2)
    consumer = client.subscribe(name, "s", schema=AvroSchema(Named))
    for schema, value in ((AvroSchema(Point), Point(x=1)), (AvroSchema(Named), Named(x=2, name="b"))):
        producer = client.create_producer(name, schema=schema)
        for _ in range(2):  # one to each partition
            producer.send(value)
    received = [_receive(consumer) for _ in range(4)]
    assert {(message.message_id().partition(), message.value().x, _version(message)) for message in received} == {
        (partition, x, version) for partition in (0, 1) for x, version in ((1, 1), (2, 0))
    }
    assert _stored(server, name)["version"] == 1


def test_a_schema_survives_the_move_of_its_topic(server: StockServer, client: pulsar.Client) -> None:
    """SCH-1, WIRE-1: producers and consumers reopen with their schemas."""
    name = topic("moving")
    consumer = client.subscribe(name, "s", schema=AvroSchema(Point))
    producer = client.create_producer(name, schema=AvroSchema(Point))
    producer.send(Point(x=1))
    server.unload(name)
    producer.send(Point(x=2))
    received = [_receive(consumer) for _ in range(2)]
    assert [(message.value().x, _version(message)) for message in received] == [(1, 0), (2, 0)]
