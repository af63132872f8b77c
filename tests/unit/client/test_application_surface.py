"""What an application meets besides options: names of Pulsar's client, `repr`, iteration, pickling, listeners."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import logging
import pickle
import re
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest

import magnetar
from magnetar import ConsumerType, Message, MessageId, aio
from magnetar.admin import Admin, AsyncAdmin
from magnetar.exceptions import InvalidConfiguration, InvalidMessage, OperationNotSupported, Timeout
from tests.running import GENEROUS_S
from tests.unit.client.consume_scene import client_of, receive
from tests.unit.client.scene import URL, sync_scene
from tests.unit.client.scene import scene as producer_scene
from tests.unit.client.sync_consume_scene import EARLIEST, sync_consume_scene

# What Pulsar's package imports for itself.
_NOT_THEIR_OWN = frozenset(
    {"Callable", "List", "Optional", "Tuple", "Union", "functools", "logging", "re", "timedelta"}
)
# A part of Pulsar's package for its Functions, which run in Pulsar; its C++ library's classes under other names.
_LEFT_OUT = frozenset(
    {
        *("Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe", "functions"),
        *("BatchReceivePolicy", "DeadLetterPolicyBuilder", "KeySharedPolicy", "MessageBatch"),
        *("pulsar", "tableview"),
    }
)


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("kind", ["Client", "Producer", "Consumer", "Reader", "TableView", "Message", "MessageId"])
def test_every_method_of_the_stock_client_is_there(kind: str) -> None:
    pulsar = pytest.importorskip("pulsar")
    theirs = public(getattr(pulsar, kind))
    assert theirs - public(getattr(magnetar, kind)) == set()
    if kind not in ("Message", "MessageId"):
        assert theirs - public(getattr(aio, kind)) == set()


def test_every_name_of_the_stock_package_is_there() -> None:
    pulsar = pytest.importorskip("pulsar")
    pulsar_asyncio = pytest.importorskip("pulsar.asyncio")
    missing = {name for name in public(pulsar) if not hasattr(magnetar, name)}
    missing |= {name for name in public(pulsar_asyncio) - {"asyncio", "Any"} if not hasattr(magnetar.asyncio, name)}
    assert missing - _NOT_THEIR_OWN == _LEFT_OUT


def test_every_name_of_the_stock_package_of_schemas_is_there() -> None:
    stock_schemas = pytest.importorskip("pulsar.schema")
    modules = {"definition", "schema", "schema_avro", "schema_protobuf"}
    assert public(stock_schemas) - modules - set(magnetar.schema.__all__) == set()
    for name in magnetar.schema.__all__:
        assert hasattr(magnetar.schema, name)
    with pytest.raises(AttributeError, match="AvroSchemas"):
        magnetar.schema.AvroSchemas  # noqa: B018


async def test_unsupported_method_error_names_an_alternative() -> None:
    expected = r"ServiceInfo .*: name every broker in the service URL"
    with magnetar.Client(URL) as client, pytest.raises(OperationNotSupported, match=expected):
        client.get_service_info()

    async with producer_scene() as (_, client):
        with pytest.raises(OperationNotSupported, match="name every broker"):
            client.get_service_info()
        producer = await client.create_producer("t")
        with pytest.raises(OperationNotSupported, match=r"await send\(…\)"):
            producer.send_async(b"x", None)


class _AsyncCallable:
    async def __call__(self, consumer: object, message: object) -> None: ...


async def _listen(consumer: object, message: object) -> None: ...


@pytest.mark.parametrize("listener", [_listen, functools.partial(_listen), _AsyncCallable()])
async def test_a_coroutine_function_is_no_listener_of_a_synchronous_consumer(listener: Any) -> None:
    with sync_consume_scene() as made:
        with pytest.raises(InvalidConfiguration, match=r"message_listener = .* coroutine function, .* magnetar.aio"):
            made.client.subscribe("t", "s", message_listener=listener)
        with pytest.raises(InvalidConfiguration, match=r"reader_listener = .* coroutine function"):
            made.client.create_reader("t", MessageId.earliest, reader_listener=listener)
        made.client.subscribe("t", "s").close()  # nobody has it

    async with client_of() as (_, client):
        await client.subscribe("t", "s", message_listener=listener)
        with pytest.raises(InvalidConfiguration, match="reader_listener = 7 can't be called"):
            await client.create_reader("t", MessageId.earliest, reader_listener=7)  # type: ignore[arg-type]


def test_a_coroutine_that_a_synchronous_listener_returns_is_closed_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with sync_consume_scene() as made, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ended = threading.Event()

        def listen(consumer: object, message: Message) -> object:
            if message.data() == b"3":
                ended.set()
                return None
            return _listen(consumer, message)

        consumer = made.client.subscribe("t", "s", message_listener=listen, **EARLIEST)
        made.publish_each(4)
        assert ended.wait(GENEROUS_S)
        consumer.close()
        gc.collect()
    (logged,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert re.match(r"the listener of persistent://public/default/t returned <coroutine .*never awaits", logged)
    assert [one for one in warned if "never awaited" in str(one.message)] == []


def test_a_synchronous_consumer_is_iterated_until_it_is_closed() -> None:
    """CON-2"""
    with sync_consume_scene() as made:
        consumer = made.client.subscribe("t", "s", **EARLIEST)
        made.publish_each(3)
        seen = []
        for message in consumer:
            seen.append(message.data())
            consumer.acknowledge(message)
            if len(seen) == 3:
                threading.Timer(0.05, consumer.close).start()
        assert seen == [b"0", b"1", b"2"]
        assert list(consumer) == []
        listening = made.client.subscribe("t", "other", message_listener=lambda *_: None)
        with pytest.raises(InvalidConfiguration, match="message_listener"):
            next(listening)


def test_reprs_of_the_synchronous_client() -> None:
    with sync_scene() as made:
        client = made.client()
        producer = client.create_producer("t", producer_name="me")
        topic = "topic='persistent://public/default/t'"
        assert repr(client) == f"Client('{URL}')"
        assert repr(producer) == f"Producer({topic}, producer_name='me', is_connected=True, last_sequence_id=-1)"
        client.close()
        assert repr(client) == f"Client('{URL}', closed)"
        assert "is_connected=False" in repr(producer)
    with sync_consume_scene() as consuming:
        named: dict[str, Any] = {"consumer_name": "me"}
        consumer = consuming.client.subscribe("t", "s", **EARLIEST, **named)
        assert repr(consumer) == f"Consumer({topic}, subscription_name='s', consumer_name='me', is_connected=True)"
        assert repr(consuming.client.create_reader("t", MessageId.earliest)) == f"Reader({topic}, is_connected=True)"
        many = consuming.client.subscribe([f"t{number}" for number in range(50)], "s")
        assert "…, subscription_name='s'" in repr(many)
        assert len(repr(many)) < 300


def test_reprs_of_administrators() -> None:
    assert repr(AsyncAdmin(URL)) == f"AsyncAdmin('{URL}')"
    with Admin(URL) as admin:
        assert repr(admin) == f"Admin('{URL}')"
    assert repr(admin) == f"Admin('{URL}', closed)"


def test_clients_producers_consumers_and_readers_cannot_be_pickled() -> None:
    """The error has a reason, and what to do: Spark and multiprocessing pickle what a function refers to."""
    with sync_scene() as made, Admin(URL) as admin:
        client = made.client()
        producer = client.create_producer("t")
        for holder in (client, producer, admin, AsyncAdmin(URL), aio.Client(URL)):
            refused = rf"^{type(holder).__name__} objects can't be pickled .*create one in each process$"
            for work in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=refused):
                    work(holder)
        client.close()
    with sync_consume_scene() as consuming:
        reader = consuming.client.create_reader("t", MessageId.earliest)
        for front in (consuming.client.subscribe("t", "s"), reader):
            with pytest.raises(TypeError, match=rf"^{type(front).__name__} objects can't be pickled"):
                pickle.dumps(front)


async def test_reprs_of_the_asyncio_client_and_of_messages() -> None:
    async with producer_scene() as (_, client):
        producer = await client.create_producer("t", producer_name="me")
        assert repr(client) == f"aio.Client('{URL}')"
        assert repr(producer).startswith("Producer(topic='persistent://public/default/t', producer_name='me', ")
    assert repr(client) == f"aio.Client('{URL}', closed)"
    async with client_of() as (broker, client):
        consumer = await client.subscribe("t", "s", **EARLIEST, consumer_name="me")
        reader = await client.create_reader("t", MessageId.earliest)
        assert repr(consumer).startswith("Consumer(topic='persistent://public/default/t', subscription_name='s', ")
        assert repr(reader).startswith("Reader(topic='persistent://public/default/t', is_connected=")
        broker.topic("t").publish(b"hello", keys=["k"])
        broker.topic("t").publish(b"x" * 100)
        broker.topic("t").publish(None)
        one, long, null = await receive(consumer, 3)
        tail = "topic_name='persistent://public/default/t'"
        assert repr(one) == f"Message(data=b'hello', message_id=(7,0,-1,-1), {tail}, partition_key='k')"
        assert repr(long) == f"Message(data={b'x' * 64!r}… 100 bytes, message_id=(7,1,-1,-1), {tail})"
        assert repr(null) == f"Message(data=None, message_id=(7,2,-1,-1), {tail})"
        assert repr(one.message_id()).startswith("MessageId(partition=-1, ledger_id=7, entry_id=0, batch_index=-1")


def every_fact(message: Message) -> list[Any]:
    """What each of its methods returns."""
    return [
        message.data(),
        message.value(),
        message.has_null_value(),
        message.properties(),
        message.partition_key(),
        message.key_bytes(),
        message.has_key(),
        message.ordering_key(),
        message.publish_timestamp(),
        message.event_timestamp(),
        message.broker_publish_timestamp(),
        message.index(),
        message.message_id(),
        message.message_id().batch_size(),
        message.topic_name(),
        message.redelivery_count(),
        message.producer_name(),
        message.sequence_id(),
        message.schema_version(),
        repr(message),
    ]


# Read a pickled message, and write it pickled again with all of its fields.
_OTHER_PROCESS = """
import pickle, sys
message = pickle.load(sys.stdin.buffer)
pickle.dump((message, message.data(), message.properties()), sys.stdout.buffer)
"""


def in_other_process(pickled: bytes) -> bytes:
    command = [sys.executable, "-W", "error", "-c", _OTHER_PROCESS]
    done = subprocess.run(command, input=pickled, capture_output=True, timeout=60)
    assert done.stderr == b""
    return done.stdout


async def test_a_message_is_pickled() -> None:
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"one", time_ms=77, keys=["k"], properties=[{"a": "b"}], event_times=[5])
        topic.publish(b"two", None, b"", keys=[b"\xff", None, "x"], ordering_keys=[b"o", None, None])
        topic.publish(b"three", b"four", sequence_ids=[17, 19])
        consumer = await client.subscribe("t", "s", **EARLIEST)
        messages = await receive(consumer, 6)
        for message in messages:
            restored = pickle.loads(pickle.dumps(message))
            assert every_fact(restored) == every_fact(message)
        pickled = pickle.dumps(messages[0])
        facts = every_fact(messages[0])
    done = await asyncio.to_thread(in_other_process, pickled)
    back, data, properties = pickle.loads(done)
    assert (data, properties) == (b"one", {"a": "b"})
    assert every_fact(back) == facts


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared])
async def test_a_message_that_was_pickled_is_acknowledged_by_its_id(kind: ConsumerType) -> None:
    """One message of a batch, one of its own, and one that is refused; by another consumer."""
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"one", b"two")
        broker.topic("t").publish(b"three")
        broker.topic("t").publish(b"four")
        consumer = await client.subscribe("t", "s", kind, **EARLIEST)
        pickled = [pickle.dumps(message) for message in await receive(consumer, 4)]
        await consumer.close()
        one, two, three, four = map(pickle.loads, pickled)
        consumer = await client.subscribe("t", "s", kind, negative_ack_redelivery_delay_ms=0, **EARLIEST)
        assert [message.data() for message in await receive(consumer, 4)] == [b"one", b"two", b"three", b"four"]
        await consumer.acknowledge([one, three], receipt=True)
        await consumer.negative_acknowledge(two)
        if kind is ConsumerType.Exclusive:
            assert [message.data() for message in await receive(consumer, 2)] == [b"two", b"four"]
            await consumer.acknowledge_cumulative(four, receipt=True)
        else:
            assert (await consumer.receive(60_000)).data() == b"two"
        other = await client.subscribe("other", "s", kind)
        with pytest.raises(InvalidMessage, match="does not read"):
            await other.acknowledge(one)


async def test_a_late_receive_names_every_topic_and_partition() -> None:
    async with client_of() as (broker, client):
        broker.partitioned["persistent://public/default/parted"] = 5
        topics = ["a", "b", "parted", "c-partition-3"]
        consumer = await client.subscribe(topics, "s")
        with pytest.raises(Timeout) as late:
            await consumer.receive(1)
        full = "persistent://public/default"
        named = f"{full}/a, {full}/b, {full}/parted (partitions 0 to 4), {full}/c-partition-3"
        assert str(late.value) == f"no message of {named} came within 1 ms"
        reader = await client.create_reader("parted", MessageId.earliest)
        with pytest.raises(Timeout, match=r"parted \(partitions 0 to 4\) came"):
            await reader.read_next(1)
    with sync_consume_scene() as made:
        sync_consumer = made.client.subscribe(["a", "b", "c", "d"], "s")
        with pytest.raises(Timeout, match=r"a, .*/b, .*/c, .*/d came within 1 ms"):
            sync_consumer.receive(1)
