"""Ctrl-C in every call that waits, while brokers are silent. The same objects can be used afterwards."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from magnetar import ConsumerBatchReceivePolicy, Message, MessageId
from magnetar.admin import Admin
from magnetar.exceptions import AlreadyClosed
from tests.unit.client.consume_scene import MemoryBroker
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.scene import SyncScene, sync_scene
from tests.unit.client.sync_consume_scene import EARLIEST, LONG_MS, ctrl_c_interrupts, sync_consume_scene

# Far below the timeout of any of the calls.
PROMPT_S = 10.0


def interrupted(call: Callable[[], object]) -> None:
    """Interrupt a call while it waits. The signal goes to another thread, so the main thread's system call is not
    interrupted by it, as if it had arrived just before that call."""
    timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        call()
    timer.join()
    assert time.monotonic() - began < PROMPT_S


def _silence(broker: FakeBroker | MemoryBroker, silent: bool) -> None:
    for answering in (broker.answering, broker.answering_calls):
        answering.clear() if silent else answering.set()


@pytest.mark.parametrize("how", ["create_producer", "get_topic_partitions", "send", "send_async", "flush", "close"])
def test_ctrl_c_while_a_producer_waits(how: str) -> None:
    """PRD-1: messages that were passed to the producer stay pending and are stored in order. The next call works."""
    with sync_scene() as made, made.client() as client, ctrl_c_interrupts():
        producer = client.create_producer("t", max_pending_messages=3, block_if_queue_full=True)
        producer.send(b"0")
        made.on_loop(lambda broker: _silence(broker, True))

        def send_async(*numbers: int) -> None:
            for number in numbers:
                producer.send_async(b"%d" % number)

        def flush() -> None:
            send_async(1)
            producer.flush()

        def close() -> None:
            send_async(1)
            producer.close()

        calls: dict[str, Callable[[], object]] = {
            "create_producer": lambda: client.create_producer("u", "name"),
            "get_topic_partitions": lambda: client.get_topic_partitions("u"),
            "send": lambda: producer.send(b"1"),
            "send_async": lambda: send_async(*range(1, 9)),
            "flush": flush,
            "close": close,
        }
        interrupted(calls[how])
        made.on_loop(lambda broker: _silence(broker, False))
        if how == "create_producer":
            client.create_producer("u", "name").send(b"its name is free")
        if how == "close":
            with pytest.raises(AlreadyClosed):
                producer.send(b"2")
            return
        producer.send(b"last")
        stored = made.on_loop(lambda broker: broker.topic("t").payloads())
        numbers = [b"%d" % number for number in range(len(stored) - 1)]
        assert stored == [*numbers, b"last"]
        assert len(numbers) == {"send": 2, "send_async": 4, "flush": 2}.get(how, 1)


@pytest.mark.parametrize(
    "how",
    [
        "subscribe",
        "receive",
        "receive in time",
        "batch_receive",
        "acknowledge",
        "acknowledge_cumulative",
        "seek",
        "get_last_message_id",
        "get_last_message_ids",
        "unsubscribe",
        "close",
    ],
)
def test_ctrl_c_while_a_consumer_waits(how: str) -> None:
    """CON-2, CON-3: no message is lost to the call that was interrupted, and the consumer goes on."""
    with sync_consume_scene() as made, ctrl_c_interrupts():
        client = made.client
        policy = ConsumerBatchReceivePolicy(10, -1, -1)
        consumer = client.subscribe("t", "s", **EARLIEST, batch_receive_policy=policy)
        made.publish(b"0")
        message = consumer.receive(LONG_MS)
        made.on_loop(lambda broker: _silence(broker, True))
        calls: dict[str, Callable[[], object]] = {
            "subscribe": lambda: client.subscribe("t", "other"),
            "receive": consumer.receive,
            "receive in time": lambda: consumer.receive(LONG_MS),
            "batch_receive": consumer.batch_receive,
            "acknowledge": lambda: consumer.acknowledge(message, receipt=True),
            "acknowledge_cumulative": lambda: consumer.acknowledge_cumulative(message, receipt=True),
            "seek": lambda: consumer.seek(MessageId.latest),
            "get_last_message_id": consumer.get_last_message_id,
            "get_last_message_ids": consumer.get_last_message_ids,
            "unsubscribe": consumer.unsubscribe,
            "close": consumer.close,
        }
        interrupted(calls[how])
        made.on_loop(lambda broker: _silence(broker, False))
        made.publish(b"1")
        made.publish(b"2")
        if how in ("close", "unsubscribe"):
            consumer.close()
            consumer = client.subscribe("t", "s" if how == "close" else "a new one", **EARLIEST)
        with client.subscribe("t", "other"):
            pass
        consumer.seek(MessageId.earliest)
        got: list[Message] = [consumer.receive(LONG_MS) for _ in range(3)]
        assert [one.data() for one in got] == [b"0", b"1", b"2"]
        consumer.acknowledge(got, receipt=True)


@pytest.mark.parametrize("how", ["create_reader", "read_next", "has_message_available", "seek", "for", "close"])
def test_ctrl_c_while_a_reader_waits(how: str) -> None:
    """CON-11"""
    with sync_consume_scene() as made, ctrl_c_interrupts():
        client = made.client
        reader = client.create_reader("t", MessageId.earliest)
        made.publish(b"0")
        assert reader.read_next(LONG_MS).data() == b"0"
        made.on_loop(lambda broker: _silence(broker, True))
        calls: dict[str, Callable[[], object]] = {
            "create_reader": lambda: client.create_reader("t", MessageId.earliest),
            "read_next": reader.read_next,
            "has_message_available": reader.has_message_available,
            "seek": lambda: reader.seek(MessageId.earliest),
            "for": lambda: list(reader),
            "close": reader.close,
        }
        interrupted(calls[how])
        made.on_loop(lambda broker: _silence(broker, False))
        made.publish(b"1")
        if how == "close":
            reader.close()
            reader = client.create_reader("t", MessageId.earliest)
        elif how == "seek":  # it was done, or not
            reader.seek(MessageId.earliest)
        if how in ("close", "seek"):
            assert reader.read_next(LONG_MS).data() == b"0"
        assert reader.read_next(LONG_MS).data() == b"1"


@pytest.mark.parametrize("what", ["sends", "callbacks"])
def test_ctrl_c_while_a_client_closes(what: str) -> None:
    """An interrupted close ends at once, and nothing hangs."""
    held = threading.Event()
    results: list[object] = []
    with sync_scene() as made, ctrl_c_interrupts():
        client = made.client()
        producer = client.create_producer("t")

        def callback(*outcome: object) -> None:
            results.append(outcome)
            if what == "callbacks":
                held.wait(60)

        if what == "sends":
            made.on_loop(lambda broker: _silence(broker, True))
        producer.send_async(b"1", callback)
        interrupted(client.close)
        held.set()
        made.on_loop(lambda broker: _silence(broker, False))
        with pytest.raises(AlreadyClosed):
            producer.send(b"2")
        client.close()
        deadline = time.monotonic() + PROMPT_S
        while not results and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(results) == 1
        assert _works(made)


def _works(made: SyncScene) -> bool:
    """Return whether another client of the same process works."""
    with made.client() as client:
        return bool(client.create_producer("another").send(b"x"))


def test_ctrl_c_while_an_administrator_waits() -> None:
    """All calls take the same path. The administrator can be used again."""
    with ctrl_c_interrupts(), Admin("magnetar://127.0.0.1:1", operation_timeout_seconds=3_600) as admin:
        for call in (admin.tenants.list, lambda: admin.topics.list("public/default")):
            interrupted(call)
