"""The `consume` stream's broker end: many consumers, answers, bounds, and clients that mean harm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.settings.delivery import ConsumeSettings
from magnetar_broker.topics.consumer import Consumer
from magnetar_protos.broker_pb2 import (
    CloseConsumer,
    ConsumeRequest,
    EntryRange,
    ErrorCode,
    KeySharedMode,
    KeySharedOptions,
    OpenConsumer,
    Redeliver,
    Seek,
    SubscriptionType,
    Unsubscribe,
)
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_protos.schema_pb2 import Schema, SchemaType
from magnetar_wire.entry import add_broker_metadata, encode_entry
from magnetar_wire.transport import Code, Rejected
from tests.unit.broker.consume_client import ConsumeClient, ConsumeServer, eventually
from tests.unit.broker.subscription_scene import EARLIEST, Scene

SHARED = SubscriptionType.SHARED


@asynccontextmanager
async def _running(options: ConsumeSettings | None = None) -> AsyncIterator[tuple[Scene, ConsumeServer, ConsumeClient]]:
    scene = Scene()
    server = ConsumeServer(options)
    server.topics["topic"] = scene.subscriptions
    client = (await server.client()).start()
    try:
        yield scene, server, client
    finally:
        await client.stop()
        await scene.subscriptions.close()


async def test_entries_go_out_and_acks_are_answered() -> None:
    async with _running() as (scene, server, client):
        entries = scene.add(12)  # of two ledgers
        await client.open()
        await eventually(lambda: client.positions(1) == entries)
        assert [len(answer.deliveries) for answer in client.answers if answer.deliveries] == [2]
        assert [one.entry for one in client.delivered[1]] == [scene.log.entries[entry].stored for entry in entries]
        await client.send(acknowledge=[client.ack(1, entries[11], request_id=5, cumulative=True)])
        await eventually(lambda: 5 in client.done)
        assert client.done[5] is None
        assert scene.stats().backlog_entries == 0
        assert scene.stats().consumers[0].address == "in-process"
        assert server.counters.delivered.entries == 12
        new = scene.add(1)
        await eventually(lambda: client.positions(1) == entries + new)
        await client.send(close=[CloseConsumer(consumer_id=1)])
        await eventually(lambda: 1 in client.ended)
        assert client.ended[1] is None
        assert scene.stats().consumers == []


async def test_requests_are_answered_if_something_that_they_wait_for_is_cancelled(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the client would wait until its timeout."""
    async with _running() as (_, server, client):

        async def wait_for_cancelled(*_: object) -> None:
            shared: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            shared.cancel()
            await shared

        server.topics["interrupted"] = SimpleNamespace(subscribe=wait_for_cancelled)  # type: ignore[assignment]
        await client.send(open=[OpenConsumer(consumer_id=1, topic="interrupted", subscription="s")])
        await eventually(lambda: 1 in client.ended)
        assert (problem := client.ended[1]) is not None
        assert problem.code == ErrorCode.SERVICE_NOT_READY
        assert "was interrupted" in caplog.text
        await client.open(2)
        monkeypatch.setattr(Consumer, "seek", wait_for_cancelled)
        monkeypatch.setattr(Consumer, "unsubscribe", wait_for_cancelled)
        await client.send(
            seek=[Seek(consumer_id=2, request_id=3, to=EARLIEST)],
            unsubscribe=[Unsubscribe(consumer_id=2, request_id=4)],
        )
        await eventually(lambda: {3, 4} <= client.done.keys())
        for request_id in (3, 4):
            assert (problem := client.done[request_id]) is not None
            assert problem.code == ErrorCode.SERVICE_NOT_READY


async def test_deliveries_to_many_consumers_share_one_message() -> None:
    async with _running() as (scene, _, client):
        for number in range(1, 6):
            await client.open(number, f"s{number}")
        count = len(client.answers)
        scene.log.on_appended = lambda: None
        entries = scene.add(3)
        scene.subscriptions.appended()
        await eventually(lambda: all(client.positions(number) == entries for number in range(1, 6)))
        [answer] = client.answers[count:]
        assert len(answer.deliveries) == 5


async def test_broker_metadata_is_stripped_unless_requested() -> None:
    """MSG-5"""
    async with _running() as (scene, _, client):
        entry = encode_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=2), b"payload")
        scene.log.add(payload=add_broker_metadata(entry, 77, 0))
        await client.open(1, "requested")
        await client.open(2, "not requested", broker_metadata=False)
        await eventually(lambda: client.positions(1) and client.positions(2))
        assert client.delivered[1][0].entry == add_broker_metadata(entry, 77, 0)
        assert client.delivered[2][0].entry == entry


@pytest.mark.parametrize("accepts_gaps", [True, False])
async def test_entries_that_skip_others_share_a_run_if_the_client_accepts_gaps(accepts_gaps: bool) -> None:
    """An older client would take the ids for consecutive, and acknowledge messages that it never got."""
    async with _running() as (scene, _, client):
        entries = scene.add(4)
        await client.open(1, kind=SubscriptionType.SHARED, permits=0, accepts_gaps=accepts_gaps)
        await client.send(acknowledge=[client.ack(1, entries[1], request_id=1)])
        await eventually(lambda: 1 in client.done)
        await client.flow(1, 10)
        await eventually(lambda: client.positions(1) == [entries[0], *entries[2:]])
        runs = [(one.first_entry_id, list(one.gaps)) for answer in client.answers for one in answer.deliveries]
        first = entries[0].entry_id
        assert runs == ([(first, [1, 0])] if accepts_gaps else [(first, []), (first + 2, [])])


async def test_epoch_precedes_its_deliveries_and_stale_acks_are_refused() -> None:
    """SUB-9, CHK-52"""
    async with _running() as (scene, _, client):
        entries = scene.add(4)
        await client.open()
        await eventually(lambda: client.positions(1) == entries)
        first = client.epochs[1][0]
        await client.send(seek=[Seek(consumer_id=1, request_id=9, to=EARLIEST)])
        await eventually(lambda: 9 in client.done)
        assert client.done[9] is None
        assert len(client.epochs[1]) == 2
        # Late acks from before it, cumulative too: dropped, and refused where a receipt was requested.
        late = client.ack(1, entries[3], request_id=10, cumulative=True)
        late.epoch = first
        await client.send(acknowledge=[late])
        await eventually(lambda: 10 in client.done)
        problem = client.done[10]
        assert problem is not None
        assert problem.code == ErrorCode.STALE_EPOCH
        assert scene.stats().backlog_entries == 4
        await client.flow(1, 10)
        await eventually(lambda: client.positions(1) == entries * 2)
        assert [one.epoch for one in client.delivered[1]] == [first] * 4 + [client.epochs[1][1]] * 4
        # After a redelivery they count.
        redelivered = client.epochs[1][1]
        await client.send(redeliver=[Redeliver(consumer_id=1, epoch=redelivered)])
        await eventually(lambda: len(client.epochs[1]) == 3)
        late = client.ack(1, entries[0], request_id=11)
        late.epoch = redelivered
        await client.send(acknowledge=[late])
        await eventually(lambda: 11 in client.done)
        assert client.done[11] is None
        await client.flow(1, 10)
        await eventually(lambda: client.positions(1) == entries * 2 + entries[1:])


async def test_broken_stream_redelivers_its_messages_to_other_consumers() -> None:
    """(ACK-3) Without counting that as a redelivery (CON-10)."""
    async with _running() as (scene, server, client):
        entries = scene.add(4)
        await client.open(1, kind=SHARED)
        await client.open(2, kind=SHARED)
        await eventually(lambda: client.positions(1) == entries)
        other = (await server.client()).start()
        await other.open(1, kind=SHARED)
        await client.stop()
        await eventually(lambda: other.positions(1) == entries)
        assert [one.redelivery_count for one in other.delivered[1]] == [0] * 4
        assert len(scene.stats().consumers) == 1
        await other.stop()
        await eventually(lambda: scene.stats().consumers == [])


async def test_a_slow_stream_holds_up_nobody_else_and_little_waits_for_it() -> None:
    # An in-process stream takes 16 messages ahead.
    async with _running(ConsumeSettings(max_queued_bytes_per_stream=100000)) as (scene, server, client):
        size, count = 40_000, 300
        await client.open(1, "slow", permits=100_000)
        other = (await server.client()).start()
        await other.open(1, "fast", permits=100_000)
        client.reads.clear()
        await client.flow(1, 1)
        entries = []
        for number in range(count):
            entries.append(scene.log.add(payload=bytes(size)))
            if number % 10 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: other.positions(1) == entries)
        slow = scene.subscriptions._loaded["slow", True]
        # What waits for it is bounded: it was not read for it.
        assert slow.rule is not None
        assert slow.rule.read_position < entries[-1]
        client.reads.set()
        await eventually(lambda: client.positions(1) == entries)
        await other.stop()


async def test_many_slow_streams_together_are_bounded_too() -> None:
    async with _running(ConsumeSettings(max_queued_bytes=1000000)) as (scene, server, client):
        size = 50_000
        slow = [(await server.client()).start() for _ in range(8)]
        for number, one in enumerate(slow):
            await one.open(1, f"slow {number}", permits=100_000)
            one.reads.clear()
            await one.flow(1, 1)  # what it waits for to come is the last that it takes
        await client.open(1, "fast", permits=100_000)
        entries, most = [], 0
        for number in range(300):
            entries.append(scene.log.add(payload=bytes(size)))
            most = max(most, server.budget.queued_bytes)
            if number % 10 == 0:
                await asyncio.sleep(0)
        await eventually(lambda: client.positions(1) == entries)
        # What all may have, and what each may always have and an entry beyond; and not what each might have alone.
        assert max(most, server.budget.queued_bytes) <= 1_000_000 + 9 * (262_144 + size)
        assert sum(session.outbox.outbox_capacity.free_bytes() for session in server.sessions) < 9 * 262_144
        for one in slow[:4]:
            one.reads.set()
            await eventually(lambda one=one: one.positions(1) == entries)  # type: ignore[misc]
        for one in slow:
            await one.stop()
        await eventually(lambda: server.serving == 1)
        await eventually(lambda: server.budget.queued_bytes == 0)


@pytest.mark.parametrize("durable", [True, False])
async def test_a_subscription_of_any_kind_has_a_name_of_at_most_255_bytes(durable: bool) -> None:
    async with _running() as (_, _, client):
        names = "ä" * 127 + "x", "ä" * 128
        await client.send(
            open=[
                OpenConsumer(consumer_id=number, topic="topic", subscription=name, durable=durable)
                for number, name in enumerate(names)
            ]
        )
        await eventually(lambda: client.epochs and client.ended)
        assert list(client.epochs) == [0]
        problem = client.ended[1]
        assert problem is not None
        assert problem.code == ErrorCode.INVALID_ARGUMENT
        assert problem.text == "a subscription's name can't have 256 bytes: use 1 … 255"


async def test_invalid_consumer_requests_are_refused_with_error_codes() -> None:
    async with _running(ConsumeSettings(max_consumers_per_stream=8)) as (scene, _, client):
        scene.add(1)
        await client.send(
            seek=[Seek(consumer_id=5, request_id=1, to=EARLIEST)],
            unsubscribe=[Unsubscribe(consumer_id=5, request_id=2)],
            close=[CloseConsumer(consumer_id=5)],
            open=[
                OpenConsumer(consumer_id=11, topic="a/b", subscription="s", durable=True),
                OpenConsumer(consumer_id=12, topic="other", subscription="s", durable=True),
                OpenConsumer(consumer_id=13, topic="topic", subscription="", durable=True),
                OpenConsumer(consumer_id=14, topic="topic", subscription="x" * 5000, durable=True),
                OpenConsumer(
                    consumer_id=15,
                    topic="topic",
                    subscription="s",
                    type=SubscriptionType.KEY_SHARED,
                    key_shared=KeySharedOptions(mode=KeySharedMode.STICKY),
                ),
                OpenConsumer(consumer_id=16, topic="topic", subscription="s", durable=True, incarnation="no"),
                OpenConsumer(consumer_id=17, topic="topic", subscription="s", durable=True, read_compacted=True),
                OpenConsumer(consumer_id=18, topic="topic", subscription="s", durable=True, type=77),  # type: ignore[arg-type]
            ],
        )
        await eventually(lambda: len(client.ended) == 8 and len(client.done) == 2)
        codes = [problem.code for _, problem in sorted(client.ended.items()) if problem is not None]
        assert codes == [
            ErrorCode.INVALID_TOPIC_NAME,
            ErrorCode.TOPIC_NOT_FOUND,
            ErrorCode.INVALID_ARGUMENT,
            ErrorCode.INVALID_ARGUMENT,
            ErrorCode.INVALID_ARGUMENT,
            ErrorCode.INCARNATION_CHANGED,
            ErrorCode.UNSUPPORTED,
            ErrorCode.INVALID_ARGUMENT,
        ]
        assert {problem.code for problem in client.done.values() if problem} == {ErrorCode.NOT_FOUND}
        for number in range(1, 10):
            await client.open(number, f"s{number}")
        problem = client.ended[9]
        assert problem is not None
        assert problem.code == ErrorCode.TOO_MANY_REQUESTS
        await client.send(open=[OpenConsumer(consumer_id=2, topic="topic", subscription="s")])
        await eventually(lambda: client.error)
        assert isinstance(client.error, Rejected)
        assert client.error.code is Code.INVALID_ARGUMENT
        await eventually(lambda: scene.subscriptions.consumers == 0)


@pytest.mark.parametrize(
    "message",
    [
        b"\xff\xff",
        ConsumeRequest(redeliver=[Redeliver(consumer_id=1, entries=[EntryRange()] * 101)]).SerializeToString(),
        ConsumeRequest(close=[CloseConsumer()] * 101).SerializeToString(),
    ],
)
async def test_a_message_that_is_nonsense_ends_the_stream(message: bytes) -> None:
    async with _running(ConsumeSettings(max_parts_per_consume_request=100)) as (scene, _, client):
        await client.open()
        await client.stream.send(message)
        await eventually(lambda: client.error)
        assert isinstance(client.error, Rejected)
        assert client.error.code is Code.INVALID_ARGUMENT
        await eventually(lambda: scene.subscriptions.consumers == 0)


async def test_a_cumulative_ack_on_shared_is_refused_or_dropped_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SUB-4"""
    with caplog.at_level(logging.WARNING):
        async with _running() as (scene, _, client):
            entries = scene.add(2)
            await client.open(kind=SHARED)
            await eventually(lambda: client.positions(1) == entries)
            await client.send(acknowledge=[client.ack(1, entries[1], request_id=3, cumulative=True)])
            await eventually(lambda: 3 in client.done)
            problem = client.done[3]
            assert problem is not None
            assert problem.code == ErrorCode.NOT_ALLOWED
            for _ in range(3):
                await client.send(acknowledge=[client.ack(1, entries[1], cumulative=True)])
            await client.send(acknowledge=[client.ack(1, entries[0], request_id=4)])
            await eventually(lambda: 4 in client.done)
            assert scene.stats().backlog_entries == 1
    assert sum("cumulative" in record.getMessage() for record in caplog.records) == 1


async def test_a_consumer_may_be_closed_while_it_is_opened() -> None:
    async with _running() as (scene, server, client):
        server.gate.clear()
        await client.send(open=[OpenConsumer(consumer_id=1, topic="topic", subscription="s", durable=True)])
        await client.send(close=[CloseConsumer(consumer_id=1)])
        await eventually(lambda: 1 in client.ended)
        assert client.ended[1] is None
        server.gate.set()
        await client.open(2)
        assert scene.stats().consumers[0].active
        assert len(scene.stats().consumers) == 1


async def test_unsubscribing_is_answered_then_the_consumer_ends() -> None:
    async with _running() as (scene, _, client):
        await client.open()
        scene.cursors.fails = BrokerError(ErrorCode.METADATA_ERROR, "not now")
        await client.send(unsubscribe=[Unsubscribe(consumer_id=1, request_id=1)])
        await eventually(lambda: 1 in client.done)
        problem = client.done[1]
        assert problem is not None
        assert problem.code == ErrorCode.METADATA_ERROR
        assert 1 not in client.ended
        scene.cursors.fails = None
        await client.send(unsubscribe=[Unsubscribe(consumer_id=1, request_id=2)])
        await eventually(lambda: 1 in client.ended)
        assert client.done[2] is None
        assert client.ended[1] is None
        assert scene.subscriptions.stats() == []


async def test_read_capacity_is_released_when_the_topic_is_unloaded() -> None:
    async with _running() as (scene, server, client):
        other = Scene()
        server.topics["other"] = other.subscriptions
        entries = scene.add(3)
        other.add(3)
        other.log.is_cached = False
        other.log.gate = asyncio.Event()
        await client.open(1, topic="other")
        await eventually(lambda: other.log.reads)
        # All capacity is reserved for entries that are being read; then the topic is closed.
        await client.open(2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert client.positions(2) == []
        await other.subscriptions.close(TopicUnloaded("another broker has it"))
        await eventually(lambda: client.positions(2) == entries)
        assert 1 in client.ended


async def test_topic_unload_ends_its_consumers_but_not_the_stream() -> None:
    async with _running() as (scene, _, client):
        await client.open(1)
        await client.open(2, "other")
        await scene.subscriptions.close(TopicUnloaded("another broker has it"))
        await eventually(lambda: len(client.ended) == 2)
        assert {problem.code for problem in client.ended.values() if problem} == {ErrorCode.SERVICE_NOT_READY}
        # The stream goes on.
        await client.open(3)
        problem = client.ended[3]
        assert problem is not None
        assert problem.code == ErrorCode.SERVICE_NOT_READY


async def test_half_closed_stream_still_receives_ack_results() -> None:
    async with _running() as (scene, _, client):
        entries = scene.add(2)
        await client.open()
        await eventually(lambda: client.positions(1) == entries)
        cursor = scene.cursors.cursors["s"]
        cursor.gate = asyncio.Event()
        await client.send(acknowledge=[client.ack(1, entries[0], request_id=1)])
        await client.stream.finish()
        await eventually(lambda: scene.subscriptions.consumers == 0)
        cursor.gate.set()
        assert client.task is not None
        await asyncio.wait_for(asyncio.shield(client.task), 60)
        assert client.error is None
        assert client.done == {1: None}


async def test_while_too_many_receipts_wait_no_more_is_read() -> None:
    async with _running(ConsumeSettings(max_waiting_answers_per_stream=10)) as (scene, _, client):
        [entry] = scene.add(1)
        await client.open()
        cursor = scene.cursors.cursors["s"]
        cursor.gate = asyncio.Event()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for number in range(1, 201):
                await client.send(acknowledge=[client.ack(1, entry, request_id=number)])
                sent = number

        sending = asyncio.create_task(send())
        for _ in range(2000):
            await asyncio.sleep(0)
        assert sent < 100  # what its bound and the stream's own have capacity for
        cursor.gate.set()
        await sending
        await eventually(lambda: len(client.done) == 200)


async def test_while_large_schemas_wait_no_more_is_read() -> None:
    """SCH-1: they count as memory of the stream."""
    async with _running() as (_, server, client):
        server.gate.clear()
        large = Schema(type=SchemaType.AVRO, definition=b"x" * 1_000_000)

        async def send() -> None:
            for number in range(1, 41):
                opening = OpenConsumer(consumer_id=number, topic="none", subscription="s", schema=large)
                await client.send(open=[opening])

        sending = asyncio.create_task(send())
        for _ in range(2000):
            await asyncio.sleep(0)
        assert 5 < server.finding < 20
        server.gate.set()
        await sending
        await eventually(lambda: len(client.ended) == 40)
