"""What a client may send that no library does: it is answered or refused, costs little, and harms nobody else."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker.server.pulsar.incomplete_frames import IncompleteFrames
from magnetar_broker.topics.dispatch.delivery_capacity import DeliveryCapacity
from magnetar_protos.entry_pb2 import KeyValue, MessageIdData
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandLookupTopic,
    CommandPing,
    CommandProducer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSubscribe,
    ServerError,
)
from tests.produce_client import entry
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient, sent
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

MEGABYTE = 1_000_000
PING = BaseCommand(type=BaseCommand.PING, ping=CommandPing())


async def published(client: PulsarClient, count: int) -> list[MessageIdData]:
    name = (await client.open_producer()).producer_name
    client.publish(1, *range(count), name=name)
    return [one.message_id for one in await client.receipts(1, count)]


def ack(ids: list[MessageIdData], **parts: int) -> BaseCommand:
    command = CommandAck(consumer_id=1, ack_type=CommandAck.INDIVIDUAL, message_id=ids, **parts)
    return BaseCommand(type=BaseCommand.ACK, ack=command)


# Very much of something.


async def test_megabyte_of_message_ids_delays_only_its_own_connection() -> None:
    """WIRE-1: other connections are served in the meantime."""

    async with running_pulsar_broker() as scene:
        client, other = await scene.pulsar_client(), await scene.pulsar_client()
        ids = await published(client, 10)
        await client.subscribe()
        await client.wait_delivered(10)
        many = [MessageIdData(ledgerId=ids[0].ledgerId, entryId=2 * at + 100) for at in range(60_000)]
        client.send(ack([*many, *ids], request_id=50), PING)
        other.send(PING)
        await other.wait_for_answers(BaseCommand.PONG)
        assert not client.answers_of(BaseCommand.PONG)
        await client.wait_for_answers(BaseCommand.PONG)
        assert not (await client.answer(50)).ack_response.HasField("error")
        again = CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[*many, *ids])
        client.send(
            BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliver_unacknowledged_messages=again)
        )
        client.send(PING)
        await client.wait_for_answers(BaseCommand.PONG, 2)
        await client.close_consumer()
        await client.subscribe(2)
        client.publish(1, 10, name=(await client.open_producer()).producer_name)
        await client.wait_delivered(1, consumer_id=2)
        assert len(client.delivered) == 11  # all that was acknowledged stays so


async def test_the_number_of_ids_at_once_can_be_set() -> None:
    async with running_pulsar_broker(max_message_ids_at_once=9) as scene:
        client = await scene.pulsar_client()
        await client.subscribe()
        client.send(ack([MessageIdData(ledgerId=1, entryId=at) for at in range(10)]))
        assert client.transport.pauses == 1
        client.send(PING)
        await client.wait_for_answers(BaseCommand.PONG)


async def test_oversized_ack_set_is_applied_up_to_batch_size() -> None:
    """In time that does not grow with the square of it."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        name = (await client.open_producer()).producer_name
        client.send_bytes(sent(1, 0, entry(0, b"x" * 60, name, num_messages_in_batch=10)))
        [receipt] = await client.receipts(1, 1)
        await client.subscribe()
        await client.wait_delivered(1)
        position = receipt.message_id
        # Encoded here: one byte per word.
        words = bytes([0b11]) + b"\x01" * MEGABYTE
        id_ = MessageIdData(ledgerId=position.ledgerId, entryId=position.entryId).SerializeToString()
        field = b"\x2a" + varint(len(words)) + words
        ids = b"\x1a" + varint(len(id_) + len(field)) + id_ + field
        ack_part = b"\x08\x01\x10\x00" + ids + b"\x40\x09"
        command = b"\x08\x0a\x52" + varint(len(ack_part)) + ack_part
        client.send_bytes((len(command) + 4).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command)
        assert not (await client.answer(9)).ack_response.HasField("error")
        await client.close_consumer()
        await client.subscribe(2)
        [again] = await client.wait_delivered(1, consumer_id=2)
        assert again.open_messages == (0b11,)
        # As a position to seek to: the first unacknowledged message.
        position.ack_set.extend([0b10] * 400_000)
        answer = await client.seek(2, message_id=position)
        assert answer.type == BaseCommand.SUCCESS


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes((value,))


async def test_permits_without_end_are_as_good_as_many() -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await client.subscribe(permits=0)
        for _ in range(1_000):
            client.flow(1, 2**32 - 1)
        await published(client, 100)
        await client.wait_delivered(100)
        client.flow(99, 2**32 - 1)
        assert not client.is_disconnected


def huge_commands() -> list[BaseCommand]:
    return [
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=CommandSubscribe(topic="t", subscription="s" * MEGABYTE, sub_type=0, consumer_id=1, request_id=9),
        ),
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=CommandSubscribe(
                topic="t", subscription="s", consumer_name="c" * MEGABYTE, sub_type=0, consumer_id=1, request_id=9
            ),
        ),
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=CommandSubscribe(topic="t" * MEGABYTE, subscription="s", sub_type=0, consumer_id=1, request_id=9),
        ),
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=CommandSubscribe(
                topic="t",
                subscription="s",
                sub_type=0,
                consumer_id=1,
                request_id=9,
                subscription_properties=[KeyValue(key="k", value="v" * MEGABYTE)],
            ),
        ),
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=CommandProducer(topic="t", producer_id=1, request_id=9, producer_name="p" * MEGABYTE),
        ),
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=CommandProducer(
                topic="t",
                producer_id=1,
                request_id=9,
                metadata=[KeyValue(key=f"{at}", value="value") for at in range(50_000)],
            ),
        ),
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=CommandProducer(topic="t", producer_id=1, request_id=9, initial_subscription_name="s" * MEGABYTE),
        ),
        BaseCommand(
            type=BaseCommand.LOOKUP,
            lookup_topic=CommandLookupTopic(topic="t", request_id=9, advertised_listener_name="l" * MEGABYTE),
        ),
        BaseCommand(type=BaseCommand.LOOKUP, lookup_topic=CommandLookupTopic(topic="t" * MEGABYTE, request_id=9)),
    ]


async def test_names_and_properties_of_a_megabyte_are_refused_in_few_words() -> None:
    """WIRE-1, and the connection goes on."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        for command in huge_commands():
            client.answers.clear()
            client.send(command)
            answer = await client.answer(9)
            assert answer.type == BaseCommand.ERROR or answer.lookup_topic_response.HasField("error")
            assert answer.ByteSize() < 3_000
        assert not client.producers
        assert not client.consumers
        assert (await client.lookup("t")).lookup_topic_response.broker_service_url


async def test_entries_that_are_refused_or_passed_over_leave_no_trace() -> None:
    async with running_pulsar_broker(max_waiting_requests_per_connection=500) as scene:
        client = await scene.pulsar_client()
        name = (await client.open_producer()).producer_name
        bad = b"".join(sent(1, at, b"no entry") for at in range(2_000))
        client.send_bytes(bad)
        await client.wait_for_answers(BaseCommand.SEND_ERROR, 2_000)
        [producer] = client.producers.values()
        assert producer.topic is not None
        assert client.session.pending_publish_bytes == 0
        for bookie in scene.bookies:
            bookie.hold()
        client.publish(1, 0, name=name)
        for _ in range(100):
            client.send_bytes(bad)  # answered after it
            await asyncio.sleep(0)
        assert client.transport.is_reading_paused
        assert producer.topic.counters.refused_entries < 2_000 + 2_100
        for bookie in scene.bookies:
            bookie.resume()
        await client.receipts(1, 1)
        await client.wait_for_answers(BaseCommand.SEND_ERROR, 4_000)


# Positions that do not exist.

FAR = [(0, 0), (2**64 - 1, 2**64 - 1), (2**63 - 1, 2**63 - 1), (2**63, 0), (0, 2**64 - 1), (10**6, 0), (1, 2**62)]


@pytest.mark.parametrize("kind", [0, 1, 2])
async def test_message_ids_outside_the_topic_do_no_harm(kind: int) -> None:
    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        ids = await published(client, 20)
        await client.subscribe(sub_type=kind)
        await client.wait_delivered(20)
        far = [MessageIdData(ledgerId=ledger, entryId=one, ack_set=words) for ledger, one in FAR for words in ([], [1])]
        for one in far:
            await client.acknowledge(1, [one])
            if one.ledgerId != 2**63 - 1:
                await client.acknowledge(1, [one], cumulative=True)
        await client.acknowledge(1, far)
        again = CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=far)
        client.send(
            BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliver_unacknowledged_messages=again)
        )
        for number, one in enumerate(far):
            consumer_id = 10 + number
            await client.try_subscribe(consumer_id, subscription=f"s{number}", start_message_id=one, durable=False)
            await client.seek(consumer_id, message_id=one)
        for time_ms in (0, 1, 2**63 - 1, 2**64 - 1):
            await client.subscribe(100, subscription="times")
            assert (await client.seek(100, message_publish_time=time_ms)).type == BaseCommand.SUCCESS
            await until(lambda: 100 not in client.consumers, "the consumer that was moved is closed")
        assert (await client.seek(1, message_id=ids[0])).type == BaseCommand.SUCCESS
        await until(lambda: 1 not in client.consumers, "the consumer that was moved is closed")
        client.delivered.clear()
        await client.subscribe(sub_type=kind)
        assert [one.entry_id for one in await client.wait_delivered(20)] == list(range(20))


# Frames that do not end.


class Sender:
    def __init__(self, number: int, closed: list[int]) -> None:
        self.number = number
        self._closed = closed

    def close_overloaded(self, reason: str) -> None:
        assert "max_unfinished_frames_bytes = 100" in reason
        self._closed.append(self.number)


def test_oldest_incomplete_frame_is_closed_above_the_total_limit() -> None:
    closed: list[int] = []
    unfinished = IncompleteFrames(100)
    a, b, c = (Sender(number, closed) for number in range(3))
    unfinished.update(a, 40, is_new=True)
    unfinished.update(b, 40, is_new=True)
    unfinished.update(a, 50, is_new=False)
    assert unfinished.bytes == 90
    unfinished.update(a, 5, is_new=True)  # that one came whole
    unfinished.update(c, 60, is_new=True)
    assert closed == [1]
    assert unfinished.bytes == 65
    unfinished.update(c, 101, is_new=False)
    assert closed == [1, 0, 2]
    assert unfinished.bytes == 0


async def test_connections_that_never_finish_a_frame_do_not_keep_others_from_theirs() -> None:
    """WIRE-1: what they take is bounded, and they pay for it."""

    async with running_pulsar_broker(max_unfinished_frames_bytes=500000) as scene:
        honest = await scene.pulsar_client()
        name = (await honest.open_producer()).producer_name
        whole = sent(1, 0, entry(0, b"x" * 300_000, name))
        hostile = [await scene.pulsar_client() for _ in range(20)]
        for client in hostile:
            client.send_bytes(whole[:100_000])
            assert scene.context.incomplete_frames.bytes <= 500_000
        assert [client.is_disconnected for client in hostile] == [True] * 15 + [False] * 5
        for at in range(0, len(whole), 50_000):
            honest.send_bytes(whole[at : at + 50_000])
        await honest.receipts(1, 1)
        assert not honest.is_disconnected


# Many connections.


async def test_connections_are_bounded_in_all_and_from_one_address() -> None:
    async with running_pulsar_broker(broker_max_connections=4, broker_max_connections_per_ip=2) as scene:
        first = [scene.raw_client(peer="10.0.0.1") for _ in range(3)]
        other = scene.raw_client(peer="10.0.0.2")
        assert [client.is_disconnected for client in (*first, other)] == [False, False, True, False]
        fifth = scene.raw_client(peer="10.0.0.3")
        assert fifth.is_disconnected
        assert fifth.answers[-1].error.error == first[2].answers[-1].error.error == ServerError.TOO_MANY_REQUESTS
        assert "broker_max_connections_per_ip" in first[2].answers[-1].error.message
        first[0].cut()
        await until(lambda: first[0].connection not in scene.listener.connections, "it is closed")
        await until(lambda: fifth.connection not in scene.listener.connections, "it is closed")
        again = scene.raw_client(peer="10.0.0.1")
        await again.connect()


@pytest.mark.parametrize("options", [{"max_producers_per_stream": 2}, {"max_consumers_per_stream": 2}])
async def test_producers_and_consumers_of_one_connection_are_bounded(options: dict[str, int]) -> None:
    async with running_pulsar_broker(**options) as scene:
        client = await scene.pulsar_client()
        for number in (1, 2):
            await client.open_producer(number)
            await client.subscribe(number, subscription=f"s{number}")
        produce = CommandProducer(topic="t", producer_id=3, request_id=client.request_id())
        produced = await client.ask(BaseCommand.PRODUCER, producer=produce)
        subscribed = await client.try_subscribe(3, subscription="s3")
        producers, consumers = "max_producers_per_stream" in options, "max_consumers_per_stream" in options
        assert (produced.error.error == ServerError.TOO_MANY_REQUESTS) is producers
        assert (subscribed.error.error == ServerError.TOO_MANY_REQUESTS) is consumers


async def test_full_connection_does_not_poll_its_waiting_consumers() -> None:
    async with running_pulsar_broker(max_queued_bytes_per_stream=4000) as scene:
        client = await scene.pulsar_client()
        await published(client, 300)
        for number in range(50):
            await client.subscribe(number, subscription=f"s{number}", permits=0)
        client.stop_reading()
        for number in range(50):
            client.flow(number, 1000)
        await until(lambda: client.session.waiting_bytes > 4_000, "the client is behind")
        outbound = client.session.outbound
        looks = 0

        def look() -> None:
            nonlocal looks
            looks += 1

        assert outbound.free_bytes() <= 0
        outbound.wait(DeliveryCapacity(outbound, look))
        for _ in range(100):
            outbound.update_capacity()
        assert looks == 0
        client.read_on()
        await until(lambda: len(client.delivered) == 50 * 300, "all of them get all")
        assert looks
