"""A broker with the SDK's client: its sessions, its shutdown, and topics that are unloaded and deleted under load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from magnetar import Message, MessageId
from magnetar.exceptions import IncarnationChanged, InvalidArgument, StaleEpoch, TopicNotFound
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.position import Position
from magnetar_metadata.store import SessionState
from magnetar_protos.broker_pb2 import ErrorCode, LookupRequest, OpenProducer
from magnetar_testing.metadata import MemoryStore
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Code, Rejected
from tests.produce_client import ProduceClient, entry
from tests.running import until, within
from tests.unit.broker.broker_scene import URL, BrokerScene, running_broker

T = TypeVar("T")
NAME = TopicName.parse("t")


async def test_streams_open_nothing_in_a_session_that_is_not_trusted_any_more() -> None:
    """OWN-2, CHK-52: a stream that outlived a pause of its broker opens nothing, before the broker has found its
    session over; nor is any call served."""
    async with running_broker() as scene:
        connection = scene.transport.connect("broker:6652")
        raw = ProduceClient(connection.open_stream("produce"))
        await raw.open(1)
        assert scene.store is not None
        scene.metadata.suspend(scene.store)
        session = scene.store.session
        session.answered_sent_at -= session.timeout_s
        with pytest.raises(Rejected) as refused:
            await connection.call("lookup", LookupRequest(topic=str(NAME)).SerializeToString(), timeout_s=10)
        assert refused.value.code is Code.UNAVAILABLE
        await raw.send(OpenProducer(producer_id=2, topic="t", producer_name="q"))
        await until(lambda: 2 in raw.opened or 2 in raw.ended or raw.over, "it is answered")
        assert 2 not in raw.opened
        await connection.close()


async def published(scene: BrokerScene, disturb: Callable[[int], Awaitable[None]], rounds: int) -> None:
    """Publish continuously, with `rounds` disturbances, and check that all persisted messages are received in order."""
    client = scene.client()
    consumer = await client.subscribe("t", "s")
    producer = await client.create_producer("t", producer_name="p")
    persisted: list[int] = []
    going = True

    async def publish() -> None:
        number = 0
        while going:
            sending = [asyncio.ensure_future(producer.send(b"%d" % one)) for one in range(number, number + 5)]
            for one, sent in enumerate(sending, number):
                await sent
                persisted.append(one)
            number += 5

    async def more() -> None:
        enough = len(persisted) + 20
        await until(lambda: len(persisted) >= enough or publishing.done(), "more messages are persisted")

    publishing = asyncio.create_task(publish())
    for number in range(rounds):
        await more()
        assert not publishing.done(), publishing.exception()
        await disturb(number)
    await more()
    going = False
    await within(publishing, "publishing ends")
    first: dict[int, None] = {}
    while persisted[-1] not in first:
        message = await within(consumer.receive(), "the next message")
        first.setdefault(int(message.data()))
        await consumer.acknowledge(message)
    # By first occurrences: messages that were resent may be stored twice.
    assert list(first) == list(range(persisted[-1] + 1))
    await client.close()


async def test_metadata_session_loss_loses_no_message_and_preserves_order() -> None:
    """OWN-2, PRD-9: clients reconnect by themselves. No persisted message is lost, and the order is that of sending."""

    async with running_broker() as scene:
        sessions = {scene.broker_session}

        async def lose(_: int) -> None:
            before = scene.broker.session
            assert scene.store is not None
            scene.metadata.expire(scene.store)
            await until(lambda: scene.broker.session not in (None, before), "the broker has another session")
            sessions.add(scene.broker_session)

        await published(scene, lose, 3)
        assert len(sessions) == 4


async def test_topics_that_are_unloaded_under_load_go_on() -> None:
    """PRD-9, PRD-10: the producer finds the topic again and sends what is pending, in order."""

    async with running_broker() as scene:

        async def unload(_: int) -> None:
            await scene.broker_session.topics.unload(NAME)

        await published(scene, unload, 5)


async def test_topic_fenced_by_another_broker_is_reopened_without_loss() -> None:
    """OWN-2, CHK-30: a topic that is fenced by another owner is closed; the clients' next attempt reopens it."""

    async with running_broker() as scene:

        async def take(_: int) -> None:
            topic = scene.broker_session.topics.get_loaded(NAME)
            if topic is None:  # it is closed, and not reopened yet
                return
            try:
                await scene.take_topic(NAME)
            except TopicUnloaded:  # the clients had it reopened before the rival opened it
                return
            await until(lambda: topic.ended is not None, "the first one has found it out")

        await published(scene, take, 3)


async def test_without_a_session_everything_is_refused_and_nothing_is_done() -> None:
    """OWN-2: UNAVAILABLE, so that clients try again, here or elsewhere."""

    async with running_broker() as scene:
        client = scene.client()
        await client.create_producer("t")
        topic = scene.broker_session.topics.get_loaded(NAME)
        assert topic is not None
        assert scene.store is not None
        gate = asyncio.Event()
        opens, scene.broker._open_metadata = scene.broker._open_metadata, _after(gate, scene.broker._open_metadata)
        scene.metadata.expire(scene.store)
        await until(lambda: scene.broker.session is None, "the broker has found it out")
        connection = scene.transport.connect(URL.removeprefix("magnetar://"))
        with pytest.raises(Rejected) as refused:
            await connection.call("lookup", LookupRequest(topic="t").SerializeToString(), timeout_s=10)
        assert refused.value.code is Code.UNAVAILABLE
        assert topic.ended is not None
        with pytest.raises(BrokerError):
            await topic.producers.open(OpenProducer(producer_name="late"), _nobody())
        gate.set()
        await until(lambda: scene.broker.session is not None, "the broker has another session")
        scene.broker._open_metadata = opens
        await connection.call("lookup", LookupRequest(topic="t").SerializeToString(), timeout_s=10)
        await connection.close()
        await client.close()


@pytest.mark.slow
async def test_a_suspended_session_is_not_lost_and_is_believed_for_its_time_less_a_second() -> None:
    """CHK-40, OWN-2: open topics are served while the store does not answer, and are closed before another broker
    may open them."""
    timeout_s = 3.0

    async with running_broker() as scene:

        async def short_session() -> MemoryStore:
            scene.store = scene.metadata.connect(timeout_s)
            return scene.store

        scene.broker._open_metadata = short_session
        assert scene.store is not None
        first = scene.broker_session
        scene.metadata.expire(scene.store)
        await until(lambda: scene.broker.session not in (None, first), "the broker has another session")
        client = scene.client()
        producer = await client.create_producer("t")
        await producer.send(b"0")
        store, session = scene.store, scene.broker_session
        # For a moment, and it goes on.
        scene.metadata.suspend(store)
        await within(producer.send(b"1"), "what is open goes on")
        assert scene.broker.session is session
        scene.metadata.resume(store)
        await within(producer.send(b"2"), "what is open goes on")
        # For longer: the store does not report the loss of the session.
        scene.metadata.cut_silently(store)
        await within(producer.send(b"3"), "what is open goes on")
        await until(lambda: scene.broker.session is not session, "the broker has stopped")
        await until(lambda: store.session.state is SessionState.LOST, "its owner has ended the session")
        assert store.session.lost_because == "it was closed"
        await until(lambda: scene.broker.session is not None, "the broker has another session")
        await within(producer.send(b"4"), "clients go on")
        await client.close()


async def test_graceful_shutdown_notifies_clients_before_their_streams_end() -> None:
    """Producers and consumers end with SERVICE_NOT_READY; logs are closed, so that the next opening has to recover
    nothing."""

    async with running_broker() as scene:
        connection = scene.transport.connect(URL.removeprefix("magnetar://"))
        raw = ProduceClient(connection.open_stream("produce"))
        await raw.open(1)
        client = scene.client()
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        await producer.send(b"x")
        topic = scene.broker_session.topics.get_loaded(NAME)
        assert topic is not None
        message = await consumer.receive()
        acknowledging = asyncio.create_task(consumer.acknowledge(message, receipt=True))
        (cursor,) = topic.cursors.durable_cursors()
        await until(lambda: cursor.is_acknowledged(Position(*where(message))), "the acknowledgement was taken")
        await within(scene.broker.close(), "the broker has ended")
        await within(acknowledging, "its receipt came before the end")
        await until(lambda: raw.over, "the stream is over")
        assert raw.error is None
        assert raw.ended[1].problem.code == ErrorCode.SERVICE_NOT_READY
        assert all(ledger.is_closed for ledger in topic.log.stats().ledgers)
        await connection.close()
        await client.close()


@pytest.mark.parametrize("ending", ["the broker", "the topic"])
async def test_session_loss_during_graceful_close_ends_it_at_once(ending: str) -> None:
    """OWN-2: what was taken waits for its bookies, and nobody may wait for it any more."""

    async with running_broker(
        broker_shutdown_timeout_seconds=600.0, topic_close_timeout_seconds=600.0, add_entry_timeout_seconds=600.0
    ) as scene:
        connection = scene.transport.connect(URL.removeprefix("magnetar://"))
        raw = ProduceClient(connection.open_stream("produce"))
        opened = await raw.open(1)
        assert opened.incarnation
        session = scene.broker_session
        (topic,) = session.topics.loaded()
        for bookie in scene.bookies:
            bookie.hanging.add("add")
        await raw.send((1, 0, [entry(0)]))
        await until(lambda: session.budget.used_bytes > 0, "it is in flight")
        work = scene.broker.close() if ending == "the broker" else session.topics.unload(topic.name)
        task = asyncio.create_task(work)
        await until(lambda: topic.ended is not None, "it is ending")
        assert scene.store is not None
        scene.metadata.expire(scene.store)
        await within(task, "it has ended")
        assert session.budget.used_bytes == 0
        await connection.close()


@pytest.mark.parametrize("bound", ["topics", "streams"])
async def test_shutdown_is_bounded_when_bookies_or_clients_hang(bound: str) -> None:
    """Nothing of what hangs, bookies or clients, keeps a broker from ending."""

    async with running_broker(broker_shutdown_timeout_seconds=0.3, topic_close_timeout_seconds=10.0) as scene:
        connection = scene.transport.connect(URL.removeprefix("magnetar://"))
        raw = ProduceClient(connection.open_stream("produce"))
        await raw.open(1)
        if bound == "topics":
            for bookie in scene.bookies:
                bookie.hanging.add("add")
            await raw.send((1, 0, [entry(0)]))
            await until(lambda: scene.broker_session.budget.used_bytes > 0, "it is in flight")
        else:
            raw.reading.cancel()
            await raw.send((1, 0, [b"bad"] * 10_000))
            await until(lambda: scene.broker_session.budget.used_bytes == 0, "it is answered")
        await within(scene.broker.close(), "the broker has ended")
        await connection.close()


async def test_recreated_topic_refuses_ids_of_the_deleted_one() -> None:
    """TOP-7, CHK-57: old producers, ids and acknowledgements are refused by every call, not applied."""

    async with running_broker() as scene:
        client, other = scene.client(), scene.client()
        consumer = await client.subscribe("t", "s")
        stays = await client.subscribe("t", "stays")
        producer = await client.create_producer("t")
        old = await producer.send(b"old")
        assert (await consumer.receive()).data() == b"old"
        old_message = await within(stays.receive(), "the message of the old topic")
        incarnation = (await scene.broker_session.topics.get(NAME, create=False)).log.incarnation
        await consumer.close()
        await scene.broker_session.topics.delete(NAME, force=True)
        fresh = await other.subscribe("t", "s")
        again = await other.create_producer("t")
        ids = [await again.send(b"new %d" % number) for number in range(3)]
        assert all(one > old for one in ids)
        # A producer of the old topic does not publish to the new one: it opens the new one, or raises.
        with pytest.raises(BrokerError) as changed:
            await scene.broker_session.topics.find(NAME, incarnation, True)
        assert changed.value.code == ErrorCode.INCARNATION_CHANGED
        while len(ids) < 4:
            with suppress(IncarnationChanged):
                ids.append(await within(producer.send(b"new 3"), "the producer goes on"))
        assert ids[3] > ids[2]
        # Without a receipt they are dropped. Receipts are sent in the order of the requests.
        await fresh.acknowledge(old)
        await fresh.acknowledge_cumulative(old)
        refused = [
            fresh.acknowledge(old, receipt=True),
            fresh.acknowledge_cumulative(old, receipt=True),
            fresh.seek(old),
            other.create_reader("t", old),
            scene.admin.subscriptions.reset("t", "s", old),
            scene.admin.subscriptions.create("t", "another", old),
        ]
        for call in refused:
            with pytest.raises(IncarnationChanged):
                await within(call, "it is refused")
        # A consumer that has reopened itself, with a message of the old topic.
        assert (await within(stays.receive(), "a message of the new one")).data() == b"new 0"
        await stays.acknowledge(old_message)
        with pytest.raises((IncarnationChanged, StaleEpoch)):
            await within(stays.acknowledge(old_message, receipt=True), "it is refused")
        got = [await within(fresh.receive(), "a new message") for _ in range(4)]
        assert [message.data() for message in got] == [b"new 0", b"new 1", b"new 2", b"new 3"]
        topic = await scene.broker_session.topics.get(NAME, create=False)
        assert topic.log.next_index == 4
        assert [cursor.name for cursor in topic.cursors.durable_cursors()] == ["s", "stays"]
        assert [cursor.count_unacknowledged() for cursor in topic.cursors.durable_cursors()] == [4, 4]
        await client.close()
        await other.close()


async def test_trimmed_message_is_acknowledged_and_unknown_one_refused() -> None:
    """An id of a ledger that the topic never had is refused. A trimmed one was acknowledged, or is not needed."""

    async with running_broker() as scene:
        client = scene.client()
        consumer = await client.subscribe("t", "s")
        producer = await client.create_producer("t")
        trimmed = await producer.send(b"old")
        await scene.admin.topics.truncate("t")
        there = await producer.send(b"new")
        await within(consumer.acknowledge(trimmed, receipt=True), "a trimmed message")
        with pytest.raises(InvalidArgument):
            await within(consumer.acknowledge(MessageId(-1, 99_999, 0, -1), receipt=True), "an unknown message")
        await within(consumer.acknowledge(there, receipt=True), "a message of the topic")
        await client.close()


async def test_deleting_a_missing_topic_raises_topic_not_found() -> None:
    async with running_broker() as scene:
        for force in (False, True):
            with pytest.raises(TopicNotFound):
                await scene.admin.topics.delete("missing", force=force)


async def test_idle_topic_is_unloaded_and_inactive_topic_is_deleted() -> None:
    """TOP-2: an inactive topic is deleted only if it has no clients and no subscriptions."""

    async with running_broker(
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_max_inactive_duration_seconds=0.2,
        unload_idle_topics_after_seconds=0.2,
        topic_housekeeping_interval_seconds=0.05,
    ) as scene:
        client = scene.client()
        topics = scene.broker_session.topics
        consumer = await client.subscribe("subscribed", "s")
        producer = await client.create_producer("subscribed")
        await producer.send(b"x")
        await client.create_producer("inactive")
        await producer.close()
        await consumer.close()
        await client.close()
        await until(lambda: not topics.loaded(), "all are closed or deleted")
        with pytest.raises(BrokerError) as refused:
            await topics.get(TopicName.parse("inactive"), create=False)
        assert refused.value.code == ErrorCode.TOPIC_NOT_FOUND
        client = scene.client()
        again = await client.subscribe("subscribed", "s")
        assert (await within(again.receive(), "the retained message")).data() == b"x"
        await client.close()


async def test_cancelling_an_opening_or_a_deletion_at_any_moment_leaves_a_topic_that_works() -> None:
    async with running_broker() as scene:
        topics = scene.broker_session.topics
        for turns in range(0, 60, 3):
            name = TopicName.parse(f"t{turns}")
            for work in (topics.get(name, create=True), topics.delete(name, force=True)):
                task = asyncio.create_task(work)
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            client = scene.client()
            async with client:
                producer = await client.create_producer(f"t{turns}")
                await within(producer.send(b"x"), "the topic works")


def where(message: Message) -> tuple[int, int]:
    found = message.message_id()
    return found.ledger_id(), found.entry_id()


def _after(gate: asyncio.Event, opens: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    async def waiting() -> T:
        await gate.wait()
        return await opens()

    return waiting


def _nobody() -> Any:
    class Nobody:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

    return Nobody()
