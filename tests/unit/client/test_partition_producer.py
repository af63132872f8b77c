"""Producers whose connections break, whose topics move, and whose brokers do not answer; with the asyncio client."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest

from magnetar import aio, exceptions
from magnetar_protos.broker_pb2 import ErrorCode, ProduceAnswer, ProducerFlow
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.in_process_transport import InProcessTransport
from tests.running import until
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.scene import URL, scene


def sending(producer: aio.Producer, *contents: bytes) -> list[asyncio.Task[Any]]:
    return [asyncio.get_running_loop().create_task(producer.send(content)) for content in contents]


async def test_concurrent_sends_share_a_batch() -> None:
    """PRD-1, PRD-4"""
    async with scene() as (broker, client), await client.create_producer("t") as producer:
        ids = await asyncio.gather(*sending(producer, b"a", b"b", b"c"))
        assert [str(each) for each in ids] == ["(1,0,-1,0)", "(1,0,-1,1)", "(1,0,-1,2)"]
        assert str(await producer.send(b"d")) == "(1,1,-1,-1)"
        assert broker.topic("t").payloads() == [b"a", b"b", b"c", b"d"]


async def test_pending_messages_are_resent_in_order_in_a_new_epoch() -> None:
    """PRD-9, CHK-33: messages without a receipt are resent, before later messages, in a higher epoch."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"before")
        broker.receipting.clear()
        first = sending(producer, b"1", b"2")
        await until(lambda: len(broker.topic("t").entries) == 3, "both are stored, without a receipt")
        broker.break_streams()
        later = sending(producer, b"3", b"4")
        broker.receipting.set()
        await asyncio.gather(*first, *later)
        assert broker.topic("t").payloads() == [b"before", b"1", b"2", b"1", b"2", b"3", b"4"]
        epochs = [opening.connection_epoch for opening in broker.opened]
        assert epochs == sorted(set(epochs))
        assert len({opening.instance for opening in broker.opened}) == 1
        assert broker.opened[-1].producer_name == producer.producer_name()
        assert broker.opened[-1].incarnation == broker.topic("t").incarnation


async def test_a_paused_producer_sends_nothing_and_others_go_on() -> None:
    """PRD-9, CHK-33: until it is resumed, or reopened: no opening begins paused."""
    async with scene() as (broker, client):
        paused = await client.create_producer("t", batching_enabled=False)
        other = await client.create_producer("other")
        [session] = broker.produce_sessions

        def set_paused(state: bool) -> None:
            [producer] = broker.topic("t").producers.values()
            session.send(ProduceAnswer(flow=[ProducerFlow(producer_id=producer.id, paused=state)]))

        set_paused(True)
        await other.send(b"after it on the stream")
        first = sending(paused, b"1", b"2")
        await other.send(b"by now it would have been sent")
        assert broker.topic("t").payloads() == []
        set_paused(False)
        await asyncio.gather(*first)
        set_paused(True)
        await other.send(b"after it on the stream")
        later = sending(paused, b"3", b"4")
        await other.send(b"by now it would have been sent")
        assert broker.topic("t").payloads() == [b"1", b"2"]
        broker.break_streams()
        await asyncio.gather(*later)
        assert broker.topic("t").payloads() == [b"1", b"2", b"3", b"4"]


async def test_a_topic_that_moves_is_looked_up_again() -> None:
    """PRD-9: SERVICE_NOT_READY; also while the next broker is not ready either."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        await producer.send(b"1")
        broker.problems["persistent://public/default/t"] = ErrorCode.SERVICE_NOT_READY
        broker.end_producers(broker.topic("t"), ErrorCode.SERVICE_NOT_READY)
        (task,) = sending(producer, b"2")
        await until(lambda: broker.calls.count("lookup") > 3, "it was looked up several times")
        assert not producer.is_connected()
        assert not task.done()
        broker.problems.clear()
        await task
        assert broker.topic("t").payloads() == [b"1", b"2"]


@pytest.mark.parametrize("how", ["unload", "death"])
async def test_pending_messages_go_to_the_topic_s_next_owner(how: str) -> None:
    """PRD-9: in order, and before newer messages."""
    transport = InProcessTransport()
    old = await FakeBroker("old:1").start(transport)
    new = await FakeBroker("new:1").start(transport)
    new.topics = old.topics
    async with aio.Client("magnetar://old:1,new:1", _transport=transport) as client:
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"0")
        old.receipting.clear()
        tasks = sending(producer, b"1", b"2")
        await until(lambda: len(old.topic("t").entries) == 3, "they are stored, without a receipt")
        old.owner = new.address
        if how == "unload":
            old.receipting.set()
            old.end_producers(old.topic("t"), ErrorCode.SERVICE_NOT_READY)
        else:
            await old.stop()
        tasks += sending(producer, b"3")
        await asyncio.gather(*tasks)
        await producer.send(b"4")
        assert [opening.connection_epoch for opening in old.opened + new.opened] == [1, 2]
        assert list(dict.fromkeys(new.topic("t").payloads())) == [b"0", b"1", b"2", b"3", b"4"]
    await old.stop()
    await new.stop()


async def test_a_broker_that_restarts() -> None:
    """PRD-9"""
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        await broker.stop()
        tasks = sending(producer, b"1", b"2")
        await asyncio.sleep(0.05)
        assert broker.transport is not None
        await broker.start(broker.transport)
        await asyncio.gather(*tasks)
        assert broker.topic("t").payloads() == [b"1", b"2"]


@pytest.mark.parametrize("code", [ErrorCode.TOO_MANY_REQUESTS, ErrorCode.SERVICE_NOT_READY])
async def test_repeatedly_closed_producer_reopens_with_backoff(code: ErrorCode) -> None:
    """PRD-9: a producer that is closed at once is reopened after growing pauses; one that was open long, at once."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        producer = await client.create_producer("t", send_timeout_millis=0)
        clock.advance(5)
        broker.ends = broker.topic("t"), code
        (task,) = sending(producer, b"1")
        await until(lambda: len(broker.opened) == 2, "after 5 s, it is reopened without a pause")
        began = clock.monotonic()
        while clock.monotonic() - began < 20:
            for _ in range(50):
                await asyncio.sleep(0)
            clock.advance(0.05)
        assert 10 <= len(broker.opened) <= 30
        assert not task.done()
        broker.ends = None
        await _pass_time(clock, task)
        await task
        assert broker.topic("t").payloads() == [b"1"]


async def test_closing_waits_a_few_seconds_for_a_broker_that_hangs() -> None:
    """Closing waits for receipts up to the send timeout, and for less if nothing is pending."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        producer = await client.create_producer("t")
        await producer.send(b"1")
        broker.answering.clear()
        began = clock.monotonic()
        closing = asyncio.get_running_loop().create_task(client.close())
        await _pass_time(clock, closing)
        await closing
        assert clock.monotonic() - began < 5


async def _pass_time(clock: ManualClock, until_done: asyncio.Task[Any]) -> None:
    for _ in range(5_000):
        if until_done.done():
            return
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(0.05)


async def test_the_log_of_a_closed_producer_gives_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        producer = await client.create_producer("t")
        broker.receipting.clear()
        sends = sending(producer, b"1")
        await until(lambda: len(broker.topic("t").entries) == 1, "it is stored")
        clock.advance(20)
        sends += sending(producer, b"2")
        closing = asyncio.get_running_loop().create_task(producer.close())
        await asyncio.gather(*sends, _pass_time(clock, closing), return_exceptions=True)
        await closing
        [text] = [one.message for one in caplog.records if "failed messages" in one.message]
        assert "no result within 30 s" in text


async def test_a_quota_of_which_messages_fail_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """RET-4: with `producer_exception`, and not before a message fails."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        producer = await client.create_producer("t")
        broker.problems["persistent://public/default/t"] = ErrorCode.BACKLOG_QUOTA_EXCEEDED
        broker.end_producers(broker.topic("t"), ErrorCode.BACKLOG_QUOTA_EXCEEDED)
        await until(lambda: not producer.is_connected(), "it is closed")
        for expected in (0, 1, 1):
            assert sum("fail: " in one.message for one in caplog.records) == expected
            (task,) = sending(producer, b"x")
            await _pass_time(clock, task)
            with pytest.raises(exceptions.ProducerBlockedQuotaExceededException):
                await task


@pytest.mark.parametrize("connected", [True, False])
async def test_a_send_without_a_receipt_times_out(connected: bool) -> None:
    """PRD-9: after 30 s, pending sends fail with Timeout, and the producer goes on. What was not sent is not stored."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        producer = await client.create_producer("t")
        broker.receipting.clear()
        if not connected:
            await broker.stop()
        began = clock.monotonic()
        (task,) = sending(producer, b"1")
        await _pass_time(clock, task)
        assert 29 < clock.monotonic() - began < 34
        with pytest.raises(exceptions.Timeout, match=r"30 s .*" + ("may be" if connected else "is not") + " stored"):
            task.result()
        broker.receipting.set()
        if not connected:
            assert broker.transport is not None
            await broker.start(broker.transport)
        (task,) = sending(producer, b"2")
        await _pass_time(clock, task)
        assert task.result().entry_id() == int(connected)


async def test_without_a_timeout_sends_wait_for_ever() -> None:
    """PRD-9: `send_timeout_millis=0`."""
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        producer = await client.create_producer("t", send_timeout_millis=0)
        broker.receipting.clear()
        (task,) = sending(producer, b"1")
        for _ in range(200):
            await asyncio.sleep(0)
            clock.advance(10)
        assert not task.done()
        broker.receipting.set()
        await task


@pytest.mark.parametrize("by_itself", [False, True])
async def test_pending_messages_of_a_deleted_topic_fail_and_later_ones_go_to_the_next_topic(by_itself: bool) -> None:
    """TOP-7: no message of the old topic is sent to the new one, whether a client creates that or another one does."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        await producer.send(b"1")
        broker.receipting.clear()
        (task,) = sending(producer, b"2")
        await until(lambda: len(broker.topic("t").entries) == 2, "it is stored")
        broker.break_streams()
        broker.delete("t")
        if not by_itself:
            broker.topic("t")
        broker.receipting.set()
        with pytest.raises(exceptions.IncarnationChanged):
            await task
        await producer.send(b"3")
        assert broker.topic("t").payloads() == [b"3"]


async def test_a_deleted_topic_that_is_not_recreated_ends_the_producer() -> None:
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        await producer.send(b"1")
        broker.receipting.clear()
        (task,) = sending(producer, b"2")
        await until(lambda: len(broker.topic("t").entries) == 2, "it is stored")
        broker.problems["persistent://public/default/t"] = ErrorCode.TOPIC_NOT_FOUND
        broker.break_streams()
        broker.delete("t")
        broker.receipting.set()
        with pytest.raises(exceptions.IncarnationChanged):
            await task
        with pytest.raises(exceptions.TopicNotFound):
            await producer.send(b"3")
        with pytest.raises(exceptions.TopicNotFound):
            await producer.send(b"4")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.PRODUCER_FENCED, exceptions.ProducerFenced),
        (ErrorCode.TOPIC_TERMINATED, exceptions.TopicTerminated),
        (ErrorCode.NOT_ALLOWED, exceptions.NotAllowedError),
    ],
)
async def test_an_error_that_is_not_retryable_ends_the_producer(code: ErrorCode, error: type[Exception]) -> None:
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        broker.receipting.clear()
        (task,) = sending(producer, b"1")
        await until(lambda: len(broker.topic("t").entries) == 1, "it is in flight")
        broker.receipting.set()
        broker.end_producers(broker.topic("t"), code)
        await task  # its receipt came first
        with pytest.raises(error):
            await producer.send(b"2")
            await producer.send(b"3")
        with pytest.raises(error):
            await producer.flush()
        await producer.close()
        broker.problems["persistent://public/default/u"] = code
        with pytest.raises(error):
            await client.create_producer("u")


async def test_a_message_that_was_sent_before_its_topic_was_terminated_may_be_stored() -> None:
    """If its result was lost with the connection. One that was never sent is not stored."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t", batching_enabled=False)
        broker.receipting.clear()
        (sent,) = sending(producer, b"1")
        await until(lambda: len(broker.topic("t").entries) == 1, "it is stored")
        broker.problems["persistent://public/default/t"] = ErrorCode.TOPIC_TERMINATED
        broker.break_streams()
        await until(lambda: not producer.is_connected(), "the connection is lost")
        (waiting,) = sending(producer, b"2")
        broker.receipting.set()
        with pytest.raises(exceptions.ConnectError, match=r"not known.* now"):
            await sent
        with pytest.raises(exceptions.TopicTerminated):
            await waiting
        with pytest.raises(exceptions.TopicTerminated):
            await producer.send(b"3")


async def test_creating_a_producer_times_out() -> None:
    clock = ManualClock()
    async with scene(clock) as (broker, client):
        broker.problems["persistent://public/default/t"] = ErrorCode.SERVICE_NOT_READY
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(client.create_producer("t"))
        began = clock.monotonic()
        await _pass_time(clock, task)
        with pytest.raises(exceptions.ServiceUnitNotReady):
            task.result()
        assert 20 < clock.monotonic() - began < 40
        await broker.stop()
        task = asyncio.get_running_loop().create_task(client.create_producer("t"))
        await _pass_time(clock, task)
        with pytest.raises(exceptions.ConnectError):
            task.result()


async def test_shutdown_of_an_asyncio_client_is_not_a_coroutine() -> None:
    """As with Pulsar's client. Everything has ended when it returns, except the connections."""
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        broker.receipting.clear()
        (task,) = sending(producer, b"1")
        await until(lambda: len(broker.topic("t").entries) == 1, "it is in flight")
        client.shutdown()
        with pytest.raises(exceptions.AlreadyClosed):
            await task
        with pytest.raises(exceptions.AlreadyClosed):
            await client.create_producer("u")
        broker.receipting.set()
        await client.close()
        await until(lambda: not broker.produce_sessions, "the connection is closed")


def test_a_client_that_was_not_closed_ends_with_its_loop(caplog: pytest.LogCaptureFixture) -> None:
    """With a ResourceWarning. No task is destroyed while it runs, and none reconnects."""

    async def go() -> FakeBroker:
        transport = InProcessTransport()
        broker = await FakeBroker().start(transport)
        client = aio.Client(URL, _transport=transport)
        producer = await client.create_producer("t")
        await producer.send(b"1")
        return broker

    with pytest.warns(ResourceWarning, match="not closed"):
        broker = asyncio.run(go())
    gc.collect()
    assert len(broker.opened) == 1
    assert "destroyed" not in caplog.text


async def test_a_cancelled_creation_leaves_nothing_at_the_broker() -> None:
    for turns in range(40):
        async with scene(seed=turns) as (broker, client):
            task = asyncio.get_running_loop().create_task(client.create_producer("t", producer_name="p"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await (await task).close()
            await (await client.create_producer("t", producer_name="p")).close()
            assert not broker.topic("t").producers


async def test_cancelled_send_recalls_no_sent_message_and_loses_no_other() -> None:
    async with scene() as (broker, client):
        producer = await client.create_producer("t", max_pending_messages=2, block_if_queue_full=True)
        broker.receipting.clear()
        tasks = sending(producer, b"1", b"2", b"3", b"4")
        await until(lambda: len(broker.topic("t").payloads()) == 2, "two are in flight, and two wait for capacity")
        tasks[0].cancel()
        tasks[2].cancel()
        broker.receipting.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) is asyncio.CancelledError for each in done] == [True, False, True, False]
        await producer.send(b"5")
        assert broker.topic("t").payloads() == [b"1", b"2", b"4", b"5"]


async def test_close_waits_for_a_restarted_broker_and_leaves_no_task() -> None:
    async with scene() as (broker, client):
        producer = await client.create_producer("t")
        await broker.stop()
        (task,) = sending(producer, b"1")
        await asyncio.sleep(0)
        closing = asyncio.get_running_loop().create_task(producer.close())
        assert broker.transport is not None
        await broker.start(broker.transport)
        await closing
        await task
        assert broker.topic("t").payloads() == [b"1"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_order_and_nothing_lost_while_everything_breaks() -> None:
    """PRD-9, PRD-10, CHK-33: streams break at chance moments, producers are ended, receipts are lost; each message with
    a receipt is stored, and first copies are in the order of sending.
    """

    async def go(seed: int) -> None:
        chance = SeededRandomness(seed)
        async with scene(seed=seed) as (broker, client):
            producer = await client.create_producer(
                "t",
                max_pending_messages=30,
                block_if_queue_full=True,
                batching_max_messages=1 + chance.below(5),
                batching_max_publish_delay_ms=chance.below(3),
            )
            sends = []
            for number in range(300):
                sends += sending(producer, b"%d" % number)
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
                if chance.random() < 0.04:
                    inject_fault(broker, chance)
            broker.receipting.set()
            ids = await asyncio.gather(*sends)
            stored = broker.topic("t").payloads()
            first_seen = list(dict.fromkeys(stored))
            assert first_seen == [b"%d" % number for number in range(300)]
            flat = {
                (entry, index if len(messages) > 1 else -1): payload
                for entry, messages in enumerate(broker.topic("t").messages())
                for index, payload in enumerate(messages.payloads)
            }
            for number, message_id in enumerate(ids):
                assert flat[message_id.entry_id(), message_id.batch_index()] == b"%d" % number

    for seed in range(15):
        await go(seed)


def inject_fault(broker: FakeBroker, chance: SeededRandomness) -> None:
    kind = chance.below(4)
    if kind == 0:
        broker.break_streams()
    elif kind == 1:
        broker.end_producers(broker.topic("t"), ErrorCode.SERVICE_NOT_READY)
    elif kind == 2:
        broker.receipting.clear()
    else:
        broker.receipting.set()
