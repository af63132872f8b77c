"""One connection: its handshake, the order of answers, when reading pauses, and the check of its liveness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from magnetar_broker.server.pulsar import connection
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandConnect,
    CommandGetLastMessageId,
    CommandLookupTopic,
    CommandPing,
    CommandPong,
    CommandProducer,
    CommandSubscribe,
    ServerError,
)
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient, framed, sent
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

CONNECT = BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(client_version="c", protocol_version=19))
PING = BaseCommand(type=BaseCommand.PING, ping=CommandPing())
PONG = BaseCommand(type=BaseCommand.PONG, pong=CommandPong())
NO_REQUEST = 2**64 - 1


def kinds(client: PulsarClient) -> list[str]:
    return [BaseCommand.Type.Name(one.type) for one in client.answers]


async def refused(client: PulsarClient) -> str:
    """Return the error that the client gets before its connection is closed."""
    await client.wait_disconnected()
    [last] = client.answers[-1:]
    assert last.type == BaseCommand.ERROR
    assert last.error.request_id == NO_REQUEST
    return last.error.message


# How it begins.


async def test_the_lower_version_of_the_two_is_spoken() -> None:
    """WIRE-1."""

    async with running_pulsar_broker() as scene:
        for requested, expected in ((0, 0), (6, 6), (19, 19), (21, 21), (99, 21), (-5, -5)):
            connected = (await scene.raw_client().connect(protocol_version=requested)).connected
            assert connected.protocol_version == expected
            assert connected.max_message_size == 5_242_880
            assert connected.feature_flags.supports_topic_watchers


BROKEN: list[tuple[bytes, str]] = [
    (framed(PING), "before CONNECT"),
    (framed(PONG), "before CONNECT"),
    (framed(CONNECT) + framed(CONNECT), "CONNECT twice"),
    (framed(CONNECT) + framed(BaseCommand(type=BaseCommand.MESSAGE)), "not one that clients send"),
    (framed(CONNECT) + framed(BaseCommand(type=99)), "not one that clients send"),  # type: ignore[arg-type]
    (framed(CONNECT) + framed(BaseCommand()), "not one that clients send"),
    (framed(BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect())), "lacks a required field"),
    (
        framed(CONNECT) + framed(BaseCommand(type=BaseCommand.LOOKUP, lookup_topic=CommandLookupTopic(topic="t"))),
        "lacks a required field",
    ),
    (b"\0\0\0\4\0\0\0\0", "not one that clients send"),
    (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "uses HTTP"),
    (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", "uses TLS"),
    (b"\0\0\0\x09\0\0\0\x05\xff\xff\xff\xff\xff", "can't be decoded"),
    # Text that is no UTF-8.
    (b"\0\0\0\x0c\0\0\0\x08\x08\x02\x12\x04\x0a\x02\xff\xfe", "can't be decoded"),
]


async def test_protocol_error_is_reported_and_closes_only_its_connection() -> None:
    """WIRE-1."""

    async with running_pulsar_broker() as scene:
        other = await scene.pulsar_client()
        for data, error in BROKEN:
            client = scene.raw_client()
            client.send_bytes(data)
            assert error in await refused(client)
            client.send_bytes(framed(CONNECT))
        await other.open_producer()
        assert not other.is_disconnected
        # With nothing in it, it is as good as one with everything left out.
        client = scene.raw_client()
        client.send(BaseCommand(type=BaseCommand.CONNECT))
        await client.wait_for_answers(BaseCommand.CONNECTED)


async def test_commands_before_a_malformed_frame_are_executed() -> None:
    async with running_pulsar_broker() as scene:
        client, other = await scene.pulsar_client(), await scene.pulsar_client()
        name = (await client.open_producer()).producer_name
        client.send_bytes(sent(1, 0, entry(0, producer=name)) + b"\xff" * 8)
        assert "the maximum is" in await refused(client)
        await other.subscribe()
        await other.wait_delivered(1)


# What is answered.


async def test_immediate_responses_keep_request_order() -> None:
    async with running_pulsar_broker() as scene:
        client = scene.raw_client()
        closed = BaseCommand(
            type=BaseCommand.GET_LAST_MESSAGE_ID,
            get_last_message_id=CommandGetLastMessageId(consumer_id=1, request_id=7),
        )
        client.send(CONNECT, PING, closed, PING)
        await until(lambda: len(client.answers) == 4, "all is answered")
        assert kinds(client) == ["CONNECTED", "PONG", "PONG", "ERROR"]


@pytest.mark.usefixtures("no_turns")
async def test_responses_of_one_loop_iteration_use_one_write() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        before = client.transport.writes
        pings = 7  # so few that nobody looks how long they take
        client.send(*[PING] * pings)
        await client.wait_for_answers(BaseCommand.PONG, pings)
        assert client.transport.writes == before + 1


async def test_an_id_that_is_in_use_is_answered_as_it_stands() -> None:
    """WIRE-1: a client that had stopped waiting for the answer asks again."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        first = await client.open_producer()
        assert (await client.open_producer()).producer_name == first.producer_name
        await client.subscribe()
        await client.subscribe()
        [topic] = scene.broker_session.topics.loaded()
        assert len(topic.producers.connected()) == topic.subscriptions.consumers == 1
        commands = [
            BaseCommand(
                type=BaseCommand.PRODUCER, producer=CommandProducer(topic="new", producer_id=2, request_id=100)
            ),
            BaseCommand(
                type=BaseCommand.PRODUCER, producer=CommandProducer(topic="new", producer_id=2, request_id=101)
            ),
        ]
        client.send(*commands)  # it is being opened
        assert (await client.answer(101)).error.error == ServerError.SERVICE_NOT_READY
        assert (await client.answer(100)).type == BaseCommand.PRODUCER_SUCCESS


async def test_closing_producer_ignores_messages_and_is_not_open() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        name = (await client.open_producer()).producer_name
        [topic] = scene.broker_session.topics.loaded()
        for bookie in scene.bookies:
            bookie.hold()
        close = BaseCommand(
            type=BaseCommand.CLOSE_PRODUCER, close_producer=CommandCloseProducer(producer_id=1, request_id=100)
        )
        again = BaseCommand(
            type=BaseCommand.PRODUCER, producer=CommandProducer(topic="t", producer_id=1, request_id=101)
        )
        client.send_bytes(sent(1, 0, entry(0, producer=name)) + framed(close))
        await until(lambda: topic.log.pending_bytes > 0, "the entry is in flight")
        await asyncio.sleep(0)
        [producer] = client.producers.values()
        for number in range(1, 100):
            client.send_bytes(sent(1, number, entry(number, producer=name)))
        client.send(again)
        assert (await client.answer(101)).error.error == ServerError.SERVICE_NOT_READY
        for bookie in scene.bookies:
            bookie.resume()
        assert (await client.answer(100)).type == BaseCommand.SUCCESS
        assert [one.send_receipt.sequence_id for one in client.answers_of(BaseCommand.SEND_RECEIPT)] == [0]
        assert not producer.is_open


# When it is held.


@pytest.fixture
def no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading from a connection pauses only because of its own requests and entries."""
    monkeypatch.setattr(connection, "_MAX_TURN_S", 1e9)


async def held_by(options: dict[str, int], load: Callable[[PulsarClient], None]) -> None:
    async with running_pulsar_broker(**options) as scene:
        client = await scene.pulsar_client()
        name = (await client.open_producer(1, "t", producer_name="p", user_provided_producer_name=False)).producer_name
        assert name == "p"
        load(client)
        assert client.transport.pauses
        client.send(PING)
        await client.wait_for_answers(BaseCommand.PONG)  # it was read on
        await until(lambda: not client.transport.is_reading_paused, "it is read")


def _publish(client: PulsarClient) -> None:
    client.publish(1, *range(200), name="p")


def _publish_twice(client: PulsarClient) -> None:
    """The topic has capacity for the first piece, but not for the second."""
    _publish(client)
    client.publish(1, *range(200, 400), name="p")


def _ask(client: PulsarClient) -> None:
    lookups = [CommandLookupTopic(topic="t", request_id=100 + number) for number in range(200)]
    client.send(*[BaseCommand(type=BaseCommand.LOOKUP, lookup_topic=one) for one in lookups])


@pytest.mark.usefixtures("no_turns")
async def test_a_connection_that_has_too_much_undecided_is_held() -> None:
    await held_by({"max_pending_publish_bytes_per_connection": 1000}, _publish)


@pytest.mark.usefixtures("no_turns")
async def test_pending_publish_limit_of_topic_pauses_reading() -> None:
    """By more than its share: an eighth of what the connection may have."""
    share = 100 * ENTRY_OVERHEAD_BYTES
    bounds = {"max_pending_publish_bytes_per_topic": 1000, "max_pending_publish_bytes_per_connection": 8 * share}
    await held_by(bounds, _publish_twice)
    with pytest.raises(AssertionError, match="pauses"):
        await held_by({"max_pending_publish_bytes_per_topic": 1000}, _publish_twice)


@pytest.mark.usefixtures("no_turns")
async def test_a_connection_is_held_by_the_memory_of_small_entries() -> None:
    """CHK-68: 200 entries of some 20 bytes take more than 20,000 bytes."""
    await held_by({"max_pending_publish_bytes_per_connection": 20_000}, _publish)


@pytest.mark.usefixtures("no_turns")
async def test_pending_request_limit_pauses_reading() -> None:
    await held_by({"max_waiting_requests_per_connection": 10}, _ask)


@pytest.mark.usefixtures("no_turns")
async def test_a_connection_without_any_of_that_is_not_held() -> None:
    with pytest.raises(AssertionError, match="pauses"):
        await held_by({}, _publish)
    with pytest.raises(AssertionError, match="pauses"):
        await held_by({}, _ask)


PINGS = framed(PING) * 3_000


async def flooded(client: PulsarClient) -> None:
    """With PING, until it is not read on, because it takes no answers."""
    client.stop_reading()
    for _ in range(100):
        client.send_bytes(PINGS)
        await asyncio.sleep(0)
        await until(lambda: not client.transport.is_reading_paused or client.session.is_behind, "others had their turn")
        if client.session.is_behind:
            break


@pytest.mark.usefixtures("no_turns")
async def test_a_client_that_does_not_take_answers_is_not_read_and_others_are() -> None:
    """WIRE-1: what it costs is bounded, however much it asks."""

    async with running_pulsar_broker(max_queued_bytes_per_stream=65536, max_waiting_answers_bytes=262144) as scene:
        client, other = await scene.pulsar_client(), await scene.pulsar_client()
        await flooded(client)
        assert client.session.is_behind
        assert client.session.waiting_bytes < 262_144 + 65_536 + 2 * len(PINGS)
        assert scene.context.server.outbox_budget.queued_bytes >= client.session.waiting_bytes
        await other.open_producer()
        client.read_on()
        client.send(PING)
        await until(lambda: not client.transport.is_reading_paused, "it is read on")


@pytest.mark.usefixtures("no_turns")
async def test_where_all_answers_together_are_too_many_each_may_have_little() -> None:
    async with running_pulsar_broker(max_queued_bytes=400000) as scene:
        first, second = await scene.pulsar_client(), await scene.pulsar_client()
        for client in (first, second):
            await flooded(client)
        assert first.session.waiting_bytes > 400_000
        assert 262_144 < second.session.waiting_bytes < 262_144 + 2 * len(PINGS)


@pytest.mark.usefixtures("no_turns")
async def test_reading_resumes_when_responses_are_written_immediately() -> None:
    """The transport reports nothing if its buffer was never full."""

    async with running_pulsar_broker(max_queued_bytes_per_stream=1, max_waiting_answers_bytes=262144) as scene:
        client = await scene.pulsar_client()
        client.send_bytes(PINGS * 10)  # more than may wait, and all of it is taken in one go
        client.send(PING)
        await client.wait_for_answers(BaseCommand.PONG, 30_001)
        assert client.transport.pauses


async def test_consumer_dispatch_resumes_when_write_buffer_drains() -> None:
    """CON-1, WIRE-1: however little may wait."""

    async with running_pulsar_broker(max_queued_bytes_per_stream=65536) as scene:
        client, slow = await scene.pulsar_client(), await scene.pulsar_client()
        opened = await client.open_producer()
        client.publish(1, *range(20), name=opened.producer_name, payload=b"x" * 30_000)
        await client.receipts(1, 20)
        await slow.subscribe(permits=0)
        slow.stop_reading()
        slow.flow(1, 1_000)
        await until(lambda: slow.transport.get_write_buffer_size() > 65_536, "more waits than may")
        slow.read_on()
        await slow.wait_delivered(20)


async def test_many_buffered_commands_yield_to_the_event_loop() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            if len(client.answers) < 30_001:
                asyncio.get_running_loop().call_soon(turn)

        client.send_bytes(PINGS * 10)
        turn()
        await client.wait_for_answers(BaseCommand.PONG, 30_000)
        assert turns > 3


# Liveness.


async def test_unresponsive_connection_is_pinged_and_closed() -> None:
    """WIRE-1: keep-alive."""

    async with running_pulsar_broker(keep_alive_interval_seconds=0.1) as scene:
        silent, lively = await scene.pulsar_client(), await scene.pulsar_client()
        lively.answers_pings = True
        await silent.wait_disconnected()
        await lively.wait_for_answers(BaseCommand.PING, 3)
        assert silent.answers_of(BaseCommand.PING)
        assert not lively.is_disconnected


async def test_connection_without_connect_command_is_closed() -> None:
    async with running_pulsar_broker(keep_alive_interval_seconds=0.2) as scene:
        client = scene.raw_client()
        for byte in (100).to_bytes(4, "big") + (96).to_bytes(4, "big") + b"\x08\x02" * 48:
            client.send_bytes(bytes((byte,)))
            await asyncio.sleep(0.01)
            if client.is_disconnected:
                break
        assert client.is_disconnected


async def test_paused_connection_of_non_reading_client_is_closed() -> None:
    async with running_pulsar_broker(
        max_queued_bytes_per_stream=1, max_waiting_answers_bytes=262144, keep_alive_interval_seconds=0.2
    ) as scene:
        client = await scene.pulsar_client()
        await flooded(client)
        await client.wait_disconnected()


async def test_connection_paused_by_slow_bookies_is_not_closed() -> None:
    """A producer whose topic is slow is not taken for dead, and keeps its name."""

    async with running_pulsar_broker(
        max_pending_publish_bytes_per_connection=1000, connection_liveness_check_timeout_millis=50
    ) as scene:
        client, other = await scene.pulsar_client(), await scene.pulsar_client()
        await client.open_producer(1, producer_name="p")
        for bookie in scene.bookies:
            bookie.hold()
        client.publish(1, *range(100), name="p")
        await until(lambda: client.transport.is_reading_paused, "it is held")
        command = CommandProducer(topic="t", producer_id=1, request_id=other.request_id(), producer_name="p")
        answer = await other.ask(BaseCommand.PRODUCER, producer=command)
        assert answer.error.error == ServerError.PRODUCER_BUSY
        for bookie in scene.bookies:
            bookie.resume()
        await client.receipts(1, 100)


@pytest.mark.parametrize("answers", [True, False])
async def test_unresponsive_client_loses_producer_name_and_subscription(answers: bool) -> None:
    """WIRE-1, PRD-11, SUB-1: a connection that broke unseen does not keep its names."""

    async with running_pulsar_broker(connection_liveness_check_timeout_millis=100) as scene:
        holder, other = await scene.pulsar_client(), await scene.pulsar_client()
        holder.answers_pings = answers
        await holder.open_producer(1, producer_name="p")
        await holder.subscribe()
        produce = CommandProducer(topic="t", producer_id=1, request_id=other.request_id(), producer_name="p")
        opened = await other.ask(BaseCommand.PRODUCER, producer=produce)
        consume = CommandSubscribe(
            topic="t", subscription="s", sub_type=0, consumer_id=1, request_id=other.request_id()
        )
        subscribed = await other.ask(BaseCommand.SUBSCRIBE, subscribe=consume)
        if answers:
            assert opened.error.error == ServerError.PRODUCER_BUSY
            assert subscribed.error.error == ServerError.CONSUMER_BUSY
        else:
            assert opened.type == BaseCommand.PRODUCER_SUCCESS
            assert subscribed.type == BaseCommand.SUCCESS
        assert holder.is_disconnected is not answers
