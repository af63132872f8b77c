"""The synchronous producer, with a fake broker."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

import magnetar
from magnetar import CompressionType, MessageId, Result, exceptions
from magnetar_wire.entry import decode_entry
from magnetar_wire.limits import MAX_MESSAGE_BYTES, MAX_METADATA_BYTES
from tests.running import GENEROUS_S
from tests.unit.client.scene import SyncScene, sync_scene


class RecordingCallback:
    """A callback that records its calls. `wait` returns when there were `count` of them."""

    def __init__(self) -> None:
        self.results: list[tuple[Result, MessageId | None]] = []
        self.threads: set[str] = set()
        self._more = threading.Condition()

    def __call__(self, result: Result, message_id: MessageId | None) -> None:
        with self._more:
            self.results.append((result, message_id))
            self.threads.add(threading.current_thread().name)
            self._more.notify_all()

    def wait(self, count: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self.results) >= count, GENEROUS_S)


def payloads(made: SyncScene, topic: str) -> list[bytes | None]:
    return made.on_loop(lambda broker: broker.topic(topic).payloads())


def test_send_returns_when_the_message_is_durable() -> None:
    """`send` waits for the receipt and closes the open batch at once, long before its delay is over."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", batching_max_publish_delay_ms=3_600_000)
        assert producer.topic() == "persistent://public/default/t"
        assert producer.is_connected()
        assert producer.last_sequence_id() == -1
        first = producer.send(b"one")
        assert (first.ledger_id(), first.entry_id(), first.batch_index(), first.partition()) == (1, 0, -1, -1)
        producer.send_async(b"two")
        third = producer.send(b"three")
        assert (third.entry_id(), third.batch_index(), third.batch_size()) == (1, 1, 2)
        assert third.topic_name() == producer.topic()
        assert payloads(made, "t") == [b"one", b"two", b"three"]
        assert producer.last_sequence_id() == 2


def test_callbacks_get_each_message_s_id_on_a_thread_of_their_own() -> None:
    """`send_async` returns at once. A callback that raises an error does not affect the others."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", max_pending_messages=5_000)
        callback = RecordingCallback()

        def raises(result: Result, message_id: MessageId | None) -> None:
            raise ValueError("a bug in the application")

        for number in range(2_500):
            producer.send_async(b"%d" % number, callback)
            if number == 7:
                producer.send_async(b"?", raises)
        producer.flush()
        assert len(callback.results) == 2_500, "flush waits for callbacks, too"
        assert {result for result, _ in callback.results} == {Result.Ok}
        ids = [message_id for _, message_id in callback.results if message_id is not None]
        assert ids == sorted(ids)
        assert len(set(ids)) == 2_500
        assert callback.threads == {"magnetar callbacks"}


def test_batches_close_by_messages_by_bytes_and_by_time() -> None:
    """1,000 messages, 128 KiB or 10 ms by default, whichever comes first; a batch is one entry."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", max_pending_messages=10_000, batching_max_publish_delay_ms=60_000)
        for _ in range(2_000):
            producer.send_async(b"small")
        made.until(lambda broker: len(broker.topic("t").entries) == 2, "two batches are full")
        for _ in range(4):
            producer.send_async(bytes(60_000))
        made.until(lambda broker: len(broker.topic("t").entries) == 3, "two of the large ones fill another batch")
        producer.flush()
        sizes = made.on_loop(lambda broker: [len(messages) for messages in broker.topic("t").messages()])
        assert sizes == [1_000, 1_000, 2, 2]
        prompt = client.create_producer("u")
        prompt.send_async(b"not flushed")
        made.until(lambda broker: len(broker.topic("u").entries) == 1, "the delay is over")


def test_without_batching_each_message_is_an_entry() -> None:
    """PRD-4"""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", batching_enabled=False)
        callback = RecordingCallback()
        for number in range(5):
            producer.send_async(b"%d" % number, callback)
        callback.wait(5)
        assert [str(message_id) for _, message_id in callback.results] == [f"(1,{n},-1,-1)" for n in range(5)]
        entries = made.on_loop(lambda broker: broker.topic("t").entries)
        assert not any(decode_entry(entry).is_batch for entry in entries)


def test_everything_that_a_message_can_have_is_stored() -> None:
    """MSG-1: keys, properties, times, a null value, and sequence ids, the application's or consecutive ones."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", initial_sequence_id=9, batching_max_publish_delay_ms=60_000)
        producer.send_async(b"plain")
        producer.send_async(b"", properties={"a": "ä"}, partition_key="k", event_timestamp=5)
        producer.send_async(None, partition_key=b"\xff", ordering_key="o", sequence_id=20)
        producer.send_async(b"last")
        producer.flush()
        (messages,) = made.on_loop(lambda broker: broker.topic("t").messages())
        assert messages.payloads == [b"plain", b"", None, b"last"]
        assert messages.keys == [None, "k", b"\xff", None]
        assert messages.ordering_keys == [None, None, b"o", None]
        assert messages.properties is not None
        assert [dict(each) for each in messages.properties] == [{}, {"a": "ä"}, {}, {}]
        assert messages.event_times == [0, 5, 0, 0]
        assert messages.sequence_ids is not None
        assert list(messages.sequence_ids) == [10, 11, 20, 21]
        assert producer.last_sequence_id() == 21
        producer.send(b"alone", partition_key="k")
        entry = decode_entry(made.on_loop(lambda broker: broker.topic("t").entries[-1]))
        assert not entry.is_batch
        assert (entry.metadata.sequence_id, entry.metadata.partition_key) == (22, "k")
        producer.send_async(b"a")
        producer.send_async(b"b")
        producer.flush()
        metadata = decode_entry(made.on_loop(lambda broker: broker.topic("t").entries[-1])).metadata
        assert (metadata.sequence_id, metadata.highest_sequence_id) == (23, 24)
        ids = made.on_loop(lambda broker: broker.topic("t").messages()[-1].sequence_ids)
        assert list(ids or ()) == [23, 24], "each message has its own, for clients that read them one by one"


def test_a_message_that_is_too_large_is_refused_before_it_is_sent() -> None:
    """MSG-2: 5 MiB as stored, metadata 10 KiB; the error names both sizes. A message of exactly the limit is sent."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t")
        producer.send_async(b"before")
        with pytest.raises(exceptions.MessageTooBig, match=f"{MAX_MESSAGE_BYTES + 1} bytes.*{MAX_MESSAGE_BYTES}"):
            producer.send(bytes(MAX_MESSAGE_BYTES + 1))
        with pytest.raises(exceptions.MessageTooBig, match=r"have \d+ bytes.*10112"):
            producer.send_async(b"", properties={"a": "b" * MAX_METADATA_BYTES})
        with pytest.raises(exceptions.MessageTooBig):
            producer.send_async(b"", partition_key="ä" * (MAX_METADATA_BYTES // 2))
        producer.send(bytes(MAX_MESSAGE_BYTES))
        producer.send_async(b"c", properties={"a": "b" * 9_900})
        producer.flush()
        assert [len(payload or b"") for payload in payloads(made, "t")] == [6, MAX_MESSAGE_BYTES, 1]
        compressing = client.create_producer("u", compression_type=CompressionType.ZSTD)
        compressing.send(bytes(2 * MAX_MESSAGE_BYTES))
        with pytest.raises(exceptions.MessageTooBig, match=f"when compressed.*{MAX_MESSAGE_BYTES}"):
            compressing.send(os.urandom(MAX_MESSAGE_BYTES + 1))
        assert len(payloads(made, "u")) == 1


def test_a_batch_that_would_exceed_the_limit_is_closed_before() -> None:
    """MSG-2: a batch fits an entry with any options."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer(
            "t", batching_max_allowed_size_in_bytes=100_000_000, batching_max_publish_delay_ms=60_000
        )
        for _ in range(7):
            producer.send_async(bytes(1_500_000))
        producer.flush()
        sizes = made.on_loop(lambda broker: [len(messages) for messages in broker.topic("t").messages()])
        assert sizes == [3, 3, 1]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"content": "text"}, TypeError),
        ({"content": 5}, TypeError),
        ({"properties": {"a": 1}}, TypeError),
        ({"properties": {"a": "\ud800"}}, exceptions.InvalidMessage),
        ({"partition_key": 5}, TypeError),
        ({"partition_key": "\ud800"}, exceptions.InvalidMessage),
        ({"sequence_id": -1}, exceptions.InvalidMessage),
        ({"sequence_id": "1"}, TypeError),
        ({"event_timestamp": 2**64}, exceptions.InvalidMessage),
        ({"deliver_at": 5}, exceptions.OperationNotSupported),
        ({"replication_clusters": ["a"]}, exceptions.OperationNotSupported),
        ({"disable_replication": True}, exceptions.OperationNotSupported),
    ],
)
def test_a_message_that_cannot_be_encoded_is_refused_alone(arguments: dict[str, Any], error: type[Exception]) -> None:
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t")
        producer.send_async(b"before")
        with pytest.raises(error):
            producer.send_async(**{"content": b"", **arguments})
        producer.send(b"behind")
        assert payloads(made, "t") == [b"before", b"behind"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"chunking_enabled": True}, exceptions.InvalidConfiguration),
        ({"access_mode": "Exclusive"}, exceptions.InvalidConfiguration),
        ({"batching_type": "KeyBased"}, exceptions.InvalidConfiguration),
        ({"encryption_key": "k"}, exceptions.OperationNotSupported),
        ({"max_pending_messages": 0}, exceptions.InvalidConfiguration),
        ({"send_timeout_millis": -1}, exceptions.InvalidConfiguration),
        ({"producer_name": ""}, exceptions.InvalidConfiguration),
        ({"message_routing_mode": magnetar.PartitionsRoutingMode.CustomPartition}, exceptions.InvalidConfiguration),
        ({"topic": "a/b"}, exceptions.InvalidTopicName),
        ({"topic": 5}, exceptions.InvalidTopicName),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with sync_scene() as made, made.client() as client, pytest.raises(error):
        client.create_producer(**{"topic": "t", **options})


def test_a_full_queue_raises() -> None:
    """PRD-1: the pending queue is bounded, in messages and in bytes."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", batching_max_messages=10)
        other = client.create_producer("t", max_pending_bytes=100_000)
        made.on_loop(lambda broker: broker.receipting.clear())
        for _ in range(1_000):
            producer.send_async(b"x")
        with pytest.raises(
            exceptions.ProducerQueueIsFull, match=r"1000 messages.*at most 1000 of 67108864 bytes are allowed"
        ):
            producer.send_async(b"x")
        with pytest.raises(exceptions.ProducerQueueIsFull):
            producer.send(b"x")
        other.send_async(bytes(60_000))
        with pytest.raises(exceptions.ProducerQueueIsFull, match="of 100000 bytes are allowed"):
            other.send_async(bytes(60_000))
        made.on_loop(lambda broker: broker.receipting.set())
        producer.flush()
        other.flush()
        producer.send(b"y")
        assert len(payloads(made, "t")) == 1_002


def test_a_full_queue_waits_with_block_if_queue_full() -> None:
    """PRD-1: several threads send, and the messages of each stay in order."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", max_pending_messages=50, block_if_queue_full=True)
        callback = RecordingCallback()

        def send(name: bytes) -> None:
            for number in range(1_000):
                producer.send_async(b"%s%d" % (name, number), callback)

        threads = [threading.Thread(target=send, args=(name,)) for name in (b"a", b"b", b"c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GENEROUS_S)
        producer.flush()
        callback.wait(3_000)
        stored = payloads(made, "t")
        for name in (b"a", b"b", b"c"):
            assert [one for one in stored if (one or b"").startswith(name)] == [
                b"%s%d" % (name, number) for number in range(1_000)
            ]


def test_callbacks_may_send_and_flush() -> None:
    """A queue full of messages whose callbacks have not been called does not stop the callbacks themselves."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", max_pending_messages=10, block_if_queue_full=True)
        done = threading.Event()
        errors: list[Exception] = []

        def first(result: Result, message_id: MessageId | None) -> None:
            try:
                for number in range(30):
                    producer.send_async(b"%d" % number)
                producer.send(b"and wait")
                producer.flush()
            except Exception as error:  # noqa: BLE001 (reported below)
                errors.append(error)
            done.set()

        for _ in range(10):
            producer.send_async(b"x", first if not _ else lambda *_: None)
        assert done.wait(GENEROUS_S)
        assert not errors


def test_slow_callbacks_hold_the_sender_back() -> None:
    """Nothing grows without limit: a persisted message is pending until its callback was called."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", max_pending_messages=10)
        go_on = threading.Event()
        callback = RecordingCallback()

        def slow(result: Result, message_id: MessageId | None) -> None:
            go_on.wait(GENEROUS_S)
            callback(result, message_id)

        for _ in range(10):
            producer.send_async(b"x", slow)
        made.until(lambda broker: len(broker.topic("t").payloads()) == 10, "all is stored")
        with pytest.raises(exceptions.ProducerQueueIsFull):
            producer.send_async(b"one too many")
        go_on.set()
        callback.wait(10)
        producer.send(b"now")


def test_an_entry_that_is_refused_fails_alone() -> None:
    """Later messages are stored. `flush` raises the error."""
    with sync_scene() as made, made.client() as client:
        made.on_loop(lambda broker: setattr(broker, "refuses", lambda entry: b"bad" in entry))
        producer = client.create_producer("t", batching_enabled=False)
        callback = RecordingCallback()
        for content in (b"good", b"bad", b"better"):
            producer.send_async(content, callback)
        with pytest.raises(exceptions.ChecksumError):
            producer.flush()
        callback.wait(3)
        results = [result for result, _ in callback.results]
        assert sorted(results, key=lambda result: result.value) == [Result.Ok, Result.Ok, Result.ChecksumError]
        with pytest.raises(exceptions.ChecksumError, match="refused by the test"):
            producer.send(b"bad again")
        producer.flush()
        assert payloads(made, "t") == [b"good", b"better"]


def test_close_sends_pending_messages_and_refuses_later_ones() -> None:
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", batching_max_publish_delay_ms=60_000)
        callback = RecordingCallback()
        producer.send_async(b"x", callback)
        producer.close()
        callback.wait(1)
        assert callback.results[0][0] is Result.Ok
        for send in (producer.send, producer.send_async):
            with pytest.raises(exceptions.AlreadyClosed):
                send(b"y")
        with pytest.raises(exceptions.AlreadyClosed):
            producer.flush()
        producer.close()
        other = client.create_producer("t", batching_max_publish_delay_ms=60_000)
        other.send_async(b"z", callback)
        client.close()
        callback.wait(2)
        assert payloads(made, "t") == [b"x", b"z"]
        with pytest.raises(exceptions.AlreadyClosed):
            client.create_producer("t")
        client.close()
        assert not made.on_loop(lambda broker: broker.topic("t").producers)


def test_shutdown_fails_pending_messages() -> None:
    with sync_scene() as made:
        client = made.client()
        made.on_loop(lambda broker: broker.receipting.clear())
        producer = client.create_producer("t")
        callback = RecordingCallback()
        producer.send_async(b"x", callback)
        errors: list[Exception] = []

        def send() -> None:
            try:
                producer.send(b"y")
            except exceptions.AlreadyClosed as error:
                errors.append(error)

        sending = threading.Thread(target=send)
        sending.start()
        made.until(lambda broker: len(broker.topic("t").payloads()) == 2, "both are in flight")
        client.shutdown()
        sending.join(GENEROUS_S)
        assert len(errors) == 1
        assert callback.results == [(Result.AlreadyClosed, None)]
        made.on_loop(lambda broker: broker.receipting.set())


def test_blocked_send_raises_when_the_client_is_shut_down() -> None:
    with sync_scene() as made:
        client = made.client()
        made.on_loop(lambda broker: broker.receipting.clear())
        producer = client.create_producer("t", max_pending_messages=1, block_if_queue_full=True)
        producer.send_async(b"x")
        errors: list[Exception] = []

        def send() -> None:
            try:
                producer.send_async(b"y")
            except exceptions.AlreadyClosed as error:
                errors.append(error)

        sending = threading.Thread(target=send)
        sending.start()
        client.shutdown()
        sending.join(GENEROUS_S)
        assert len(errors) == 1
        made.on_loop(lambda broker: broker.receipting.set())


def test_topic_partitions() -> None:
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned["persistent://public/default/p"] = 2
        assert client.get_topic_partitions("p") == [f"persistent://public/default/p-partition-{n}" for n in range(2)]
        assert client.get_topic_partitions("t") == ["persistent://public/default/t"]
