"""The synchronous consumer and reader, with threads and Ctrl-C."""

from __future__ import annotations

import re
import signal
import threading
from typing import Any

import pytest

from magnetar import ConsumerBatchReceivePolicy, ConsumerInterceptor, ConsumerType, MessageId
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration, Timeout
from tests.unit.client.sync_consume_scene import EARLIEST, LONG_MS, ctrl_c_interrupts, sync_consume_scene, wait_until


def test_arguments_of_wrong_types_are_refused_by_name() -> None:
    with sync_consume_scene() as on:
        for topic in (None, 5, ["t", 5], [re.compile("t")]):
            with pytest.raises(TypeError, match="subscribe takes a topic, a list of topics or a pattern"):
                on.client.subscribe(topic, "s")  # type: ignore[arg-type]
        for interceptors in (None, [ConsumerInterceptor()]):
            with on.client.subscribe("t", "s", interceptors=interceptors) as consumer:
                wrong: Any
                for wrong in (None, 5, "x", "", {}, [None]):
                    with pytest.raises(TypeError, match="a Message or MessageId can be acknowledged, not"):
                        consumer.acknowledge(wrong)
                with pytest.raises(InvalidConfiguration, match="is out of range: use ms since 1970"):
                    consumer.seek(2**70)
    for limit in ("5", 1.5, None, True):
        with pytest.raises(InvalidConfiguration, match="a limit of a batch_receive_policy is an int, not"):
            ConsumerBatchReceivePolicy(limit)  # type: ignore[arg-type]


def test_receive_acknowledge_seek_and_close() -> None:
    """CON-2, CON-3"""
    with sync_consume_scene() as on:
        with on.client.subscribe("t", "s", **EARLIEST) as consumer:
            with pytest.raises(Timeout):
                consumer.receive(1)
            with pytest.raises(TypeError, match="timeout_millis is a number of ms"):
                consumer.receive("x")  # type: ignore[arg-type]
            on.publish(b"a")
            on.publish(b"b", b"c")
            messages = [consumer.receive(LONG_MS) for _ in range(3)]
            assert [message.data() for message in messages] == [b"a", b"b", b"c"]
            consumer.acknowledge(messages[0])
            consumer.acknowledge(messages[1:], receipt=True)
            topic = on.broker.topic("t")
            assert topic.cursors.cursors["s"].mark_delete == topic.log.last
            consumer.seek(MessageId.earliest)
            again = consumer.receive(LONG_MS)
            assert again.data() == b"a"
            consumer.acknowledge_cumulative(again, receipt=True)
            assert consumer.get_last_message_id().batch_index() == 1
            consumer.negative_acknowledge(again)
            assert consumer.is_connected()
        with pytest.raises(AlreadyClosed):
            consumer.receive()
        with pytest.raises(AlreadyClosed):
            consumer.acknowledge(again)


def test_after_a_redelivery_request_no_prefetched_message_is_received() -> None:
    """CON-5: at once, and however often; a cumulative acknowledgement then loses nothing."""
    with sync_consume_scene() as on:
        on.publish_each(500)
        consumer = on.client.subscribe("t", "s", **EARLIEST)
        for number in range(20):
            for _ in range(5 + number * 10):
                consumer.receive(LONG_MS)
            consumer.redeliver_unacknowledged_messages()
            again = consumer.receive(LONG_MS)
            assert again.data() == b"%d" % number
            consumer.acknowledge_cumulative(again, receipt=True)


def test_many_threads_receive_each_message_once() -> None:
    """CON-2"""
    with sync_consume_scene() as on:
        on.publish_each(6000)
        consumer = on.client.subscribe("t", "s", ConsumerType.Shared, **EARLIEST, receiver_queue_size=50)
        got: list[list[bytes]] = [[] for _ in range(6)]

        def receive(mine: list[bytes], batches: bool) -> None:
            while True:
                try:
                    messages = consumer.batch_receive() if batches else [consumer.receive()]
                except AlreadyClosed:
                    return
                if messages:  # none, where its time was over: the consumer may be closed since
                    consumer.acknowledge(messages)
                mine += [message.data() for message in messages]

        threads = [threading.Thread(target=receive, args=(mine, at > 3)) for at, mine in enumerate(got)]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(map(len, got)) >= 6000, "all are received")
        consumer.close()
        for thread in threads:
            thread.join()
        assert sorted(int(one) for mine in got for one in mine) == list(range(6000))
        topic = on.broker.topic("t")
        assert topic.cursors.cursors["s"].mark_delete == topic.log.last


@pytest.mark.parametrize("how", ["receive", "receive in time", "batch"])
def test_ctrl_c_ends_a_wait_and_loses_no_message(how: str) -> None:
    """CON-2"""
    with sync_consume_scene() as on, ctrl_c_interrupts():
        policy = ConsumerBatchReceivePolicy(10, -1, -1)
        consumer = on.client.subscribe("t", "s", batch_receive_policy=policy)
        waits = {
            "receive": consumer.receive,
            "receive in time": lambda: consumer.receive(LONG_MS),
            "batch": consumer.batch_receive,
        }
        with pytest.raises(KeyboardInterrupt):
            # On another thread: the system call in which this one waits does not hear of it.
            threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)).start()
            waits[how]()
        on.publish(b"a")
        assert consumer.receive(LONG_MS).data() == b"a"


def test_a_reader_reads_and_is_closed() -> None:
    """CON-11"""
    with sync_consume_scene() as on:
        on.publish(b"a", b"b")
        with on.client.create_reader("t", MessageId.earliest) as reader:
            got = []
            while reader.has_message_available():
                got.append(reader.read_next(LONG_MS).data())
            assert got == [b"a", b"b"]
            with pytest.raises(Timeout):
                reader.read_next(1)
            assert reader.topic() == "persistent://public/default/t"
            reader.seek(MessageId.earliest)
            iterator = iter(reader)
            assert [next(iterator).data(), next(iterator).data()] == [b"a", b"b"]
        assert list(reader) == []


def test_closing_the_client_sends_acknowledgements() -> None:
    """CON-3"""
    with sync_consume_scene() as on:
        on.publish(b"a")
        consumer = on.client.subscribe("t", "s", **EARLIEST, ack_grouping_time_ms=1e9)
        consumer.acknowledge(consumer.receive(LONG_MS))
        topic = on.broker.topic("t")
    assert topic.cursors.cursors["s"].mark_delete == topic.log.last
    consumer.close()
    with pytest.raises(AlreadyClosed):
        consumer.receive()
