"""Bounds of a Key_Shared subscription, and the keys of entries."""

from __future__ import annotations

from typing import Any

from magnetar_broker.topics.dispatch.key_shared import KeySharedRule
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_wire.entry import add_broker_metadata
from magnetar_wire.entry_keys import hash_entry_key
from magnetar_wire.hashing import NO_KEY, murmur3_32
from tests.produce_client import entry
from tests.unit.broker.subscription_scene import Scene, ack


async def test_nothing_new_is_read_while_as_many_entries_wait_as_may() -> None:
    """(SUB-6) The bound is reported. Keys that wait hold up the others only then."""
    scene = Scene(key_shared_look_ahead_msg_in_replay_threshold_per_subscription=10)
    for _ in range(40):
        scene.log.add(key="stuck")
    later = scene.log.add(key="other")
    first, had = await scene.subscribe(kind=SubscriptionType.KEY_SHARED, permits=5)
    second, others = await scene.subscribe(kind=SubscriptionType.KEY_SHARED)
    rule = first.subscription.rule
    assert isinstance(rule, KeySharedRule)
    while len(rule.waiting) and rule.find_shortage() is None:
        first.flow(first.epoch, 1)
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
