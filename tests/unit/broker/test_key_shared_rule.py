"""Bounds of a Key_Shared subscription, what it remembers, and the keys of entries."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_broker.managed_ledger.entry_cache import CachedEntries, EntryCache
from magnetar_broker.managed_ledger.log_entry import Chunk, LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.individual_delivery import IndividualDeliveryRule
from magnetar_broker.topics.dispatch.key_shared import KeySharedRule
from magnetar_broker.topics.dispatch.waiting_keys import WaitingEntries
from magnetar_protos.broker_pb2 import KeySharedMode, KeySharedOptions, SlotRange, SubscriptionType
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire.batch import encode_batch
from magnetar_wire.entry import add_broker_metadata
from magnetar_wire.entry_keys import has_several_keys, hash_entry_key
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from magnetar_wire.hashing import NO_KEY, key_shared_slot, murmur3_32
from magnetar_wire.messages import Messages
from tests.produce_client import entry
from tests.unit.broker.subscription_scene import Scene, ack, redeliver, settle


async def test_nothing_new_is_read_while_as_many_entries_wait_as_may() -> None:
    """(SUB-6) The bound is reported. Keys that wait hold up the others only then."""
    scene = Scene(key_shared_look_ahead_msg_in_replay_threshold_per_subscription=10)
    for _ in range(40):
        scene.log.add(key="stuck")
    first, had = await scene.subscribe(kind=SubscriptionType.KEY_SHARED, permits=5)
    second, others = await scene.subscribe(kind=SubscriptionType.KEY_SHARED)
    rule = first.subscription.rule
    assert isinstance(rule, KeySharedRule)
    while len(rule.order.waiting) and rule.find_shortage() is None:
        first.flow(first.epoch, 1)
    later = scene.log.add(key="other")
    scene.log.on_appended()
    stats = scene.stats()
    assert stats.redelivery_entries >= 10
    assert {reason.code for reason in stats.reasons} & {"look_ahead"}
    assert later not in had.positions + others.positions
    for _ in range(40):
        for consumer, sink in ((first, had), (second, others)):
            if positions := sink.take():
                assert positions == sorted(positions)
                ack(consumer, *positions)
        first.flow(first.epoch, 5)
    assert scene.stats().backlog_entries == 0


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
async def test_nothing_is_remembered_of_an_entry_that_is_lost_before_its_redelivery(kind: SubscriptionType) -> None:
    scene = Scene()
    positions = [scene.log.add(key="a") for _ in range(2)]
    consumer, sink = await scene.subscribe(kind=kind)
    assert sink.positions == positions
    rule = consumer.subscription.rule
    assert isinstance(rule, IndividualDeliveryRule)
    scene.log.lost, scene.log.is_cached = [positions[1]], False
    redeliver(consumer, positions[1])
    await settle()
    assert (scene.stats().unacked_messages, scene.stats().backlog_entries) == (1, 1)
    parts = [*vars(rule).values(), *(vars(rule.order).values() if isinstance(rule, KeySharedRule) else ())]
    remembered = [one for one in parts if isinstance(one, EntryCounts)]
    assert remembered
    assert all(positions[1] not in set(one) for one in remembered)


async def test_waiting_entries_of_all_subscriptions_share_the_cache() -> None:
    """(CHK-68, SUB-6) Those that the broker's cache has no memory for are read again, in order."""
    scene = Scene()
    cache = scene.log.cache = EntryCache(10 * (ENTRY_OVERHEAD_BYTES + 100))
    scene.log.is_cached = False  # as a backlog
    for number in range(30):
        scene.log.add(key=f"key {number % 7}")
    for name in "abc":
        await scene.subscribe(name, kind=SubscriptionType.KEY_SHARED, key_shared=_sticky(0, 0))
        await settle()
        assert scene.stats(name).redelivery_entries == 30
        assert 0 < len(cache) < 30
        assert cache.size_bytes <= 10 * (ENTRY_OVERHEAD_BYTES + 100)
    for name in "abc":
        _, sink = await scene.subscribe(name, kind=SubscriptionType.KEY_SHARED, key_shared=_sticky(1, 65_535))
        await settle()
        assert sink.positions == scene.log.order
    assert (cache.size_bytes, len(cache)) == (0, 0)


async def test_the_end_of_a_subscription_releases_its_waiting_entries() -> None:
    """(CHK-68) As when its topic is unloaded."""
    scene = Scene()
    cache = scene.log.cache = EntryCache(1 << 20)
    scene.log.add(key="key")
    await scene.subscribe("s", kind=SubscriptionType.KEY_SHARED, key_shared=_sticky(0, 0))
    await settle()
    assert len(cache) == 1
    await scene.subscriptions.close()
    assert (cache.size_bytes, len(cache)) == (0, 0)


async def test_a_dispatch_rate_leaves_waiting_entries_in_memory() -> None:
    """(RET-4, CHK-68) Those that it does not allow yet are not read again."""
    scene = Scene(dispatch_throttling_rate_per_subscription_in_msg=4)
    scene.log.cache = EntryCache(1 << 20)
    for number in range(10):
        scene.log.add(key=f"key {number}")
    await scene.subscribe("s", kind=SubscriptionType.KEY_SHARED, key_shared=_sticky(0, 0))
    await settle()
    assert len(scene.log.cache) == 10
    reads = scene.log.reads
    _, sink = await scene.subscribe("s", kind=SubscriptionType.KEY_SHARED, key_shared=_sticky(1, 65_535))
    assert sink.positions == scene.log.order[:4]
    assert len(scene.log.cache) == 6
    for _ in range(2):
        scene.clock.advance(1)
        await settle()
    assert sink.positions == scene.log.order
    assert (scene.log.reads, len(scene.log.cache)) == (reads, 0)


def test_waiting_entries_of_one_subscription_leave_memory_for_others() -> None:
    """(CHK-68) It has `dispatcher_max_read_size_bytes` of the cache, also after the cache has evicted some."""
    entry_bytes = ENTRY_OVERHEAD_BYTES + len(_entry(1).stored)
    cache = EntryCache(5 * entry_bytes)
    waiting, topic = WaitingEntries(cache), CachedEntries(cache)
    for number in range(4):
        waiting.add(_entry(number), 3 * entry_bytes)
    assert [number for number in range(4) if Position(1, number) in waiting] == [0, 1, 2]
    topic.add([_entry(number) for number in range(3)])
    assert waiting.take(Position(1, 0)) is None  # evicted
    topic.drop_all()
    waiting.add(_entry(3), 3 * entry_bytes)
    waiting.add(_entry(4), 3 * entry_bytes)
    assert [number for number in range(5) if Position(1, number) in waiting] == [1, 2, 3]
    waiting.clear()
    assert (cache.size_bytes, len(cache)) == (0, 0)


def test_entries_that_are_dropped_and_added_again_count_once() -> None:
    """(CHK-68) Also in a cache that evicts nothing."""
    cache = EntryCache(1 << 20)
    waiting = WaitingEntries(cache)
    waiting.add(_entry(0), 1 << 20)
    for number in range(5_000):
        waiting.add(_entry((number + 1) % 2), 1 << 20)
        waiting.take(Position(1, number % 2))
    assert len(cache) == 1


@pytest.mark.parametrize("end", ["it has all", "it discards the message", "it leaves"])
async def test_the_chunks_of_a_message_stay_together_while_their_key_moves(end: str) -> None:
    """(SUB-5, SUB-6) They are acknowledged together: all go to the old consumer of their key. Then the key moves."""
    scene = Scene()
    first, had = await scene.subscribe(kind=SubscriptionType.KEY_SHARED, permits=1)
    key = next(key for key in map(str, range(20)) if key_shared_slot(key.encode()) < 32_768)
    chunks = [scene.log.add(chunk=Chunk(1, number, number == 2), key=key) for number in range(3)]
    _, others = await scene.subscribe(kind=SubscriptionType.KEY_SHARED)
    await settle()
    assert (had.positions, others.positions) == (chunks[:1], [])
    first.flow(first.epoch, 1)
    await settle()
    assert (had.positions, others.positions) == (chunks[:2], [])
    if end == "it leaves":
        first.leave()
        await settle()
        assert others.positions == chunks
        return
    later = scene.log.add(key=key)
    if end == "it has all":
        first.flow(first.epoch, 1)
        await settle()
        assert (had.positions, others.positions) == (chunks, [])
    ack(first, *had.positions)
    await settle()
    assert others.positions == ([later] if end == "it has all" else [chunks[2], later])


def _sticky(first: int, last: int) -> KeySharedOptions:
    return KeySharedOptions(mode=KeySharedMode.STICKY, ranges=[SlotRange(first=first, last=last)])


def _entry(number: int) -> LogEntry:
    return LogEntry(Position(1, number), bytes(100), 1, 0, number, 0)


def test_an_entry_has_the_ordering_key_else_the_key_else_none() -> None:
    """(SUB-5)"""
    cases: list[tuple[dict[str, Any], bytes]] = [
        ({"partition_key": "a"}, b"a"),
        ({"partition_key": "a", "ordering_key": b"b"}, b"b"),
        ({"partition_key": "AP8=", "partition_key_b64_encoded": True}, b"\x00\xff"),
        ({}, NO_KEY),
    ]
    for metadata, key in cases:
        stored = add_broker_metadata(entry(0, b"x", "p", **metadata), 1, 1)
        assert hash_entry_key(stored) == murmur3_32(key)


def test_a_batch_that_would_decompress_to_very_much_is_not_searched_for_keys() -> None:
    """A producer could block the broker with a few kilobytes, over and over."""
    shared = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    for payload_bytes, compression, is_found in (
        (100, CompressionType.ZSTD, True),
        (1_000_000, CompressionType.NONE, True),
        (1_000_000, CompressionType.ZSTD, False),
    ):
        batch = encode_batch(Messages([bytes(payload_bytes)] * 2, keys=["a", "b"]), shared, compression)
        assert has_several_keys(add_broker_metadata(batch, 1, 1)) is is_found
