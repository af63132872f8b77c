"""Producers, consumers and readers with a schema: which version a message is sent with, and how it is decoded."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from magnetar import ConsumerType, DecodeFailureAction, InitialPosition, MessageId, aio
from magnetar._options import producer_options
from magnetar.exceptions import (
    ConnectError,
    DecodeError,
    EncodeError,
    IncompatibleSchema,
    InvalidConfiguration,
    InvalidMessage,
    SchemaUnavailable,
)
from magnetar.schema import (
    AutoProduceBytesSchema,
    Int64Schema,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    SchemaInfo,
    StringSchema,
)
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.schema_pb2 import Schema
from magnetar_testing.clock import ManualClock
from magnetar_wire.entry import decode_entry
from magnetar_wire.schemas import encode_schema_version
from tests.running import until
from tests.unit.client.consume_scene import MemoryBroker, client_of, receive
from tests.unit.client.scene import scene, sync_scene
from tests.unit.client.sync_consume_scene import sync_consume_scene
from tests.unit.client.tagged_schema import TaggedSchema

P = "persistent://public/default/"
EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
SKIP: Any = {**EARLIEST, "decode_failure_action": DecodeFailureAction.SKIP}


def add_version(broker: MemoryBroker, name: str, topic: str = "t") -> bytes:
    return broker.add_schema(P + topic, TaggedSchema(name).schema_info().to_message())


def values(messages: list[Any]) -> list[Any]:
    found = []
    for message in messages:
        try:
            found.append(message.value())
        except DecodeError as error:
            found.append(type(error))
    return found


# Sending.


def test_values_are_encoded_when_they_are_sent_and_stamped_with_the_version() -> None:
    """(SCH-3) Both ways of sending; None is a null value; a refused value is not sent."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", schema=TaggedSchema())
        sent: list[Any] = []
        producer.send_async("a", lambda *result: sent.append(result))
        producer.send_async("b", partition_key="k")
        producer.send_async(None)
        producer.send("c")
        producer.flush()
        with pytest.raises(EncodeError, match="value 'bad' is refused"):
            producer.send("bad")
        with pytest.raises(EncodeError):
            producer.send_async("bad")
        topic = made.broker.topic("t")
        assert [SchemaInfo.from_message(one).name for one in made.broker.schemas[topic.name]] == ["own"]
    assert topic.payloads() == [b"a", b"b", None, b"c"]
    assert len(sent) == 1
    assert {message_version(entry) for entry in topic.entries} == {encode_schema_version(0)}


def message_version(entry: bytes) -> bytes:
    return decode_entry(entry).metadata.schema_version


async def test_an_asyncio_producer_encodes_values() -> None:
    async with scene() as (broker, client), await client.create_producer("t", schema=TaggedSchema()) as producer:
        await asyncio.gather(producer.send("a"), producer.send("b"))
        with pytest.raises(EncodeError):
            await producer.send("bad")
        topic = broker.topic("t")
        assert topic.payloads() == [b"a", b"b"]
        assert message_version(topic.entries[0]) == encode_schema_version(0)
    async with scene() as (broker, client), await client.create_producer("t") as plain:
        await plain.send(b"a")
        assert not broker.opened[0].HasField("schema")
        assert message_version(broker.topic("t").entries[0]) == b""


async def test_a_schema_may_set_the_key() -> None:
    """Of a KEY_VALUE schema whose keys are separated."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", schema=TaggedSchema(uses_key=True))
        await producer.send("k=v")
        await producer.send("=v", partition_key="other")
        with pytest.raises(InvalidMessage, match="the value has the key"):
            await producer.send("k=v", partition_key="other")
        keys = [messages.keys for messages in broker.topic("t").messages()]
        assert keys == [[b"k"], ["other"]]
        pairs = KeyValueSchema(StringSchema(), StringSchema(), KeyValueEncodingType.SEPARATED)
        of_pairs = await client.create_producer("pairs", schema=pairs)
        with pytest.raises(InvalidMessage, match="it would be the key of the value, which has none"):
            await of_pairs.send(KeyValue(None, "v"), partition_key="other")
        assert broker.topic("t").payloads() == [b"v", b"v"]


async def test_payloads_that_were_encoded_elsewhere_are_checked_against_the_topic_s_schema() -> None:
    """AutoProduceBytesSchema: each producer gets the latest version of its topic."""
    async with scene() as (broker, client):
        broker.add_schema(P + "t", Int64Schema().schema_info().to_message())
        schema = AutoProduceBytesSchema()
        producer = await client.create_producer("t", schema=schema)
        free = await client.create_producer("without", schema=schema)
        await producer.send(bytes(8))
        with pytest.raises(EncodeError, match="does not match the topic's schema"):
            await producer.send(b"x")
        await free.send(b"x")
        assert message_version(broker.topic("t").entries[0]) == encode_schema_version(0)
        assert message_version(broker.topic("without").entries[0]) == b""


async def test_resent_entries_keep_their_version_and_later_ones_get_the_new_one() -> None:
    """Also when the topic was deleted and recreated in the meantime: the schema is registered again."""
    async with scene() as (broker, client):
        broker.add_schema(P + "t", TaggedSchema("older").schema_info().to_message())
        producer = await client.create_producer("t", schema=TaggedSchema(), batching_enabled=False)
        broker.receipting.clear()
        first = asyncio.create_task(producer.send("1"))
        topic = broker.topic("t")
        await until(lambda: len(topic.entries) == 1, "it is stored, without a receipt")
        broker.schemas.clear()  # the next opening gets another version
        broker.break_streams()
        await until(lambda: len(topic.entries) == 2, "it is resent")
        broker.receipting.set()
        await first
        await producer.send("2")
        assert topic.entries[0] == topic.entries[1]
        assert [message_version(entry)[-1] for entry in topic.entries] == [1, 1, 0]
        broker.delete("t")
        await until(lambda: len(broker.opened) == 3, "it is reopened")
        await producer.send("3")
        assert message_version(broker.topic("t").entries[0]) == encode_schema_version(0)
        assert broker.opened[-1].schema.name == "own"
        broker.has_versions = False
        broker.break_streams()
        await until(lambda: len(broker.opened) == 4, "it is reopened")
        await producer.send("4")
        assert message_version(broker.topic("t").entries[1]) == b""


async def test_an_incompatible_schema_is_raised_at_once() -> None:
    async with scene() as (broker, client):
        broker.problems[P + "t"] = ErrorCode.INCOMPATIBLE_SCHEMA
        with pytest.raises(IncompatibleSchema, match="INCOMPATIBLE_SCHEMA"):
            await client.create_producer("t", schema=TaggedSchema())
    async with client_of() as (memory, consumers):
        memory.problems[P + "t"] = ErrorCode.INCOMPATIBLE_SCHEMA
        with pytest.raises(IncompatibleSchema):
            await consumers.subscribe("t", "s", schema=TaggedSchema())


async def test_a_schema_that_becomes_incompatible_ends_a_producer_honestly() -> None:
    """A message that may be stored has an unknown outcome; one that was never sent was refused."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", schema=TaggedSchema(), batching_enabled=False)
        broker.receipting.clear()
        stored = asyncio.create_task(producer.send("1"))
        await until(lambda: len(broker.topic("t").entries) == 1, "it is stored, without a receipt")
        broker.problems[P + "t"] = ErrorCode.INCOMPATIBLE_SCHEMA
        broker.break_streams()
        await until(lambda: not producer.is_connected(), "the connection is lost")
        unsent = asyncio.create_task(producer.send("2"))
        with pytest.raises(ConnectError, match="whether the message is stored is not known"):
            await stored
        with pytest.raises(IncompatibleSchema):
            await unsent
        with pytest.raises(IncompatibleSchema):
            await producer.send("3")
        broker.receipting.set()


async def test_a_schema_that_becomes_incompatible_ends_a_consumer() -> None:
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        broker.problems[P + "t"] = ErrorCode.INCOMPATIBLE_SCHEMA
        await broker.unload("t")
        with pytest.raises(IncompatibleSchema):
            await consumer.receive(60_000)


def test_what_is_taken_as_a_schema() -> None:
    assert producer_options({"schema": str}).value_schema == StringSchema()
    with pytest.raises(TypeError, match="is not a dataclass, a pydantic model or a Record"):
        producer_options({"schema": object})
    with pytest.raises(InvalidConfiguration, match="use a schema"):
        producer_options({"schema": list[int]})


# Receiving.


async def test_payloads_of_an_entry_are_decoded_together_at_the_first_value() -> None:
    """(SCH-3) By the version of each entry; without one, by the consumer's own schema."""
    async with client_of() as (broker, client):
        first, second = add_version(broker, "first"), add_version(broker, "second")
        topic = broker.topic("t")
        topic.publish(b"1", b"2", schema_version=first)
        topic.publish(b"3", schema_version=second)
        topic.publish(b"4", None, b"", schema_version=first)
        topic.publish(b"5")
        schema = TaggedSchema()
        consumer = await client.subscribe("t", "s", schema=schema, **EARLIEST)
        messages = await receive(consumer, 7)
        assert schema.calls == []
        assert [message.data() for message in messages] == [b"1", b"2", b"3", b"4", b"", b"", b"5"]
        expected = ["first:1", "first:2", "second:3", "first:4", None, "first:", "own:5"]
        assert values(messages) == values(messages) == expected
        assert schema.calls == [2, 1, 2, 1]
        assert schema.writers == ["first", "second", "own"]
        assert broker.calls.count("schema") == 2
        assert [one.schema_version() for one in messages[:3]] == [first, first, second]


def test_a_synchronous_consumer_and_reader_decode_values() -> None:
    with sync_consume_scene() as made:
        version = made.on_loop(lambda broker: add_version(broker, "first"))
        made.on_loop(lambda broker: broker.topic("t").publish(b"1", b"2", schema_version=version))
        consumer = made.client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        assert [one.value() for one in consumer.batch_receive()] == ["first:1", "first:2"]
        reader = made.client.create_reader("t", MessageId.earliest, TaggedSchema())
        assert reader.has_message_available()
        assert reader.read_next().value() == "first:1"
        seen: list[str] = []
        done = threading.Event()

        def listen(_: object, message: Any) -> None:
            seen.append(message.value())
            if len(seen) == 2:
                done.set()

        made.client.subscribe("t", "listening", schema=TaggedSchema(), message_listener=listen, **EARLIEST)
        assert done.wait(60)
        assert seen == ["first:1", "first:2"]


def test_threads_may_read_the_values_of_an_entry_at_the_same_time() -> None:
    with sync_consume_scene() as made:
        made.on_loop(lambda broker: broker.topic("t").publish(*[b"%d" % number for number in range(200)]))
        consumer = made.client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        messages = [consumer.receive(60_000) for _ in range(200)]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda message: message.value(), messages))
        assert found == [f"own:{number}" for number in range(200)]


async def test_a_payload_that_can_not_be_decoded_is_its_message_s_error_alone() -> None:
    async with client_of() as (broker, client):
        version, unreadable = add_version(broker, "first"), add_version(broker, "unreadable")
        topic = broker.topic("t")
        topic.publish(b"1", b"bad", b"3", schema_version=version)
        topic.publish(b"4", b"5", schema_version=unreadable)
        topic.publish(b"6", schema_version=encode_schema_version(7))
        topic.publish(b"7", schema_version=b"odd")
        topic.publish(b"8", schema_version=version)
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        messages = await receive(consumer, 8)
        for _ in range(2):
            assert values(messages) == ["first:1", DecodeError, "first:3", *[DecodeError] * 4, "first:8"]
        with pytest.raises(DecodeError, match="has no schema version 7"):
            messages[5].value()
        with pytest.raises(DecodeError, match="invalid schema version"):
            messages[6].value()
        assert messages[6].data() == b"7"


async def test_errors_of_a_schema_s_own_code_are_decode_errors() -> None:
    class Careless(TaggedSchema):
        def make_decoder(self, writer: SchemaInfo | None) -> Any:
            return lambda payloads, keys: [int(payload) for payload in payloads]

    async with client_of() as (broker, client):
        broker.topic("t").publish(b"1", b"x", b"3")
        consumer = await client.subscribe("t", "s", schema=Careless(), **EARLIEST)
        assert values(await receive(consumer, 3)) == [1, DecodeError, 3]


async def test_the_key_belongs_to_the_value_if_the_schema_uses_it() -> None:
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"1", b"2", keys=["a", b"b"])
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(uses_key=True), **EARLIEST)
        assert values(await receive(consumer, 2)) == ["own:a=1", "own:b=2"]
        pairs = KeyValueSchema(StringSchema(), StringSchema(), KeyValueEncodingType.SEPARATED)
        broker.topic("pairs").publish(b"1", None, keys=["a", "b"])
        of_pairs = await client.subscribe("pairs", "s", schema=pairs, **EARLIEST)
        assert values(await receive(of_pairs, 2)) == [KeyValue("a", "1"), KeyValue("b", None)]
        inline = KeyValueSchema(StringSchema(), StringSchema())
        broker.topic("inline").publish(inline.encode(KeyValue("a", None)), None, keys=["x", "y"])
        of_inline = await client.subscribe("inline", "s", schema=inline, **EARLIEST)
        assert values(await receive(of_inline, 2)) == [KeyValue("a", None), None]


async def test_with_skip_undecodable_messages_are_acknowledged_and_the_next_ones_handed_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """(SCH-3) Logged once for an entry; a version that can't be read at all, once."""
    async with client_of() as (broker, client):
        version, unreadable = add_version(broker, "first"), add_version(broker, "unreadable")
        topic = broker.topic("t")
        topic.publish(b"bad", b"1", b"bad", schema_version=version)
        topic.publish(b"2", b"3", schema_version=unreadable)
        topic.publish(b"4", schema_version=unreadable)
        topic.publish(b"5", schema_version=version)
        schema = TaggedSchema()
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, schema=schema, **SKIP)
        with caplog.at_level(logging.ERROR, "magnetar"):
            messages = await receive(consumer, 2)
        texts = [record.getMessage() for record in caplog.records]
        assert values(messages) == ["first:1", "first:5"]
        assert schema.writers == ["first", "unreadable"]
        await consumer.acknowledge(messages, receipt=True)
        await consumer.close()
        again = await client.subscribe("t", "s", ConsumerType.Shared, schema=TaggedSchema(), **SKIP)
        topic.publish(b"6", schema_version=version)
        assert values(await receive(again, 1)) == ["first:6"]
        reader = await client.create_reader(
            "t", MessageId.earliest, TaggedSchema(), decode_failure_action=DecodeFailureAction.SKIP
        )
        assert [(await reader.read_next()).value() for _ in range(3)] == ["first:1", "first:5", "first:6"]
        assert not await reader.has_message_available()
    assert len(texts) == 2
    assert "(2) can't be decoded" in texts[0]
    assert "payload 0 is bad" in texts[0]
    assert "(2) can't be decoded" in texts[1]
    assert "the version can't be read" in texts[1]


async def test_messages_wait_in_order_for_their_version() -> None:
    """And the other partitions go on."""
    async with client_of() as (broker, client):
        version = add_version(broker, "first")
        slow = broker.topic("t")
        slow.publish(b"1")
        slow.publish(b"2", schema_version=version)
        slow.publish(b"3")
        broker.has_registry.clear()
        consumer = await client.subscribe(["t", "other"], "s", schema=TaggedSchema(), **EARLIEST)
        assert values(await receive(consumer, 1)) == ["own:1"]
        await until(lambda: "schema" in broker.calls, "the version is fetched")
        broker.topic("other").publish(b"4")
        assert values(await receive(consumer, 1)) == ["own:4"]
        reader = await client.create_reader("t", MessageId.earliest, TaggedSchema())
        assert values([await reader.read_next()]) == ["own:1"]
        assert await reader.has_message_available()
        broker.has_registry.set()
        assert values(await receive(consumer, 2)) == ["first:2", "own:3"]
        assert values([await reader.read_next(), await reader.read_next()]) == ["first:2", "own:3"]


async def pass_time(clock: ManualClock, condition: Callable[[], bool], what: str) -> None:
    def step() -> bool:
        clock.advance(0.2)
        return condition()

    await until(step, what)


async def test_without_the_registry_messages_are_handed_out_and_values_come_later() -> None:
    """(SCH-3) After the operation's timeout. Nothing is skipped or lost, and each value() tries again."""
    clock = ManualClock()
    async with client_of(_clock=clock, operation_timeout_seconds=5) as (broker, client):
        version = add_version(broker, "first")
        broker.topic("t").publish(b"1", b"2", schema_version=version)
        broker.has_registry.clear()
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **SKIP)
        began = clock.monotonic()
        receiving = asyncio.create_task(receive(consumer, 2))
        await pass_time(clock, receiving.done, "the messages are handed out")
        assert clock.monotonic() - began > 3
        messages = await receiving
        with pytest.raises(SchemaUnavailable, match="the registry is away"):
            messages[0].value()
        assert messages[0].data() == b"1"
        restored = pickle.loads(pickle.dumps(messages[0]))
        with pytest.raises(SchemaUnavailable):
            restored.value()
        clock.advance(2)
        began = clock.monotonic()
        broker.topic("t").publish(b"0", schema_version=version)
        receiving = asyncio.create_task(receive(consumer, 1))
        await pass_time(clock, receiving.done, "the next one is handed out")
        assert clock.monotonic() - began < 3
        broker.has_registry.set()
        await pass_time(clock, lambda: values(messages) == ["first:1", "first:2"], "a later call decodes them")
        broker.topic("t").publish(b"3", schema_version=version)
        assert values(await receive(consumer, 1)) == ["first:3"]


async def test_versions_that_can_not_be_fetched_delay_messages_no_longer_than_one() -> None:
    clock = ManualClock()
    async with client_of(_clock=clock, operation_timeout_seconds=5) as (broker, client):
        for number in range(6):
            broker.topic("t").publish(b"%d" % number, schema_version=add_version(broker, f"v{number}"))
        broker.has_registry.clear()
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        began = clock.monotonic()
        receiving = asyncio.create_task(receive(consumer, 6))

        def time_passes() -> bool:
            clock.advance(0.2)
            return receiving.done()

        await until(time_passes, "the messages are handed out")
        assert clock.monotonic() - began < 10
        assert values(await receiving) == [SchemaUnavailable] * 6


async def test_an_unexpected_error_of_a_definition_stops_no_partition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(schema: object) -> Any:
        raise RuntimeError("unexpected")

    async with client_of() as (broker, client):
        broker.topic("t").publish(b"1", schema_version=add_version(broker, "first"))
        broker.topic("t").publish(b"2")
        monkeypatch.setattr(SchemaInfo, "from_message", fail)
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        messages = await receive(consumer, 2)
        assert values(messages) == [DecodeError, "own:2"]
        with pytest.raises(DecodeError, match="could not be read: RuntimeError"):
            messages[0].value()
    assert any(record.exc_info for record in caplog.records)


async def test_a_version_of_an_unknown_type_is_not_fetched_again() -> None:
    clock = ManualClock()
    async with client_of(_clock=clock) as (broker, client):
        version = broker.add_schema(P + "t", Schema.FromString(b"\x08\x63"))
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        for _ in range(2):
            broker.topic("t").publish(b"1", schema_version=version)
            assert values(await receive(consumer, 1)) == [DecodeError]
            clock.advance(5)
        assert broker.calls.count("schema") == 1


async def test_a_deleted_topic_s_definitions_are_not_fetched_again() -> None:
    """Its name may have others now."""
    clock = ManualClock()
    async with client_of(_clock=clock, operation_timeout_seconds=5) as (broker, client):
        broker.topic("t").publish(b"1", schema_version=add_version(broker, "old"))
        broker.has_registry.clear()
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        receiving = asyncio.create_task(receive(consumer, 1))

        def time_passes() -> bool:
            clock.advance(0.2)
            return receiving.done()

        await until(time_passes, "the message is handed out")
        (old,) = await receiving
        broker.has_registry.set()
        await broker.delete("t")
        broker.topic("t").publish(b"2", schema_version=add_version(broker, "new"))
        receiving = asyncio.create_task(receive(consumer, 1))
        await until(time_passes, "the consumer reads the new topic")
        assert values(await receiving) == ["new:2"]
        calls = broker.calls.count("schema")
        clock.advance(5)
        assert values([old]) == [SchemaUnavailable]
        broker.topic("t").publish(b"3", schema_version=add_version(broker, "newer"))
        assert values([*await receive(consumer, 1), old]) == ["newer:3", SchemaUnavailable]
        assert broker.calls.count("schema") == calls + 1


async def test_a_partition_has_a_limited_number_of_decoders() -> None:
    """The one that was not used for longest is made again."""
    async with client_of() as (broker, client):
        versions = [add_version(broker, f"v{number}") for number in range(101)]
        schema = TaggedSchema()
        consumer = await client.subscribe("t", "s", schema=schema, **EARLIEST)
        for number in (*range(100), 0, 100, 0, 1):
            broker.topic("t").publish(b"x", schema_version=versions[number])
            assert values(await receive(consumer, 1)) == [f"v{number}:x"]
        assert schema.writers == [f"v{number}" for number in (*range(101), 1)]
        assert broker.calls.count("schema") == 101


async def test_a_recreated_topic_gets_its_own_definitions() -> None:
    async with client_of() as (broker, client):
        version = add_version(broker, "old")
        broker.topic("t").publish(b"1", schema_version=version)
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        (old,) = await receive(consumer, 1)
        await broker.delete("t")
        assert add_version(broker, "new") == version
        broker.topic("t").publish(b"2", schema_version=version)
        assert values(await receive(consumer, 1)) == ["new:2"]
        assert values([old]) == ["old:1"]


async def test_definitions_are_cached_for_all_consumers_of_a_client() -> None:
    async with client_of() as (broker, client):
        version = add_version(broker, "first")
        broker.topic("t").publish(b"1", schema_version=version)
        for name in ("a", "b"):
            consumer = await client.subscribe("t", name, schema=TaggedSchema(), **EARLIEST)
            assert values(await receive(consumer, 1)) == ["first:1"]
        assert broker.calls.count("schema") == 1


async def test_a_pickled_message_decodes_its_value() -> None:
    async with client_of() as (broker, client):
        version = add_version(broker, "first")
        broker.topic("t").publish(b"1", b"bad", keys=["k", None], schema_version=version)
        consumer = await client.subscribe("t", "s", schema=TaggedSchema(), **EARLIEST)
        messages = await receive(consumer, 2)
        restored = pickle.loads(pickle.dumps(messages))
        assert values(restored) == ["first:1", DecodeError]
        assert restored[0].partition_key() == "k"
        assert restored[0].schema_version() == version


async def test_messages_of_another_type_are_refused() -> None:
    """(SCH-3) They would be decoded to wrong values. The topic may have had another schema before, or accept all."""
    async with client_of() as (broker, client):
        avro = add_version(broker, "first")
        string = broker.add_schema(P + "t", StringSchema().schema_info().to_message())
        topic = broker.topic("t")
        topic.publish(b"1", schema_version=avro)
        topic.publish(b"2", schema_version=string)
        topic.publish(b"3", schema_version=encode_schema_version(7))
        topic.publish(b"4")
        consumer = await client.subscribe("t", "s", schema=str, **EARLIEST)
        messages = await receive(consumer, 4)
        assert values(messages) == [DecodeError, "2", "3", "4"]
        with pytest.raises(DecodeError, match="a schema of type AVRO, and this schema is STRING"):
            messages[0].value()
        of_json = await client.subscribe("t", "json", schema=JsonSchema(None, "string"), **EARLIEST)
        assert values(await receive(of_json, 2)) == [DecodeError, DecodeError]


async def test_a_consumer_that_only_compares_types_does_without_the_registry() -> None:
    clock = ManualClock()
    async with client_of(_clock=clock, operation_timeout_seconds=5) as (broker, client):
        broker.topic("t").publish(b"1", schema_version=add_version(broker, "first"))
        broker.has_registry.clear()
        consumer = await client.subscribe("t", "s", schema=str, **EARLIEST)
        receiving = asyncio.create_task(receive(consumer, 1))
        await pass_time(clock, receiving.done, "the message is handed out")
        assert values(await receiving) == ["1"]


async def test_a_consumer_of_bytes_asks_for_no_schema() -> None:
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"1", None, schema_version=add_version(broker, "first"))
        consumer: aio.Consumer = await client.subscribe("t", "s", **EARLIEST)
        assert values(await receive(consumer, 2)) == [b"1", None]
        assert "schema" not in broker.calls
        assert not broker.requests[0].open[0].HasField("schema")
