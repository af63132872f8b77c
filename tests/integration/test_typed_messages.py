"""Dataclasses and pydantic models as messages, on a real standalone (SCH-3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from magnetar import DecodeFailureAction, InitialPosition, MessageId, aio
from magnetar.exceptions import DecodeError, EncodeError, IncompatibleSchema
from magnetar.schema import (
    AutoConsumeSchema,
    AutoProduceBytesSchema,
    AvroSchema,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    StringSchema,
)
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S, run

pytestmark = pytest.mark.slow

EARLIEST: Any = {"initial_position": InitialPosition.Earliest}
LONG_MS = int(GENEROUS_S * 1000)


class Reading(BaseModel):
    sensor: str
    celsius: float


@dataclass
class Plain:
    sensor: str
    celsius: float


class Later(BaseModel):
    """The next version of `Reading`."""

    _avro_name: ClassVar[str] = "Reading"
    sensor: str
    celsius: float
    humidity: float = 0.5
    note: str | None = None


class Other(BaseModel):
    _avro_name: ClassVar[str] = "Reading"
    sensor: int
    celsius: float


@pytest.mark.parametrize("wrap", [lambda cls: cls, JsonSchema], ids=["avro", "json"])
@pytest.mark.parametrize("cls", [Reading, Plain])
def test_values_arrive_as_they_were_sent(
    magnetar_standalone: StandaloneProcess, magnetar_topic: str, wrap: Callable[[Any], Any], cls: Any
) -> None:
    """In batches and one by one, on a partitioned topic, to consumers and readers."""
    sent = [cls(sensor=f"s{number}", celsius=number / 2) for number in range(20)]
    with magnetar_standalone.admin() as admin:
        admin.topics.create_partitioned(magnetar_topic, 2)
    with magnetar_standalone.client() as client:
        producer = client.create_producer(magnetar_topic, schema=wrap(cls))
        for value in sent[:10]:
            producer.send_async(value)
        for value in sent[10:]:
            producer.send(value, partition_key=value.sensor)
        consumer = client.subscribe(magnetar_topic, "s", schema=wrap(cls), **EARLIEST)
        reader = client.create_reader(magnetar_topic, MessageId.earliest, schema=wrap(cls))
        for messages in (
            [consumer.receive(LONG_MS) for _ in sent],
            [reader.read_next(LONG_MS) for _ in sent],
        ):
            assert sorted((message.value() for message in messages), key=lambda one: one.celsius) == sent
            assert {message.schema_version() for message in messages} == {bytes(8)}
        with pytest.raises(IncompatibleSchema, match="sensor"):
            client.create_producer(magnetar_topic, schema=wrap(Other))
        with pytest.raises(IncompatibleSchema, match="sensor"):
            client.subscribe(magnetar_topic, "other", schema=wrap(Other))


def test_a_schema_evolves_while_consumers_run(magnetar_standalone: StandaloneProcess, magnetar_topic: str) -> None:
    """An older and a newer consumer read both versions, as they come."""
    with magnetar_standalone.client() as client:
        older = client.create_producer(magnetar_topic, schema=Reading)
        consumers: list[Any] = [client.subscribe(magnetar_topic, "old", schema=Reading, **EARLIEST)]
        older.send(Reading(sensor="a", celsius=1.0))
        assert consumers[0].receive(LONG_MS).value() == Reading(sensor="a", celsius=1.0)
        newer = client.create_producer(magnetar_topic, schema=Later)
        newer.send(Later(sensor="b", celsius=2.0, humidity=0.25, note="n"))
        older.send(Reading(sensor="c", celsius=3.0))
        assert [consumers[0].receive(LONG_MS).value() for _ in range(2)] == [
            Reading(sensor="b", celsius=2.0),
            Reading(sensor="c", celsius=3.0),
        ]
        consumers.append(client.subscribe(magnetar_topic, "new", schema=Later, **EARLIEST))
        messages = [consumers[1].receive(LONG_MS) for _ in range(3)]
        assert [message.value() for message in messages] == [
            Later(sensor="a", celsius=1.0),
            Later(sensor="b", celsius=2.0, humidity=0.25, note="n"),
            Later(sensor="c", celsius=3.0),
        ]
        assert [(message.schema_version() or b"")[-1] for message in messages] == [0, 1, 0]


def test_a_recreated_topic_begins_with_another_schema(
    magnetar_standalone: StandaloneProcess, magnetar_topic: str
) -> None:
    """A consumer and a producer that were there before go on; the version's number is the same, its definition not."""
    with magnetar_standalone.client() as client, magnetar_standalone.admin() as admin:
        producer = client.create_producer(magnetar_topic, schema=Reading)
        consumer = client.subscribe(magnetar_topic, "s", schema=Later, **EARLIEST)
        producer.send(Reading(sensor="a", celsius=1.0))
        old = consumer.receive(LONG_MS)
        producer.close()
        admin.topics.delete(magnetar_topic, force=True)
        again = client.create_producer(magnetar_topic, schema=Later)
        again.send(Later(sensor="b", celsius=2.0, note="n"))
        new = consumer.receive(LONG_MS)
        assert new.schema_version() == old.schema_version()
        assert new.value() == Later(sensor="b", celsius=2.0, note="n")
        assert old.value() == Later(sensor="a", celsius=1.0)


def test_schemas_that_are_no_records(magnetar_standalone: StandaloneProcess, magnetar_topic: str) -> None:
    """Keys in the message's key, values of every schema as they come, and payloads that were encoded elsewhere."""
    pairs = KeyValueSchema(StringSchema(), AvroSchema(Reading), KeyValueEncodingType.SEPARATED)
    value = Reading(sensor="a", celsius=1.0)
    with magnetar_standalone.client() as client:
        producer = client.create_producer(magnetar_topic, schema=pairs)
        producer.send(KeyValue("k", value))
        producer.send(KeyValue("k", None))
        consumer = client.subscribe(magnetar_topic, "s", schema=pairs, **EARLIEST)
        message = consumer.receive(LONG_MS)
        assert (message.value(), message.key_bytes()) == (KeyValue("k", value), b"k")
        assert consumer.receive(LONG_MS).value() == KeyValue("k", None)
        other = magnetar_topic + "-other"
        client.create_producer(other, schema=Reading).send(value)
        encoded = client.create_producer(other, schema=AutoProduceBytesSchema())
        encoded.send(AvroSchema(Reading).encode(value))
        with pytest.raises(EncodeError):
            encoded.send(b"\xff")
        anything = client.subscribe(other, "s", schema=AutoConsumeSchema(), **EARLIEST)
        for _ in range(2):
            assert anything.receive(LONG_MS).value() == {"sensor": "a", "celsius": 1.0}


class Strict(BaseModel):
    _avro_name: ClassVar[str] = "Reading"
    sensor: str
    celsius: float = Field(ge=-273.15)


async def _skip(server: StandaloneProcess, topic: str) -> None:
    async with aio.Client(server.service_url) as client:
        producer = await client.create_producer(topic, schema=Reading)
        values = [
            Reading(sensor="a", celsius=1.0),
            Reading(sensor="b", celsius=-300.0),
            Reading(sensor="c", celsius=2.0),
        ]
        await asyncio.gather(*map(producer.send, values))
        consumer = await client.subscribe(topic, "raise", schema=Strict, **EARLIEST)
        messages = [await consumer.receive(LONG_MS) for _ in values]
        with pytest.raises(DecodeError, match="celsius: Input should be greater"):
            messages[1].value()
        assert messages[1].data() != b""
        assert messages[2].value() == Strict(sensor="c", celsius=2.0)
        skipping = await client.subscribe(
            topic, "skip", schema=Strict, decode_failure_action=DecodeFailureAction.SKIP, **EARLIEST
        )
        received = [await skipping.receive(LONG_MS) for _ in range(2)]
        assert [message.value().sensor for message in received] == ["a", "c"]
        await skipping.acknowledge(received, receipt=True)
    with server.admin() as admin:
        backlogs = {one.subscription: one.backlog_messages for one in admin.topics.stats(topic).subscriptions}
        assert backlogs == {"raise": 3, "skip": 0}


def test_asyncio_and_messages_that_do_not_validate(magnetar_standalone: StandaloneProcess, magnetar_topic: str) -> None:
    run(_skip(magnetar_standalone, magnetar_topic))
