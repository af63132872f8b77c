"""Key-based batching: which messages share a batch, when batches close, how they are numbered, and what is stored."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar import BatchingType, MessageId, Result, exceptions
from magnetar._producing.batch import Batch
from magnetar._producing.keyed_send_queue import MAX_OPEN_BATCHES, KeyedSendQueue
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar._producing.send_queue import SendLimits
from magnetar.exceptions import ProducerQueueIsFull
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import decode_entry
from magnetar_wire.hashing import ordering_bytes
from tests.unit.client.fake_broker import Topic
from tests.unit.client.scene import scene, sync_scene
from tests.unit.client.sync_consume_scene import wait_until
from tests.unit.client.test_partition_producer import inject_fault
from tests.vectors.capture_java_batches import MESSAGES, RECORD

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "pulsar_client.json").read_text())["cases"]
BY_KEY: dict[str, Any] = {"batching_type": BatchingType.KeyBased, "batching_max_publish_delay_ms": 60_000}


class Driven:
    """A queue whose loop is the test. Time stands still until the test changes it."""

    def __init__(self, **limits: Any) -> None:
        self.now = 0.0
        given = {
            "pending_messages": 1_000,
            "pending_bytes": 100_000,
            "batch_messages": 10,
            "batch_bytes": 1_000,
            "batch_delay_s": 0.01,
            "max_message_bytes": 5_000,
        } | limits
        self.queue = KeyedSendQueue(SendLimits(**given), 0, lambda: None, lambda: self.now)

    def add(self, keys: str, size: int = 10, **how: Any) -> None:
        """Add a message for each letter. "-": it has no key."""
        for key in keys:
            self.queue.add_message(OutgoingMessage(b"x", None if key == "-" else key, size=size), **how)

    def take(self) -> list[str]:
        """Return the keys of the messages of each batch that is closed."""
        return ["".join(keys_of(batch)) for batch in self.queue.take_batches(self.now)[0]]


def keys_of(batch: Batch) -> list[str]:
    keys = batch.columns.keys if batch.columns is not None else None
    return [str(key) for key in keys] if keys is not None else ["-"] * batch.count


def test_each_key_has_a_batch_with_limits_of_its_own() -> None:
    """PRD-5, PRD-4: messages without a key share one. Each closes when it is full, or after its delay."""
    driven = Driven(batch_messages=4)
    driven.add("abab-a")
    driven.now = 0.005
    driven.add("c-a")
    assert driven.take() == ["aaaa"]
    assert driven.queue.take_batches(driven.now)[1] == pytest.approx(0.01)
    driven.now = 0.01
    assert driven.take() == ["--", "bb"]
    assert driven.queue.take_batches(driven.now)[1] == pytest.approx(0.015)
    driven.now = 0.015
    assert driven.take() == ["c"]
    driven.add("dd", size=600)
    driven.add("ee", size=400)
    assert driven.take() == ["d"], "the second message would exceed the limit of bytes"
    driven.queue.close_batch_soon()
    assert driven.take() == ["d", "ee"]


def test_open_batches_are_limited_together() -> None:
    """PRD-5: in messages and bytes, as parts of what may be pending, and in number."""
    driven = Driven(pending_messages=12)
    driven.add("abcdea")
    assert driven.take() == []
    driven.add("f")
    assert driven.take() == ["aa", "b", "c", "d", "e", "f"]
    in_bytes = Driven(pending_bytes=2_000)
    in_bytes.add("abcd", size=300)
    assert in_bytes.take() == ["a", "b", "c", "d"]
    many = Driven(pending_messages=10 * MAX_OPEN_BATCHES, pending_bytes=10**9)
    for number in range(MAX_OPEN_BATCHES):
        many.add(chr(10_000 + number))
    assert many.take() == []
    many.add("z")
    assert len(many.take()) == MAX_OPEN_BATCHES + 1


def test_a_full_queue_counts_open_batches() -> None:
    """PRD-1"""
    driven = Driven(pending_messages=4)
    driven.add("ab-c")
    with pytest.raises(ProducerQueueIsFull, match="4 messages of 40 bytes"):
        driven.add("a")
    driven.queue.close_batch_soon()
    for batch in driven.queue.take_batches(0)[0]:
        driven.queue.release_answered(batch)
    driven.add("abcd")


_steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"), st.sampled_from("-abcd"), st.sampled_from([None, b"a", b"e"]), st.integers(1, 1_500)
        ),
        st.tuples(st.sampled_from(["fast", "take", "time", "release", "urgent"])),
    ),
    max_size=80,
)


@settings(max_examples=150)
@given(_steps)
def test_no_message_is_lost_and_keys_stay_in_order(steps: list[tuple[Any, ...]]) -> None:
    """PRD-5, PRD-10, PRD-1: each message is in one batch, with others of its key, in order. Entries have consecutive
    sequence ids, ascending in the order in which batches are sent, and carry the key."""
    driven = Driven(pending_messages=40, pending_bytes=8_000, batch_messages=6)
    queue = driven.queue
    sent: dict[bytes, list[bytes]] = defaultdict(list)
    batches: list[Batch] = []
    released = number = 0
    for step, *details in steps:
        content = b"%d" % number
        if step == "send":
            letter, ordering_key, size = details
            key = None if letter == "-" else letter
            try:
                queue.add_message(OutgoingMessage(content, key, ordering_key, size=size))
                sent[ordering_bytes(key, ordering_key=ordering_key)].append(content)
                number += 1
            except ProducerQueueIsFull:
                pass
        elif step == "fast" and queue.capacity > 0 and queue.byte_capacity > 30:
            queue.capacity -= 1
            queue.byte_capacity -= 30
            queue.open_batch += (content, None)
            sent[ordering_bytes(None)].append(content)
            number += 1
        elif step == "release" and released < len(batches):
            queue.release_answered(batches[released])
            released += 1
        elif step == "time":
            driven.now += 0.007
        elif step == "urgent":
            queue.close_batch_soon()
        elif step == "take":
            batches += queue.take_batches(driven.now)[0]
    queue.close_batch_soon()
    batches += queue.take_batches(driven.now)[0]
    for batch in batches[released:]:
        queue.release_answered(batch)
    stored: dict[bytes, list[bytes]] = defaultdict(list)
    next_id = 0
    for batch in batches:
        count, in_bytes = batch.count, batch.bytes
        assert count == 1 or (count <= 6 and in_bytes <= 1_000)
        entry = decode_entry(batch.encode(MessageMetadata(producer_name="p"), 1, 0))  # type: ignore[arg-type]
        messages = decode_messages(entry)
        assert list(messages.sequence_ids or ()) == list(range(next_id, next_id + count))
        metadata = entry.metadata
        assert (metadata.highest_sequence_id or metadata.sequence_id) == next_id + count - 1
        next_id += count
        dispatched_by = dispatch_key(metadata)
        for index, payload in enumerate(messages.payloads):
            key = messages.keys[index] if messages.keys is not None else None
            ordering_key = messages.ordering_keys[index] if messages.ordering_keys is not None else None
            assert ordering_bytes(key, ordering_key=ordering_key) == dispatched_by  # type: ignore[arg-type]
            stored[dispatched_by].append(payload or b"")
    assert stored == sent
    assert next_id == number
    driven.add("abcd" * 5, size=190)  # nothing is counted any more: half of what may be pending stays open
    assert driven.take() == []
    driven.add("-" * 20, size=190)
    with pytest.raises(ProducerQueueIsFull):
        driven.add("a")


def dispatch_key(metadata: MessageMetadata) -> bytes:
    """Return the key by which a broker chooses a consumer of a Key_Shared subscription."""
    return ordering_bytes(
        metadata.partition_key if metadata.HasField("partition_key") else None,
        b64_encoded=metadata.partition_key_b64_encoded,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
    )


def describe(entry: bytes) -> tuple[bytes, str, list[bytes | None]]:
    """Return what must be the same for all clients: the entry's keys, and its messages in order."""
    decoded = decode_entry(entry)
    return dispatch_key(decoded.metadata), decoded.metadata.partition_key, list(decode_messages(decoded).payloads)


def stored_of(messages: list[dict[str, Any]]) -> list[bytes]:
    """Publish messages as batches by key, and return the entries."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", **BY_KEY)
        for message in messages:
            producer.send_async(**message)
        producer.flush()
        entries: list[bytes] = made.on_loop(lambda broker: broker.topic("t").entries)
        return entries


@pytest.mark.parametrize("name", ["batch-by-key", "batch-by-key-compressed", "batch-by-ordering-key"])
def test_batches_are_those_of_the_stock_client(name: str) -> None:
    """PRD-5: the same messages share an entry, in the same order, and its metadata have the same keys."""
    messages = [dict(message) for message in CASES[name]["messages"]]
    for message in messages:
        message["content"] = base64.b64decode(message.pop("payload"))
    theirs = [base64.b64decode(sent["entry"]) for sent in CASES[name]["sent"]]
    assert sorted(map(describe, stored_of(messages))) == sorted(map(describe, theirs))


def test_batches_are_those_of_the_java_client() -> None:
    """PRD-5: with keys of bytes, too."""
    theirs = [base64.b64decode(entry) for entry in json.loads(RECORD.read_text())]
    assert sorted(map(describe, stored_of(MESSAGES))) == sorted(map(describe, theirs))
    assert len(theirs) == 6


def test_a_batch_of_many_keys_has_the_first_message_s() -> None:
    """Batches of the default type carry it, as those of Pulsar's clients do."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", batching_max_publish_delay_ms=60_000)
        for key in ("k", "l", None):
            producer.send_async(b"x", partition_key=key)
        producer.flush()
        [entry] = made.on_loop(lambda broker: broker.topic("t").entries)
        assert describe(entry) == (b"k", "k", [b"x"] * 3)
        assert decode_messages(decode_entry(entry)).keys == ["k", "l", None]


def test_results_of_keyed_messages() -> None:
    """PRD-5, PRD-1: `send` closes the open batches at once; callbacks get each message's id; closing sends the rest."""
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t", **BY_KEY)
        results: list[tuple[bytes, Result, MessageId | None]] = []

        def add_result(content: bytes, result: Result, message_id: MessageId | None) -> None:
            results.append((content, result, message_id))

        for number in range(12):
            content = b"%d" % number
            producer.send_async(content, partial(add_result, content), partition_key="abc"[number % 3])
        assert producer.send(b"12", partition_key="a").batch_index() == 4
        producer.flush()
        assert producer.last_sequence_id() == 12
        producer.send_async(b"13", partition_key="b")
        producer.close()
        topic: Topic = made.on_loop(lambda broker: broker.topic("t"))
        stored = topic.messages()
        assert [len(messages) for messages in stored] == [5, 4, 4, 1]
        assert len(results) == 12
        for content, result, message_id in results:
            assert result is Result.Ok
            assert message_id is not None
            assert stored[message_id.entry_id()].payloads[message_id.batch_index()] == content


async def test_a_keyed_batch_times_out() -> None:
    """PRD-9"""
    async with scene() as (broker, client):
        broker.receipting.clear()
        producer = await client.create_producer("t", **BY_KEY, send_timeout_millis=50)
        outcomes = await asyncio.gather(
            *(producer.send(b"x", partition_key=key) for key in "aab"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [exceptions.Timeout] * 3


def test_a_batch_is_sent_before_it_times_out() -> None:
    """PRD-4, PRD-9: of either kind, if the delay is longer than the send timeout."""
    with sync_scene() as made, made.client() as client:
        limits: dict[str, Any] = {"send_timeout_millis": 2_000, "batching_max_publish_delay_ms": 60_000}
        results: list[Result] = []
        for batching in (BatchingType.KeyBased, BatchingType.Default):
            producer = client.create_producer("t", batching_type=batching, **limits)
            producer.send_async(b"x", lambda result, _: results.append(result), partition_key="k")
        wait_until(lambda: len(results) == 2, "they have results")
        assert results == [Result.Ok] * 2


def test_messages_without_a_partition_key_go_to_all_partitions() -> None:
    """PRD-5, PRD-6: round robin, from batch to batch, as with other batches."""
    with sync_scene() as made, made.client() as client:
        made.broker.partitioned["persistent://public/default/p"] = 3
        producer = client.create_producer("p", **BY_KEY)
        assert {producer.send(b"x", ordering_key=b"k").partition() for _ in range(3)} == {0, 1, 2}
        assert len({producer.send(b"x", partition_key="k").partition() for _ in range(3)}) == 1


async def test_sequence_ids_of_the_application_are_refused() -> None:
    """PRD-5: unless batching is off: then there are no batches of keys."""
    async with scene() as (_, client):
        producer = await client.create_producer("t", **BY_KEY)
        for key in (None, "k"):
            with pytest.raises(exceptions.InvalidMessage, match=r"sequence_id = 7: with BatchingType.KeyBased .*leave"):
                await producer.send(b"x", partition_key=key, sequence_id=7)
        await producer.send(b"x", partition_key="k")
        unbatched = await client.create_producer("u", **BY_KEY, batching_enabled=False)
        await unbatched.send(b"x", sequence_id=7)
        assert unbatched.last_sequence_id() == 7


async def test_keys_stay_in_order_while_everything_breaks() -> None:
    """PRD-5, PRD-9, PRD-10: each message is stored. First copies of entries have ascending sequence ids, and
    those of a key are in the order of sending."""

    async def publish(seed: int) -> None:
        chance = SeededRandomness(seed)
        async with scene(seed=seed) as (broker, client):
            options = {**BY_KEY, "batching_max_publish_delay_ms": chance.below(3)}
            producer = await client.create_producer("t", **options, batching_max_messages=1 + chance.below(5))
            sends: list[asyncio.Task[MessageId]] = []
            for number in range(300):
                send = producer.send(b"%d" % number, partition_key=f"k{chance.below(4)}")
                sends.append(asyncio.create_task(send))
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
                if chance.random() < 0.04:
                    inject_fault(broker, chance)
            broker.receipting.set()
            await asyncio.gather(*sends)
            by_key: dict[object, list[int]] = defaultdict(list)
            seen: list[int] = []
            for messages in broker.topic("t").messages():
                ids = [sequence_id or 0 for sequence_id in messages.sequence_ids or ()]
                assert messages.keys is not None
                assert len(set(messages.keys)) == 1
                if not seen or ids[0] > seen[-1]:  # else it is a copy
                    seen += ids
                    by_key[messages.keys[0]] += [int(payload or b"") for payload in messages.payloads]
                assert set(ids) <= set(seen)
            assert seen == list(range(300))
            assert sum(map(len, by_key.values())) == 300
            assert all(numbers == sorted(numbers) for numbers in by_key.values())

    for seed in range(8):
        await publish(seed)
