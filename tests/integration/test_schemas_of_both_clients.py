"""Producers and consumers of values, ours and those of Pulsar's Python client, on one topic (SCH-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pulsar
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

import magnetar
from magnetar import schema as ours
from magnetar.schema import AutoConsumeSchema, KeyValue, KeyValueEncodingType, KeyValueSchema, Schema
from tests.running import GENEROUS_S
from tests.stock_clients import LONG_MS, StockServer, topic
from tests.unit.client.schema.declarations import Color, declare_everything

stock: Any = pulsar.schema

pytest_plugins = ["tests.stock_fixtures"]
pytestmark = pytest.mark.slow

_GENEROUS_MS = int(GENEROUS_S * 1000)


def _everything(m: Any, number: int) -> Any:
    return _RECORDS[m](
        small=number,
        text="naïve",
        color=Color.GREEN,
        words=["a"],
        numbers={"one": 1},
        address={"city": "Ulm"},
        other={"number": number},
        addresses=[{"city": "Bonn"}],
    )


_RECORDS = {module: declare_everything(module) for module in (stock, ours)}
# A function of the module and a number gives a value; one of the module gives the schema.
_KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, int], Any]]] = {
    "AVRO": (lambda m: m.AvroSchema(_RECORDS[m]), _everything),
    "JSON": (lambda m: m.JsonSchema(_RECORDS[m]), _everything),
    "PROTOBUF_NATIVE": (lambda m: m.ProtobufNativeSchema(Timestamp), lambda m, number: Timestamp(seconds=number)),
    "STRING": (lambda m: m.StringSchema(), lambda m, number: f"é{number}"),
}


@pytest.fixture(scope="module")
def our_client(magnetar_standalone: Any) -> Iterator[magnetar.Client]:
    with closing(magnetar.Client(magnetar_standalone.service_url)) as client:
        yield client


@pytest.mark.parametrize("kind", _KINDS)
def test_each_client_reads_what_the_other_wrote(
    kind: str, client: pulsar.Client, our_client: magnetar.Client, server: StockServer
) -> None:
    make_schema, make_value = _KINDS[kind]
    name = topic(f"both-{kind}")
    their_schema, my_schema = make_schema(stock), make_schema(ours)
    theirs = client.create_producer(name, schema=their_schema, batching_enabled=True)
    mine = our_client.create_producer(name, schema=my_schema)
    for number in (1, 2):
        theirs.send(make_value(stock, number))
    for number in (3, 4):
        mine.send(make_value(ours, number))
    their_consumer = client.subscribe(
        name, "theirs", schema=their_schema, initial_position=pulsar.InitialPosition.Earliest
    )
    my_consumer = our_client.subscribe(
        name, "mine", schema=my_schema, initial_position=magnetar.InitialPosition.Earliest
    )
    received = [my_consumer.receive(_GENEROUS_MS) for _ in range(4)]
    assert [message.value() for message in received] == [make_value(ours, number) for number in (1, 2, 3, 4)]
    versions = {message.schema_version() for message in received}
    # Pulsar's Python client has the definition "null" for strings, Java's has none.
    assert len(versions) == (2 if kind == "STRING" else 1)
    assert [their_consumer.receive(LONG_MS).value() for _ in range(4)] == [
        make_value(stock, number) for number in (1, 2, 3, 4)
    ]


def test_auto_consume_reads_every_kind_of_message(client: pulsar.Client, our_client: magnetar.Client) -> None:
    values: dict[str, Callable[[Any], Any]] = {
        "AVRO": lambda value: (value["small"], value["color"], value["address"]["city"]),
        "JSON": lambda value: (value["small"], value["color"], value["address"]["city"]),
        "PROTOBUF_NATIVE": lambda value: (value.seconds,),
        "STRING": lambda value: (value,),
    }
    expected: dict[str, Any] = {
        "AVRO": (5, "GREEN", "Ulm"),
        "JSON": (5, 2, "Ulm"),  # by value
        "PROTOBUF_NATIVE": (5,),
        "STRING": ("é5",),
    }
    for kind, (make_schema, make_value) in _KINDS.items():
        name = topic(f"auto-{kind}")
        client.create_producer(name, schema=make_schema(stock)).send(make_value(stock, 5))
        consumer = our_client.subscribe(
            name, "s", schema=AutoConsumeSchema(), initial_position=magnetar.InitialPosition.Earliest
        )
        assert values[kind](consumer.receive(_GENEROUS_MS).value()) == expected[kind]


@pytest.mark.parametrize("encoding", list(KeyValueEncodingType))
def test_keys_and_values(encoding: KeyValueEncodingType, our_client: magnetar.Client) -> None:
    name = topic(f"pairs-{encoding.name}")
    record = _RECORDS[ours]
    schema: Schema[Any] = KeyValueSchema(ours.StringSchema(), ours.AvroSchema(record), encoding)
    pairs = [KeyValue("k", _everything(ours, 1)), KeyValue("k", None), KeyValue(None, _everything(ours, 2))]
    producer = our_client.create_producer(name, schema=schema)
    for pair in pairs:
        producer.send(pair)
    for reader in (schema, AutoConsumeSchema()):
        consumer = our_client.subscribe(
            name, f"s{id(reader)}", schema=reader, initial_position=magnetar.InitialPosition.Earliest
        )
        messages = [consumer.receive(_GENEROUS_MS) for _ in pairs]
        found = [message.value() for message in messages]
        if reader is schema:
            assert found == pairs
        else:
            assert [pair.key for pair in found] == ["k", "k", None]
            assert [pair.value and pair.value["small"] for pair in found] == [1, None, 2]
        is_separated = encoding is KeyValueEncodingType.SEPARATED
        assert [message.key_bytes() for message in messages] == ([b"k", b"k", b""] if is_separated else [b""] * 3)
        assert [message.has_null_value() for message in messages] == [False, is_separated, False]
