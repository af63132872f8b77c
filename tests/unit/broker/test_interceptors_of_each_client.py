"""Interceptors of producers and consumers, of the synchronous and the asyncio client on a real broker."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import magnetar
from magnetar import (
    ConsumerInterceptor,
    InitialPosition,
    Message,
    MessageId,
    ProducerInterceptor,
    ProducerMessage,
    ReaderInterceptor,
)
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration, TopicTerminated
from tests.unit.broker.each_client import LONG_MS, EachClient, each_client
from tests.unit.client.sync_consume_scene import wait_until

_of_our_clients = pytest.mark.parametrize("kind", ["sync", "aio"])
_EARLIEST: Any = {"initial_position": InitialPosition.Earliest}


class Tagging(ProducerInterceptor):
    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[tuple[Any, ...]] = []
        self.threads: dict[str, str] = {}

    def _note(self, *what: Any) -> None:
        self.calls.append(what)
        self.threads[what[0]] = threading.current_thread().name

    def eligible(self, message: ProducerMessage) -> bool:
        return bool(message.content != b"not eligible")

    def before_send(self, producer: Any, message: ProducerMessage) -> ProducerMessage | None:
        self._note("before", producer.topic(), message.content)
        message.properties = {**(message.properties or {}), self.name: "was here"}
        return message if self.name == "a" else None

    def on_send_acknowledgement(
        self, producer: Any, message: ProducerMessage, message_id: MessageId | None, exception: BaseException | None
    ) -> None:
        self._note("acknowledged", message.content, message_id, exception)

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self._note("partitions", topic, partitions)

    def close(self) -> None:
        self._note("closed")


class Raising(ProducerInterceptor):
    """Fails in each call. What it has changed before has no effect."""

    def before_send(self, producer: Any, message: ProducerMessage) -> ProducerMessage | None:
        message.content = b"from an interceptor that raises"
        raise ValueError("before_send")

    def on_send_acknowledgement(self, *arguments: object) -> None:
        raise ValueError("on_send_acknowledgement")

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        raise ValueError("on_partitions_change")

    def close(self) -> None:
        raise ValueError("close")


class Odd(ProducerInterceptor):
    """Returns what can't be sent."""

    def before_send(self, producer: Any, message: ProducerMessage) -> Any:
        if message.content == b"garbage":
            return b"garbage"
        if message.content == b"unsendable":
            message.properties = 5  # type: ignore[assignment]
        return message


def _properties(made: EachClient, topic: str) -> list[dict[str, str]]:
    return [dict(columns.properties[0]) if columns.properties else {} for columns in made.batches(topic)]


@_of_our_clients
def test_producer_interceptors_see_and_change_messages_in_order(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with each_client(kind) as made:
        first, second = Tagging("a"), Tagging("b")
        producer = made.client.create_producer("t", interceptors=[first, Raising(), Odd(), second])
        topic = producer.topic()
        sent = producer.send(b"one", {"own": "x"})
        (other,) = made.send_all(producer, b"two")
        for content in (b"not eligible", b"garbage", b"unsendable"):
            producer.send(content)
        with pytest.raises(TypeError, match="content is bytes"):
            producer.send(5)
        tags = {"a": "was here", "b": "was here"}
        assert _properties(made, "t") == [{"own": "x", **tags}, tags, {}, tags, {}]
        assert made.payloads("t") == [b"one", b"two", b"not eligible", b"garbage", b"unsendable"]
        wait_until(lambda: len(first.calls) == 10, "all results are reported")
        assert [call for call in second.calls if call[0] == "before"][:2] == [
            ("before", topic, b"one"),
            ("before", topic, b"two"),
        ]
        results = {call[1]: call[2:] for call in first.calls if call[0] == "acknowledged"}
        assert (results[b"one"], results[b"two"]) == ((sent, None), (other, None))
        assert isinstance(results[5][1], TypeError)
        assert b"not eligible" not in results
        producer.close()
        wait_until(lambda: second.calls[-1] == ("closed",), "it is reported")
        with pytest.raises(AlreadyClosed):
            producer.send(b"late")
        assert isinstance(second.calls[-1][3], AlreadyClosed)
        assert second.calls.count(("closed",)) == 1
        if kind == "sync":
            assert second.threads["closed"] == "magnetar callbacks"
        for method in ("before_send", "on_send_acknowledgement", "close"):
            assert f"failed in {method}" in caplog.text or "failed before a message was sent" in caplog.text
        with pytest.raises(InvalidConfiguration, match="instances of ProducerInterceptor"):
            made.client.create_producer("t", interceptors=[ConsumerInterceptor()])


@_of_our_clients
def test_producer_interceptors_get_errors_and_values(kind: str) -> None:
    """A value is intercepted before its schema encodes it; the error of a message is that with which it has failed."""
    with each_client(kind) as made:
        seen = Tagging("a")
        producer = made.client.create_producer("t", schema=str, interceptors=[seen])
        producer.send("one")
        assert made.payloads("t") == [b"one"]
        made.run(lambda: made.scene.admin.topics.terminate("t"))
        with pytest.raises(TopicTerminated):
            producer.send("two")
        wait_until(lambda: len(seen.calls) == 4, "it is reported")
        assert [call[2] for call in seen.calls if call[0] == "before"] == ["one", "two"]
        assert isinstance(seen.calls[-1][3], TopicTerminated)


@_of_our_clients
def test_interceptors_are_notified_of_new_partitions(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with each_client(kind) as made:
        made.run(lambda: made.scene.admin.topics.create_partitioned("p", 1))
        sends, receives = Tagging("a"), Receiving()
        soon: Any = {"auto_update_partitions_interval_seconds": 0.01}
        producer = made.client.create_producer("p", interceptors=[Raising(), sends], **soon)
        consumer = made.client.subscribe("p", "s", interceptors=[RaisingConsumer(), receives], **soon)
        made.run(lambda: made.scene.admin.topics.update_partitioned("p", 3))
        wait_until(lambda: sends.calls and receives.calls, "both are notified")
        assert sends.calls == [("partitions", producer.topic(), 3)]
        assert receives.calls == [("partitions", consumer.topic(), 3)]
        assert caplog.text.count("failed in on_partitions_change") == 2


class Receiving(ConsumerInterceptor):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.threads: dict[str, str] = {}

    def _note(self, *what: Any) -> None:
        self.calls.append(what)
        self.threads[what[0]] = threading.current_thread().name

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in names]

    def on_arrival(self, consumer: Any, message: Message) -> None:
        self._note("arrived", message.data())

    def before_consume(self, consumer: Any, message: Message) -> None:
        self._note("consumed", message.data())

    def on_acknowledge(self, consumer: Any, message_id: MessageId, exception: BaseException | None) -> None:
        self._note("acknowledged", message_id, exception)

    def on_acknowledge_cumulative(self, consumer: Any, message_id: MessageId, exception: BaseException | None) -> None:
        self._note("cumulative", message_id, exception)

    def on_negative_acks_send(self, consumer: Any, message_ids: set[MessageId]) -> None:
        self._note("nacked", message_ids)

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self._note("partitions", topic, partitions)

    def close(self) -> None:
        self._note("closed")


class RaisingConsumer(ConsumerInterceptor):
    """Fails in each call."""

    def __getattribute__(self, name: str) -> Any:
        return _fail if hasattr(ConsumerInterceptor, name) and name[0] != "_" else super().__getattribute__(name)

    def on_arrival(self, consumer: Any, message: Message) -> None: ...


def _fail(*arguments: Any) -> None:
    raise ValueError("an interceptor's own")


class Renamed:
    """Stands for a message."""

    def __init__(self, message: Any) -> None:
        self.message = message

    def data(self) -> bytes:
        data: bytes = self.message.data()
        return b"renamed " + data

    def message_id(self) -> MessageId:
        message_id: MessageId = self.message.message_id()
        return message_id


class Renaming(ConsumerInterceptor):
    def on_arrival(self, consumer: Any, message: Any) -> Any:
        return Renamed(message) if message.data() == b"0" else None

    def before_consume(self, consumer: Any, message: Any) -> Any:
        return b"no message" if message.data() == b"1" else message


@_of_our_clients
def test_consumer_interceptors_see_and_change_messages(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with each_client(kind) as made:
        producer = made.client.create_producer("t")
        made.send_all(producer, *(b"%d" % number for number in range(6)))
        last = Receiving()
        consumer = made.client.subscribe(
            "t",
            "s",
            interceptors=[RaisingConsumer(), Renaming(), last],
            batch_receive_policy=magnetar.ConsumerBatchReceivePolicy(2, -1, LONG_MS),
            negative_ack_redelivery_delay_ms=1,
            **_EARLIEST,
        )
        messages = [consumer.receive(LONG_MS) for _ in range(4)] + consumer.batch_receive()
        received = [b"renamed 0", b"1", b"2", b"3", b"4", b"5"]
        assert [message.data() for message in messages] == received
        wait_until(lambda: len(last.of("arrived")) == 6, "all have arrived")
        assert sorted(last.of("arrived")) == [("arrived", data) for data in [*received[1:], b"renamed 0"]]
        assert last.of("consumed") == [("consumed", data) for data in received]
        for data in received:
            assert last.calls.index(("arrived", data)) < last.calls.index(("consumed", data))
        ids = [message.message_id() for message in messages]
        consumer.acknowledge(messages[0])
        consumer.acknowledge(iter([messages[1], ids[2]]), receipt=True)
        consumer.acknowledge_cumulative(ids[3])
        assert last.of("acknowledged") == [("acknowledged", one, None) for one in ids[:3]]
        assert last.of("cumulative") == [("cumulative", ids[3], None)]
        consumer.negative_acknowledge(messages[4])
        assert consumer.receive(LONG_MS).data() == b"4"
        wait_until(lambda: last.of("nacked"), "it is notified")
        ((_, nacked),) = last.of("nacked")
        assert [(one.ledger_id(), one.entry_id(), one.topic_name()) for one in nacked] == [
            (ids[4].ledger_id(), ids[4].entry_id(), consumer.topic())
        ]
        consumer.close()
        with pytest.raises(AlreadyClosed):
            consumer.acknowledge(messages[4])
        wait_until(lambda: last.of("closed"), "it is notified")
        assert isinstance(last.of("acknowledged")[-1][2], AlreadyClosed)
        assert last.of("closed") == [("closed",)]
        if kind == "sync":
            assert last.threads["nacked"] == last.threads["closed"] == "magnetar callbacks"
        for method in ("on_arrival", "before_consume", "on_acknowledge", "on_negative_acks_send", "close"):
            assert f"failed in {method}" in caplog.text
        assert "before_consume of the interceptor" in caplog.text
        with pytest.raises(InvalidConfiguration, match="instances of ConsumerInterceptor"):
            made.client.subscribe("t", "other", interceptors=print)


class Reading(ReaderInterceptor):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def before_read(self, reader: Any, message: Message) -> Any:
        if message.data() == b"1":
            raise ValueError("an interceptor's own")
        return Renamed(message)

    def on_partitions_change(self, topic: str, partitions: int) -> None:
        self.calls.append((topic, partitions))

    def close(self) -> None:
        self.calls.append("closed")


@_of_our_clients
def test_reader_interceptors_see_and_change_messages(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """(CON-11) Also those that a listener gets. They are notified of new partitions."""
    with each_client(kind) as made:
        made.run(lambda: made.scene.admin.topics.create_partitioned("p", 1))
        made.send_all(made.client.create_producer("p"), b"0", b"1")
        seen, got = Reading(), list[bytes]()
        options: Any = {"interceptors": [seen, ReaderInterceptor()], "auto_update_partitions_interval_seconds": 0.01}
        reader = made.client.create_reader("p", MessageId.earliest, **options)
        assert [reader.read_next(LONG_MS).data() for _ in range(2)] == [b"renamed 0", b"1"]
        assert "of the reader of persistent://public/default/p failed in before_read" in caplog.text
        made.run(lambda: made.scene.admin.topics.update_partitioned("p", 2))
        wait_until(lambda: seen.calls, "it is notified")
        reader.close()
        wait_until(lambda: len(seen.calls) == 2, "it is notified")
        assert seen.calls == [(reader.topic(), 2), "closed"]
        listening: Any = {"reader_listener": lambda reader, message: got.append(message.data())}
        made.client.create_reader("p", MessageId.earliest, interceptors=[Reading()], **listening)
        wait_until(lambda: len(got) == 2, "both are listened to")
        assert got == [b"renamed 0", b"1"]
        with pytest.raises(InvalidConfiguration, match="instances of ReaderInterceptor"):
            made.client.create_reader("p", MessageId.earliest, interceptors=[Receiving()])


@_of_our_clients
def test_a_listener_gets_intercepted_messages(kind: str) -> None:
    """CON-2"""
    with each_client(kind) as made:
        made.send_all(made.client.create_producer("t"), b"0", b"1")
        got: list[bytes] = []
        made.client.subscribe(
            "t",
            "s",
            interceptors=[Renaming()],
            message_listener=lambda consumer, message: got.append(message.data()),
            **_EARLIEST,
        )
        wait_until(lambda: len(got) == 2, "both are listened to")
        assert got == [b"renamed 0", b"1"]


@_of_our_clients
def test_a_retried_message_is_reported_as_acknowledged(kind: str) -> None:
    """CON-9"""
    with each_client(kind) as made:
        made.client.create_producer("t").send(b"0")
        seen = Receiving()
        consumer = made.client.subscribe(
            "t", "s", magnetar.ConsumerType.Shared, enable_retry=True, interceptors=[seen], **_EARLIEST
        )
        message = consumer.receive(LONG_MS)
        with pytest.raises(TypeError, match="delay_ms is a number"):
            consumer.reconsume_later(message, "soon")
        consumer.reconsume_later(message, 0)
        failed, done = seen.of("acknowledged")
        assert (failed[1], type(failed[2])) == (message.message_id(), TypeError)
        assert done == ("acknowledged", message.message_id(), None)


@_of_our_clients
def test_a_dead_letter_is_reported_as_acknowledged(kind: str) -> None:
    """CON-10"""
    with each_client(kind) as made:
        made.client.create_producer("t").send(b"0")
        seen = Receiving()
        consumer = made.client.subscribe(
            "t",
            "s",
            magnetar.ConsumerType.Shared,
            dead_letter_policy=magnetar.ConsumerDeadLetterPolicy(1),
            negative_ack_redelivery_delay_ms=1,
            interceptors=[RaisingConsumer(), seen],
            **_EARLIEST,
        )
        for _ in range(2):
            assert seen.of("acknowledged") == []
            message = consumer.receive(LONG_MS)
            consumer.negative_acknowledge(message)
        wait_until(lambda: seen.of("acknowledged"), "the dead letter is stored")
        assert seen.of("acknowledged") == [("acknowledged", message.message_id(), None)]
