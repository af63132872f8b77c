"""Retry and dead letter topics, of each client on a real broker: of the SDK, synchronous and asyncio, over gRPC, and of
pulsar-client, which has dead letters alone, over Pulsar's protocol. Letters are read over both.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pulsar
import pytest

import magnetar
from magnetar_testing.clock import ManualClock
from magnetar_wire.hashing import key_shared_slot
from tests.running import GENEROUS_S
from tests.unit.broker.broker_scene import URL, running_broker
from tests.unit.broker.each_client import KINDS, LONG_MS, EachClient, each_client

_of_each_client = pytest.mark.parametrize("kind", KINDS)
_of_ours = pytest.mark.parametrize("kind", ["sync", "aio"])
_DLQ = "t-s-DLQ"
# A second consumer of a Key_Shared subscription has its slot.
_MOVING_KEY = next(key for key in map(str, range(20)) if key_shared_slot(key.encode()) < 32_768)


def _subscribe(made: EachClient, topic: str = "t", **options: Any) -> Any:
    """Subscribe to "s" with a policy of two redeliveries."""
    library = made.library
    policy = library.ConsumerDeadLetterPolicy(2, initial_subscription_name="first")
    given = {
        "consumer_type": library.ConsumerType.Shared,
        "dead_letter_policy": policy,
        "batch_index_ack_enabled": True,
    }
    delay = {"negative_ack_redelivery_delay_ms": 1 if made.is_ours else 100}
    return made.client.subscribe(topic, "s", **given | delay | options)


def _letters(made: EachClient, count: int, topic: str = _DLQ, subscription: str = "first") -> list[Any]:
    """Return the letters in the topic, as pulsar-client gets them."""
    consumer = made.readers[1].subscribe(topic, subscription, pulsar.ConsumerType.Shared)
    found = [consumer.receive(LONG_MS) for _ in range(count)]
    consumer.close()
    return found


def _backlog(made: EachClient, topic: str, subscription: str = "s") -> int:
    stats = made.run(lambda: made.scene.admin.topics.stats(topic))
    return sum(one.backlog_entries for one in stats.subscriptions if one.subscription == subscription)


async def _has_prefetched(made: EachClient, messages: int) -> bool:
    shown = (await made.scene.admin.topics.stats("t")).subscription("s")
    return [one.unacknowledged_messages for one in shown.consumers] == [messages]


@_of_each_client
@pytest.mark.parametrize("type_", ["Shared", "KeyShared"])
def test_a_message_that_is_refused_too_often_becomes_a_dead_letter(kind: str, type_: str) -> None:
    """CON-8, CON-10: after 1 + 2 deliveries. It is acknowledged, and its letter has its key, payload, time and
    properties, and names its origin. The first subscription of the dead letter topic was there before."""
    with each_client(kind) as made:
        consumer = _subscribe(made, consumer_type=getattr(made.library.ConsumerType, type_))
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        sent = producer.send(b"bad", {"own": "1"}, "key", "order", event_timestamp=77)
        producer.send(b"good")
        counts = []
        for _ in range(4):
            message = consumer.receive(LONG_MS)
            if message.data() == b"good":
                consumer.acknowledge(message)
            else:
                counts.append(message.redelivery_count())
                consumer.negative_acknowledge(message)
        assert counts == [0, 1, 2]
        (letter,) = _letters(made, 1)
        assert (letter.data(), letter.partition_key()) == (b"bad", "key")
        properties = letter.properties()
        assert properties["own"] == "1"
        assert properties["REAL_TOPIC"] == "persistent://public/default/t"
        if made.is_ours:
            assert (letter.ordering_key(), letter.event_timestamp()) == ("order", 77)
            assert properties["ORIGIN_MESSAGE_ID"] == f"{sent.ledger_id()}:{sent.entry_id()}:-1"
            assert properties["REAL_SUBSCRIPTION"] == "s"
        assert made.payloads(_DLQ) == [b"bad"]
        consumer.close()
        assert _backlog(made, "t") == 0


@_of_each_client
@pytest.mark.parametrize("consumer_type", ["Shared", "KeyShared"])
def test_redeliveries_are_counted_while_the_subscription_has_consumers(kind: str, consumer_type: str) -> None:
    """CON-8, CON-10: those that consumers request, not those of what a consumer had when it left: it may have been
    only prefetched, and becomes no dead letter. Without a consumer, the count begins again."""
    with each_client(kind) as made:
        its_type = getattr(made.library.ConsumerType, consumer_type)
        consumer = _subscribe(made, consumer_type=its_type)
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        producer.send(b"refused")
        consumer.negative_acknowledge(consumer.receive(LONG_MS))
        assert consumer.receive(LONG_MS).redelivery_count() == 1
        producer.send(b"prefetched")
        for _ in range(4):
            left, consumer = consumer, _subscribe(made, consumer_type=its_type)
            left.close()
            made.until(lambda: _has_prefetched(made, 2), "the next consumer has both")
        received = [consumer.receive(LONG_MS) for _ in range(2)]
        assert {one.data(): one.redelivery_count() for one in received} == {b"refused": 1, b"prefetched": 0}
        consumer.close()
        consumer = _subscribe(made, consumer_type=its_type)
        assert [consumer.receive(LONG_MS).redelivery_count() for _ in range(2)] == [0, 0]


@_of_ours
def test_a_message_is_retried_until_it_is_a_dead_letter(kind: str) -> None:
    """CON-9, CON-10"""
    with each_client(kind) as made:
        consumer = _subscribe(made, enable_retry=True)
        sent = made.readers[0].create_producer("t").send(b"bad", {"own": "1"}, "key", "order", event_timestamp=77)
        for times in range(3):
            message = consumer.receive(LONG_MS)
            assert (message.data(), message.partition_key()) == (b"bad", "key")
            assert (message.ordering_key(), message.event_timestamp()) == ("order", 77)
            assert message.topic_name().endswith("t-s-RETRY" if times else "/t")
            assert message.properties().get("RECONSUMETIMES") == (str(times) if times else None)
            consumer.reconsume_later(message, 1, {"try": str(times)})
        (letter,) = _letters(made, 1)
        assert letter.properties() == {
            "own": "1",
            "try": "2",
            "REAL_TOPIC": "persistent://public/default/t",
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": f"{sent.ledger_id()}:{sent.entry_id()}:-1",
            "ORIGIN_MESSAGE_IDY_TIME": f"{sent.ledger_id()}:{sent.entry_id()}:-1",
            "RECONSUMETIMES": "3",
            "DELAY_TIME": "1",
        }
        consumer.close()
        for topic in ("t", "t-s-RETRY"):
            assert _backlog(made, topic) == 0


@_of_each_client
def test_a_key_s_letters_are_in_order(kind: str) -> None:
    """(SUB-5, SUB-6, CON-8, CON-10) Messages that are refused until they are dead letters are redelivered to the old
    consumer of their key, in order. Then the new one gets the later messages."""
    with each_client(kind) as made:
        options: Any = {"consumer_type": made.library.ConsumerType.KeyShared}
        first = _subscribe(made, consumer_name="first", **options)
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        for content in (b"0", b"1"):
            producer.send(content, partition_key=_MOVING_KEY)
        messages = [first.receive(LONG_MS) for _ in range(2)]
        second = _subscribe(made, consumer_name="second", **options)
        producer.send(b"2", partition_key=_MOVING_KEY)
        for count in (1, 2, 3):
            for message in messages:
                first.negative_acknowledge(message)
            if count < 3:
                messages = [first.receive(LONG_MS) for _ in range(2)]
                assert [(one.data(), one.redelivery_count()) for one in messages] == [(b"0", count), (b"1", count)]
        assert [letter.data() for letter in _letters(made, 2)] == [b"0", b"1"]
        assert second.receive(LONG_MS).data() == b"2"


@_of_ours
def test_retried_messages_of_a_key_are_in_order(kind: str) -> None:
    """(SUB-5, CON-9) Letters have the keys of their messages, so all retries of a key go to one consumer."""
    with each_client(kind) as made:
        options: Any = {"consumer_type": magnetar.ConsumerType.KeyShared, "enable_retry": True}
        policy = magnetar.ConsumerDeadLetterPolicy(10)
        consumers = [_subscribe(made, consumer_name=name, dead_letter_policy=policy, **options) for name in "ab"]
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        for number in range(3):
            producer.send(b"%d" % number, partition_key=_MOVING_KEY)
        for times in (None, "1", "2"):
            messages = [consumers[1].receive(LONG_MS) for _ in range(3)]
            assert [one.data() for one in messages] == [b"0", b"1", b"2"]
            assert {one.properties().get("RECONSUMETIMES") for one in messages} == {times}
            for message in messages:
                consumers[1].reconsume_later(message, 1)


@_of_ours
def test_a_letter_that_can_t_be_stored_leaves_its_message(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """CON-10: where subscriptions are not created on first use, the initial one is not, which is an error. The
    message is not acknowledged, and becomes a letter as soon as that is possible."""
    with each_client(kind, allow_auto_subscription_creation=False) as made:
        admin = made.scene.admin
        made.run(lambda: admin.topics.create("t"))
        made.run(lambda: admin.subscriptions.create("t", "s"))
        consumer = _subscribe(made)
        made.readers[0].create_producer("t").send(b"bad")
        for _ in range(3):
            consumer.negative_acknowledge(consumer.receive(LONG_MS))
        reason = f"letters can't be stored in persistent://public/default/{_DLQ}.*allow_auto_subscription_creation"
        made.until(lambda: re.search(reason, caplog.text) is not None, "the reason is logged")
        assert _backlog(made, "t") == 1
        made.run(lambda: admin.subscriptions.create(_DLQ, "first"))
        assert [letter.data() for letter in _letters(made, 1)] == [b"bad"]
        consumer.close()
        assert _backlog(made, "t") == 0


@_of_ours
def test_messages_of_a_batch_with_large_properties_become_letters(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """(CON-9, CON-10) Though an entry that is not a batch has no capacity for them. A message that has none left for
    its origin is received again, so that it is neither lost nor redelivered forever."""
    with each_client(kind) as made:
        consumer = _subscribe(made, enable_retry=True)
        producer = made.readers[1].create_producer("t", batching_enabled=True)
        large, largest = {"own": "x" * 100_000}, {"own": "x" * 130_950}
        producer.send(b"large", large, partition_key="key")
        for times in range(3):
            message = consumer.receive(LONG_MS)
            assert (message.data(), message.partition_key()) == (b"large", "key")
            assert message.properties().get("RECONSUMETIMES") == (str(times) if times else None)
            consumer.reconsume_later(message)
        (letter,) = _letters(made, 1)
        assert (letter.partition_key(), letter.properties()["own"]) == ("key", large["own"])
        producer.send(b"largest", largest)
        with pytest.raises(made.errors.MessageTooBig):
            consumer.reconsume_later(consumer.receive(LONG_MS))
        for count in range(1, 5):
            message = consumer.receive(LONG_MS)
            assert (message.data(), message.properties(), message.redelivery_count()) == (b"largest", largest, count)
            if count < 4:
                consumer.negative_acknowledge(message)
        assert "can't become a dead letter, so it is received again" in caplog.text
        consumer.acknowledge(message)
        consumer.close()
        assert _backlog(made, "t") == 0


@_of_ours
def test_topics_that_are_not_created_are_named(kind: str) -> None:
    """CON-9, CON-10: where topics are not created on first use."""
    with each_client(kind, allow_auto_topic_creation=False) as made:
        admin = made.scene.admin
        made.run(lambda: admin.topics.create("t"))
        with pytest.raises(made.errors.TopicNotFound, match="t-s-RETRY"):
            _subscribe(made, enable_retry=True)
        made.run(lambda: admin.topics.create("t-s-RETRY"))
        consumer = _subscribe(made, enable_retry=True)
        made.readers[0].create_producer("t").send(b"bad")
        for _ in range(2):
            consumer.reconsume_later(consumer.receive(LONG_MS))
        with pytest.raises(
            made.errors.TopicNotFound, match=f"letters are stored in persistent://public/default/{_DLQ}"
        ):
            consumer.reconsume_later(consumer.receive(LONG_MS))
        message = consumer.receive(LONG_MS)
        assert message.redelivery_count() == 1
        made.run(lambda: admin.topics.create(_DLQ))
        consumer.reconsume_later(message)
        assert made.payloads(_DLQ) == [b"bad"]


@_of_each_client
def test_of_a_batch_only_what_was_refused_becomes_a_dead_letter(kind: str) -> None:
    """CON-8, CON-10: the messages that are acknowledged don't, and at the last delivery, the SDK's clients leave out
    those too that are being processed. pulsar-client makes letters of all that are left."""
    with each_client(kind) as made:
        consumer = _subscribe(made)
        producer = made.readers[0].create_producer("t", batching_max_publish_delay_ms=3_600_000)
        for number in range(4):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        for count in range(3):
            messages = [consumer.receive(LONG_MS) for _ in range(4 - count)]
            assert [message.redelivery_count() for message in messages] == [count] * len(messages)
            consumer.acknowledge(messages[-1])
            consumer.negative_acknowledge(messages[0])
            if made.is_ours:  # neither counts
                consumer.negative_acknowledge(messages[0])
                consumer.negative_acknowledge(messages[-1])
        processed = messages[1]
        assert processed.data() == b"1"
        if made.is_ours:
            (letter,) = _letters(made, 1)
            assert letter.properties()["ORIGIN_MESSAGE_ID"].endswith(":0:-1:0")
            consumer.acknowledge(processed)
            assert made.payloads(_DLQ) == [b"0"]
        else:
            assert {letter.data() for letter in _letters(made, 2)} == {b"0", b"1"}
        consumer.close()
        assert _backlog(made, "t") == 0


@_of_ours
def test_letters_are_held_until_they_are_due(kind: str) -> None:
    """CON-9: unacknowledged, so also when the consumer is replaced. Others that are due sooner don't wait for them, up
    to the maximum that is held (test_letter_stage.py)."""
    with each_client(kind) as made:
        consumer = _subscribe(made, enable_retry=True, receiver_queue_size=2)
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        for number in range(4):
            producer.send(b"%d" % number)
            consumer.reconsume_later(consumer.receive(LONG_MS), 0 if number == 3 else 3_600_000)
        assert consumer.receive(LONG_MS).data() == b"3"
        consumer.close()
        consumer = _subscribe(made, enable_retry=True, receiver_queue_size=2)
        consumer.acknowledge(consumer.receive(LONG_MS))
        with pytest.raises(made.errors.Timeout):
            consumer.receive(1)
        consumer.close()
        assert _backlog(made, "t-s-RETRY") == 3


@_of_ours
def test_a_letter_is_durable_before_its_message_is_acknowledged(kind: str) -> None:
    """CON-9, CON-10: a client that dies in between loses neither."""
    with each_client(kind) as made:
        if kind == "sync":
            made.client = magnetar.Client(URL, _transport=made.scene.transport)
        consumer = _subscribe(made, enable_retry=True)
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        for number in range(2):
            producer.send(b"%d" % number)
            consumer.reconsume_later(consumer.receive(LONG_MS))
        retried = [consumer.receive(LONG_MS) for _ in range(2)]
        made.hold_bookies()
        adds = made.count_adds()
        with ThreadPoolExecutor(2) as threads:
            calls = [threads.submit(consumer.reconsume_later, message) for message in retried]
            made.until(lambda: made.count_adds() > adds, "a bookie has got a letter")
            assert not any(call.done() for call in calls)
            made.client.shutdown()
            for call in calls:
                with pytest.raises(made.errors.AlreadyClosed):
                    call.result(GENEROUS_S)
        made.resume_bookies()
        another = made.readers[0].subscribe("t-s-RETRY", "s", magnetar.ConsumerType.Shared)
        left: set[bytes] = set()
        while left != {b"0", b"1"}:
            left.add(another.receive(LONG_MS).data())


@_of_ours
def test_closing_waits_for_letters(kind: str) -> None:
    """CON-9, CON-10: so that their messages are acknowledged."""
    with each_client(kind) as made, ThreadPoolExecutor(2) as threads:
        consumer = _subscribe(made, enable_retry=True)
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        producer.send(b"first")
        consumer.reconsume_later(consumer.receive(LONG_MS), 3_600_000)
        producer.send(b"second")
        message = consumer.receive(LONG_MS)
        made.hold_bookies()
        adds = made.count_adds()
        calls = [threads.submit(consumer.reconsume_later, message)]
        made.until(lambda: made.count_adds() > adds, "a bookie has got the letter")
        calls.append(threads.submit(consumer.close))
        made.resume_bookies()
        for call in calls:
            call.result(GENEROUS_S)
        assert (_backlog(made, "t"), _backlog(made, "t-s-RETRY")) == (0, 2)


@_of_ours
def test_letters_retain_all_of_a_message(kind: str) -> None:
    """CON-9, CON-10: its schema version, a key of bytes, a missing value, its compression; from several topics, one
    of which is partitioned, to one retry letter topic that is partitioned."""
    with each_client(kind) as made:
        admin = made.scene.admin
        made.run(lambda: admin.topics.create_partitioned("parts", 3))
        made.run(lambda: admin.topics.create_partitioned("t-s-RETRY", 2))
        options: dict[str, Any] = {"schema": str, "enable_retry": True}
        consumer = made.client.subscribe(["t", "parts"], "s", magnetar.ConsumerType.Shared, **options)
        zstd = magnetar.CompressionType.ZSTD
        for topic in ("t", "parts"):
            values = made.readers[0].create_producer(topic, schema=str, compression_type=zstd)
            values.send("x" * 6_000_000, partition_key=b"\x00\xff", ordering_key=b"\xfe")
            values.send(None, partition_key=topic)
            made.readers[0].create_producer(topic, batching_enabled=False).send(b"no schema")
        found: dict[bool, list[tuple[object, ...]]] = {False: [], True: []}
        for _ in range(12):
            message = consumer.receive(LONG_MS)
            is_letter = "/t-s-RETRY-partition-" in message.topic_name()
            keys = (message.key_bytes(), message.ordering_key())
            found[is_letter].append((message.data()[:9], *keys, message.has_null_value()))
            assert (message.schema_version() is None) == (message.data() == b"no schema")
            if message.schema_version() is not None:
                assert message.value() in ("x" * 6_000_000, None)
            if is_letter:
                consumer.acknowledge(message)
            else:
                consumer.reconsume_later(message)
        large, bare = (b"x" * 9, b"\x00\xff", "\udcfe", False), (b"no schema", b"", "", False)
        missing = [(b"", key, "", True) for key in (b"t", b"parts")]
        assert sorted(found[True]) == sorted(found[False]) == sorted([large, large, bare, bare, *missing])


@pytest.mark.parametrize("policy_topic", [None, "dead"])
def test_clients_of_both_listeners_share_a_subscription(policy_topic: str | None) -> None:
    """CON-10: a message is refused at either, is counted for both, and becomes one letter."""
    with each_client("sync") as made:
        consumers = []
        for client, library in zip(made.readers, (magnetar, pulsar), strict=True):
            policy = library.ConsumerDeadLetterPolicy(3, policy_topic, "first")
            shared = {"consumer_type": library.ConsumerType.Shared, "dead_letter_policy": policy}
            delay = {"negative_ack_redelivery_delay_ms": 1 if client is made.readers[0] else 100}
            consumers.append(client.subscribe("t", "s", receiver_queue_size=1, **shared, **delay))
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        for number in range(8):
            producer.send(b"%d" % number)
        left, deliveries = {b"%d" % number for number in range(8)}, 0
        topic = policy_topic or _DLQ
        letters = made.readers[1].subscribe(topic, "first", pulsar.ConsumerType.Shared)
        seen: list[bytes] = []
        while len(seen) < 8:
            for consumer, timeouts in zip(consumers, (magnetar.Timeout, pulsar.Timeout), strict=True):
                with suppress(timeouts):
                    consumer.negative_acknowledge(consumer.receive(10))
                    deliveries += 1
            with suppress(pulsar.Timeout):
                letter = letters.receive(10)
                assert letter.properties()["REAL_TOPIC"] == "persistent://public/default/t"
                seen.append(letter.data())
        assert set(seen) == left
        assert deliveries == 8 * 4


@pytest.mark.parametrize("is_retried", [False, True])
async def test_a_message_that_is_not_acknowledged_in_time_becomes_a_dead_letter(is_retried: bool) -> None:
    """CON-6, CON-10: after its last delivery. A message that is retried does not time out any more."""
    clock = ManualClock()
    async with running_broker() as scene, scene.client(_clock=clock) as client, scene.client() as other:
        policy = magnetar.ConsumerDeadLetterPolicy(1, "dead", "first")
        options: dict[str, Any] = {"dead_letter_policy": policy, "unacked_messages_timeout_ms": 10_000}
        consumer = await client.subscribe("t", "s", magnetar.ConsumerType.Shared, enable_retry=True, **options)
        letters = await other.subscribe("dead", "first")
        await (await other.create_producer("t")).send(b"bad")
        for count in range(2):
            message = await consumer.receive()
            assert message.redelivery_count() == (0 if is_retried else count)
            if is_retried:
                await consumer.reconsume_later(message)
            for _ in range(13):
                clock.advance(1)
                await asyncio.sleep(0)
        letter = await letters.receive(LONG_MS)
        assert letter.properties().get("RECONSUMETIMES") == ("2" if is_retried else None)
        with pytest.raises(magnetar.Timeout):
            await letters.receive(1)


async def test_a_retry_goes_on_when_its_caller_stops_waiting() -> None:
    """CON-9"""
    async with running_broker() as scene, scene.client() as client:
        consumer = await client.subscribe("t", "s", magnetar.ConsumerType.Shared, enable_retry=True)
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"first")
        await producer.send(b"second")
        messages = [await consumer.receive(LONG_MS) for _ in range(2)]
        retrying = asyncio.create_task(consumer.reconsume_later(messages[0], 3_600_000))
        await asyncio.sleep(0)
        retrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await retrying
        with pytest.raises(TypeError, match="a property's name and value are str"):
            await consumer.reconsume_later(messages[1], 0, {"count": 1})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="properties are a dict, not int"):
            await consumer.reconsume_later(messages[1], 0, 5)  # type: ignore[arg-type]
        await consumer.close()
        reader = await client.create_reader("t-s-RETRY", magnetar.MessageId.earliest)
        assert (await reader.read_next(LONG_MS)).data() == b"first"
        assert not await reader.has_message_available()
        plain = await client.subscribe("t", "s", magnetar.ConsumerType.Shared)
        with pytest.raises(magnetar.exceptions.InvalidConfiguration, match="enable_retry=True"):
            await plain.reconsume_later(await plain.receive(LONG_MS))


@_of_ours
def test_many_messages_become_dead_letters_one_each(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CON-10: those that are too many to be stored at the same time are redelivered first, and not received again."""
    monkeypatch.setattr("magnetar._letters.letters.MAX_NACKED", 1)
    with each_client(kind) as made:
        consumer = _subscribe(made)
        producer = made.readers[0].create_producer("t", batching_enabled=False)
        for number in range(20):
            producer.send_async(b"%d" % number, None, partition_key=str(number % 3))
        for _ in range(20 * 3):
            message = consumer.receive(LONG_MS)
            for _ in range(2):  # the second has no effect
                consumer.negative_acknowledge(message)
        letters = _letters(made, 20)
        assert sorted(int(letter.data()) for letter in letters) == list(range(20))
        assert _backlog(made, _DLQ, "first") == 20
        with pytest.raises(made.errors.Timeout):
            consumer.receive(1)
        consumer.close()
        assert _backlog(made, "t") == 0
