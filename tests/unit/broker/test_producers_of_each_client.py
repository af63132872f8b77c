"""What producers promise, of each client on a real broker: of the SDK, synchronous and asyncio, over gRPC, and of
pulsar-client over Pulsar's protocol. What is stored is read over both.
"""

from __future__ import annotations

import inspect
import random
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pulsar
import pytest

import magnetar
from magnetar import aio
from magnetar_wire.hashing import HashingScheme, partition_of
from magnetar_wire.topic_name import TopicName
from tests.running import GENEROUS_S
from tests.unit.broker.each_client import KINDS, EachClient, each_client

# A batch is open until it is full, flushed, or closed by a `send`.
_BATCHES: Any = {"batching_enabled": True, "batching_max_publish_delay_ms": 3_600_000}
_of_each_client = pytest.mark.parametrize("kind", KINDS)


def _position(message_id: Any) -> tuple[int, int, int]:
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


@_of_each_client
def test_a_receipt_is_sent_when_the_message_is_durable(kind: str) -> None:
    """PRD-1: `send_async` returns at once, and `send` waits for the receipt, which comes when the bookies have stored
    the entry. It closes the open batch; of pulsar-client for Python it does not, so that sends no batches here."""
    with each_client(kind) as made, ThreadPoolExecutor(1) as thread:
        producer = made.client.create_producer("t", **(_BATCHES if made.is_ours else {"batching_enabled": False}))
        made.send_all(producer, b"the ledger is open")
        made.hold_bookies()
        adds = made.count_adds()
        waiting = made.start_send(producer, b"in the open batch")
        if kind != "sync":  # it is not in the same batch
            made.until(lambda: made.count_adds() == adds + 2, "each bookie has got the entry")
        sending = thread.submit(producer.send, b"closes it")
        made.until(lambda: made.count_adds() == adds + 2, "each bookie has got the entry")
        assert not waiting.done()
        assert not sending.done()
        made.resume_bookies()
        ids = [_position(one.result(GENEROUS_S)) for one in (waiting, sending)]
        assert [one[1:] for one in ids] == ([(1, -1), (2, -1)] if kind != "sync" else [(1, 0), (1, 1)])
        assert made.payloads("t") == [b"the ledger is open", b"in the open batch", b"closes it"]
        for bookie in made.scene.bookies:
            assert sorted(bookie.ledgers[ids[0][0]].records) == list(range(2 if kind == "sync" else 3))


@_of_each_client
def test_what_may_be_pending_is_bounded(kind: str) -> None:
    """PRD-1: 1,000 messages by default; then `send_async` raises, or waits with `block_if_queue_full`, as the asyncio
    client always does. Of the SDK, 64 MiB too."""
    with each_client(kind) as made, ThreadPoolExecutor(1) as thread:
        refusing = made.client.create_producer("t", producer_name="refusing")
        blocking = made.client.create_producer("t", max_pending_messages=10, block_if_queue_full=True)
        made.hold_bookies()
        results = made.start_sends(refusing, *[b"x"] * 1_001)
        numbers = list(range(30))
        sending = thread.submit(lambda: [made.start_send(blocking, b"%d" % number) for number in numbers])
        if kind == "aio":
            assert len(sending.result(GENEROUS_S)) == 30
        else:
            with pytest.raises(made.errors.ProducerQueueIsFull):
                results.pop().result(GENEROUS_S)
            assert not sending.done()
        if kind == "sync":
            small = made.client.create_producer("t", max_pending_bytes=100_000)
            results.append(made.start_send(small, bytes(60_000)))
            with pytest.raises(made.errors.ProducerQueueIsFull, match="of 100000 bytes are allowed"):
                small.send_async(bytes(60_000))
        made.resume_bookies()
        assert len({_position(one.result(GENEROUS_S)) for one in results}) == len(results)
        ids = [_position(one.result(GENEROUS_S)) for one in sending.result(GENEROUS_S)]
        assert ids == sorted(ids)
        assert len(made.payloads("t")) == len(results) + 30
    defaults = inspect.signature(magnetar.Client.create_producer).parameters
    assert (defaults["max_pending_messages"].default, defaults["max_pending_bytes"].default) == (1_000, 64 << 20)


@_of_each_client
def test_each_compression_is_recorded_and_read_by_both_libraries(kind: str) -> None:
    """PRD-3: consumers need no setting."""
    with each_client(kind) as made:
        for compression in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"):
            chosen = getattr(made.library.CompressionType, compression)
            producer = made.client.create_producer(compression, compression_type=chosen, **_BATCHES)
            contents = [b"%d" % number * 1_000 for number in range(20)]
            made.send_all(producer, *contents)
            made.send_all(producer, b"alone" * 10_000)
            assert made.payloads(compression) == [*contents, b"alone" * 10_000]
            numbers = [entry.metadata.compression for entry in made.entries(compression)]
            assert numbers == [("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY").index(compression)] * 2
            sizes = [len(entry.payload) for entry in made.entries(compression)]
            assert all(size < 5_000 for size in sizes) is (compression != "NONE")


@_of_each_client
def test_a_batch_is_one_entry_and_closes_when_it_is_full(kind: str) -> None:
    """PRD-4: at 1,000 messages, 128 KiB or 10 ms, and it is on, all by the SDK's defaults. In the backlog it counts as
    one. Messages with a delivery time are not tested here: brokers refuse these."""
    with each_client(kind) as made:
        consumer = made.client.subscribe("t", "s")
        producer = made.client.create_producer("t", max_pending_messages=5_000, **_BATCHES)
        made.send_all(producer, *[b"small"] * 2_001)
        made.send_all(producer, *[bytes(60_000)] * 4)
        assert [len(messages) for messages in made.batches("t")] == [1_000, 1_000, 1, 2, 2]
        stats = made.run(lambda: made.scene.admin.topics.stats("t"))
        assert stats.subscription("s").backlog_entries == 5
        consumer.close()
        on = {} if made.is_ours else {"batching_enabled": True}
        prompt = made.client.create_producer("u", **on)
        [waiting] = made.start_sends(prompt, b"neither full nor flushed")
        assert waiting.result(GENEROUS_S).batch_index() <= 0
        alone = made.client.create_producer("v", batching_enabled=False)
        assert [one.batch_index() for one in made.send_all(alone, b"1", b"2")] == [-1, -1]
    for client in (magnetar.Client, aio.Client):
        options = inspect.signature(client.create_producer).parameters
        assert [options[f"batching_{name}"].default for name in ("enabled", "max_publish_delay_ms")] == [True, 10]


@_of_each_client
def test_each_key_has_a_batch(kind: str) -> None:
    """PRD-5: messages without a key share one. The SDK numbers messages as batches close, so it takes no sequence ids
    of the application."""
    with each_client(kind) as made:
        by_key = made.library.BatchingType.KeyBased
        producer = made.client.create_producer("t", batching_type=by_key, **_BATCHES)
        keys = ["a", None, "b", "a", "b", None, "a"]
        sent = made.start_sends(producer, *(b"%d" % number for number in range(7)), partition_keys=keys)
        producer.flush()
        ids = [_position(one.result(GENEROUS_S)) for one in sent]
        batches = made.batches("t")
        contents = [[bytes(one or b"") for one in messages.payloads] for messages in batches]
        assert sorted(contents) == [
            [b"0", b"3", b"6"],
            [b"1", b"5"],
            [b"2", b"4"],
        ]
        for number, (_, entry_id, index) in enumerate(ids):
            assert batches[entry_id].payloads[index] == b"%d" % number
        assert sorted(made.payloads("t")) == [b"%d" % number for number in range(7)]
        if made.is_ours:
            numbers = [sequence_id for messages in batches for sequence_id in messages.sequence_ids or ()]
            assert numbers == list(range(7))
            with pytest.raises(made.errors.InvalidMessage, match=r"KeyBased"):
                producer.send(b"x", partition_key="a", sequence_id=70)


@_of_each_client
def test_messages_are_routed_to_partitions(kind: str) -> None:
    """PRD-6, PRD-10: without a key by the mode, round robin from batch to batch by default; with one by its hash, in
    each mode but that of the application's own router."""
    with each_client(kind) as made:
        made.run(lambda: made.scene.admin.topics.create_partitioned("p", 3))
        modes = made.library.PartitionsRoutingMode
        in_turns = made.client.create_producer("p", **{**_BATCHES, "batching_max_messages": 10})
        ids = made.send_all(in_turns, *[b"x"] * 60)
        partitions = [one.partition() for one in ids]
        assert sorted(partitions) == [0] * 20 + [1] * 20 + [2] * 20
        assert len({(*_position(one)[:2], one.partition()) for one in ids}) == 6
        single = made.client.create_producer("p", message_routing_mode=modes.UseSinglePartition)
        assert len({single.send(b"x").partition() for _ in range(9)}) == 1
        for producer in (single, in_turns):
            keys = ["0", "1", "2", "3"] * 2
            found = {(key, made.send_all(producer, b"x", partition_key=key)[0].partition()) for key in keys}
            assert len(found) == 4
            if made.is_ours:
                assert found == {(key, partition_of(key, 3, HashingScheme.JavaStringHash)) for key in "0123"}
        router = made.client.create_producer("p", message_router=lambda message, count: int(message.data()) % count)
        assert [router.send(b"%d" % n, partition_key="k").partition() for n in range(6)] == [0, 1, 2, 0, 1, 2]
        assert sum(len(made.payloads(f"p-partition-{number}")) for number in range(3)) == 60 + 9 + 16 + 6


@_of_each_client
def test_sequence_ids_are_assigned_or_given(kind: str) -> None:
    """PRD-7: from an initial one on, or by the application; a name goes on behind its last one."""
    with each_client(kind) as made:
        producer = made.client.create_producer("t", producer_name="p", initial_sequence_id=9, **_BATCHES)
        assert producer.last_sequence_id() == 9
        ids = [_position(one) for one in made.send_all(producer, b"10", b"11")]
        assert producer.last_sequence_id() == 11
        made.send_all(producer, b"20", sequence_id=20)
        assert producer.last_sequence_id() == 20
        producer.close()
        again = made.client.create_producer("t", producer_name="p")
        assert again.last_sequence_id() == 20
        again.send(b"21")
        assert made.payloads("t") == [b"10", b"11", b"20", b"21"]
        metadata = [entry.metadata for entry in made.entries("t")]
        assert [one.sequence_id for one in metadata] == [10, 20, 21]
        assert ids == [(ids[0][0], 0, index) for index in range(2)]


@_of_each_client
def test_pending_sends_time_out(kind: str) -> None:
    """PRD-9: with a typed error, after 30 s by default; and the producer goes on."""
    with each_client(kind) as made:
        producer = made.client.create_producer("t", send_timeout_millis=200)
        producer.send(b"the ledger is open")
        made.hold_bookies()
        sent = [made.start_send(producer, b"unknown") for _ in range(3)]
        for one in sent:
            with pytest.raises(made.errors.Timeout):
                one.result(GENEROUS_S)
        made.resume_bookies()
        producer.send(b"later")
        assert made.payloads("t")[-1] == b"later"
    for client in (magnetar.Client, aio.Client):
        assert inspect.signature(client.create_producer).parameters["send_timeout_millis"].default == 30_000


@_of_each_client
def test_pending_messages_are_sent_again_in_order(kind: str) -> None:
    """PRD-9, PRD-10, CHK-33: under a higher epoch, when the topic is unloaded under the producer. The order is judged
    by first occurrences."""
    with each_client(kind) as made:
        producer = made.client.create_producer("t", batching_enabled=False)
        sent: list[Future[Any]] = []
        producer.send(b"first")
        first_epoch = _epoch(made)
        for _ in range(3):
            sent += made.start_sends(producer, *(b"%d" % (len(sent) + number) for number in range(40)))
            sent[-40].result(GENEROUS_S)
            made.run(lambda: made.scene.broker_session.topics.unload(TopicName.parse("t")))
        producer.send(b"last")
        assert all(one.result(GENEROUS_S) for one in sent)
        stored = list(dict.fromkeys(made.payloads("t")))
        assert stored == [b"first", *(b"%d" % number for number in range(120)), b"last"]
        assert _epoch(made) >= first_epoch + 3


def _epoch(made: EachClient) -> int:
    """Return the epoch of the only producer of "t"."""
    topic = made.scene.broker_session.topics.get_loaded(TopicName.parse("t"))
    assert topic is not None
    [producer] = topic.producers.connected()
    return producer.identity.epoch


@_of_each_client
def test_names_of_producers_are_unique(kind: str) -> None:
    """PRD-11: in a topic, and the broker makes one where none is given."""
    with each_client(kind) as made:
        made_up = {made.client.create_producer("t").producer_name() for _ in range(3)}
        assert len(made_up - {""}) == 3
        mine = made.client.create_producer("t", producer_name="mine")
        for reader in made.readers:
            with pytest.raises((magnetar.exceptions.ProducerBusy, pulsar.ProducerBusy)):
                reader.create_producer("t", producer_name="mine")
            reader.create_producer("u", producer_name="mine").close()
        mine.send(b"it goes on")
        mine.close()
        assert made.client.create_producer("t", producer_name="mine").producer_name() == "mine"


@_of_each_client
def test_names_of_topics(kind: str) -> None:
    """TOP-1: a bare name means one of the default namespace. Others are refused with a clear error."""
    with each_client(kind) as made:
        for name, full in (
            ("t", "persistent://public/default/t"),
            ("public/default/u", "persistent://public/default/u"),
            ("non-persistent://public/default/v", "non-persistent://public/default/v"),
        ):
            producer = made.client.create_producer(name)
            assert producer.topic() == full
            producer.send(b"x")
            assert made.scene.broker_session.topics.get_loaded(TopicName.parse(full)) is not None
        for name in ("a/b", "memory://public/default/t", "persistent://public/t", "persistent://public//t"):
            with pytest.raises(made.errors.InvalidTopicName):
                made.client.create_producer(name)


@_of_each_client
def test_a_large_message_is_sent_in_chunks(kind: str) -> None:
    """PRD-8, CON-7: if that is switched on; each is an entry, and readers of both listeners get one message."""
    content = random.Random(1).randbytes(12 << 20)
    with each_client(kind) as made:
        plain = made.client.create_producer("t")
        with pytest.raises(made.errors.MessageTooBig):
            plain.send(content)
        producer = made.client.create_producer("t", chunking_enabled=True, batching_enabled=False)
        producer.send(content)
        producer.send(b"small")
        found = [entry.metadata for entry in made.entries("t")]
        assert [(one.chunk_id, one.num_chunks_from_msg) for one in found[:3]] == [(0, 3), (1, 3), (2, 3)]
        assert {(one.uuid != "", one.total_chunk_msg_size) for one in found[:3]} == {(True, len(content))}
        assert [one.num_chunks_from_msg for one in found[3:]] in ([0], [1])
        assert len({one.uuid for one in found[:3]}) == 1
        assert made.read("t", 2) == [content, b"small"]


@_of_each_client
def test_topics_and_subscriptions_are_created_on_first_use(kind: str) -> None:
    """TOP-2: with the number of partitions of the setting, and only if the settings allow it."""
    with each_client(kind, allow_auto_topic_creation_type="partitioned", default_num_partitions=2) as made:
        made.client.create_producer("t")
        assert made.client.get_topic_partitions("t") == [f"persistent://public/default/t-partition-{n}" for n in (0, 1)]
    off = {"allow_auto_topic_creation": False, "allow_auto_subscription_creation": False}
    with each_client(kind, **off) as made:
        with pytest.raises(made.errors.TopicNotFound):
            made.client.create_producer("t")
        made.run(lambda: made.scene.admin.topics.create("t"))
        made.client.create_producer("t").send(b"x")
        if made.is_ours:  # pulsar-client tries that again for 30 s
            with pytest.raises(made.errors.SubscriptionNotFound):
                made.client.subscribe("t", "s")
        made.run(lambda: made.scene.admin.subscriptions.create("t", "s"))
        made.client.subscribe("t", "s")


@_of_each_client
def test_an_exclusive_producer_has_all_partitions_or_none(kind: str) -> None:
    """PRD-2: if it is refused at one, it is released at the others."""
    with each_client(kind) as made:
        made.run(lambda: made.scene.admin.topics.create_partitioned("p", 3))
        exclusive = made.library.ProducerAccessMode.Exclusive
        other = made.client.create_producer("p-partition-2")
        with pytest.raises(made.errors.ProducerFenced):
            made.client.create_producer("p", access_mode=exclusive)
        other.close()
        made.client.create_producer("p", access_mode=exclusive)
        for name in ("p", "p-partition-0", "p-partition-2"):
            with pytest.raises(made.errors.ProducerBusy):
                made.client.create_producer(name)


@_of_each_client
def test_a_ledger_without_entries_leaves_and_one_is_made_for_all_messages_that_wait(kind: str) -> None:
    """CHK-31: however many producers wait, and however many ledgers failed before."""
    with each_client(kind, add_entry_timeout_seconds=0.05) as made:
        producers = [made.client.create_producer("t", batching_enabled=False) for _ in range(3)]
        made.hold_bookies()
        waiting = [result for one in producers for result in made.start_sends(one, b"0", b"1", b"2")]
        topic = made.scene.broker_session.topics.get_loaded(TopicName.parse("t"))
        assert topic is not None
        made.until(lambda: topic.log.closed_ledgers >= 1, "a ledger is closed without entries")
        made.resume_bookies()
        ids = [_position(one.result(GENEROUS_S)) for one in waiting]
        assert len({ledger_id for ledger_id, _, _ in ids}) == 1
        stats = made.run(lambda: made.scene.admin.topics.internal_stats("t"))
        assert [one.ledger_id for one in stats.ledgers] == [ids[0][0]]
        assert len(made.payloads("t")) == len(waiting)
