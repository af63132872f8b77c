"""Which consumer of a Key_Shared subscription gets which slots."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.key_selectors import HashRing, KeySelector, SplitRanges, StickyRanges
from magnetar_broker.topics.dispatch.key_shared_policy import KeySharedPolicy, SlotRange
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.hashing import key_shared_slot, murmur3_32
from tests.unit.broker.recording_sink import FakeOutboxCapacity


class _Consumer(BaseConsumer):
    def __init__(self, name: str, *ranges: SlotRange) -> None:
        super().__init__(name, 0, FakeOutboxCapacity())
        self.key_shared = KeySharedPolicy(is_sticky=bool(ranges), ranges=ranges)

    def deliver(self, entries: Sequence[Deliverable]) -> None:
        raise AssertionError("selectors deliver nothing")

    def on_outbox_capacity(self) -> None:
        raise AssertionError("selectors deliver nothing")


def _join(selector: KeySelector, name: str, *ranges: SlotRange) -> _Consumer:
    consumer = _Consumer(name, *ranges)
    selector.join(consumer)
    return consumer


def test_a_new_consumer_takes_the_lower_half_of_the_largest_range() -> None:
    """(SUB-10) The worked example: C1, C2, C3 and C4 join, C4 and C1 leave."""
    selector = SplitRanges()
    assert selector.select(0) is None
    c1 = _join(selector, "C1")
    assert selector.ranges(c1) == [(0, 65_535)]
    c2 = _join(selector, "C2")
    assert (selector.ranges(c2), selector.ranges(c1)) == ([(0, 32_767)], [(32_768, 65_535)])
    c3 = _join(selector, "C3")  # both ranges have the same size: the lowest
    assert [selector.ranges(one) for one in (c3, c2, c1)] == [[(0, 16_383)], [(16_384, 32_767)], [(32_768, 65_535)]]
    assert selector.select(key_shared_slot(b"Order-3459134")) is c3
    c4 = _join(selector, "C4")
    assert (selector.ranges(c4), selector.ranges(c1)) == ([(32_768, 49_151)], [(49_152, 65_535)])
    selector.leave([c4])
    assert selector.ranges(c1) == [(32_768, 65_535)]
    selector.leave([c1])
    assert (selector.ranges(c3), selector.ranges(c2)) == ([(0, 16_383)], [(16_384, 65_535)])
    selector.leave([c3, c2])
    assert selector.select(0) is None


def test_a_consumer_is_refused_if_each_slot_has_a_consumer_of_its_own() -> None:
    """(SUB-10)"""
    selector = SplitRanges(slots=8)
    consumers = [_join(selector, f"c{number}") for number in range(8)]
    with pytest.raises(BrokerError, match="none left for consumer late") as refused:
        _join(selector, "late")
    assert refused.value.code == ErrorCode.CONSUMER_ASSIGN_ERROR
    assert sorted(selector.ranges(one) for one in consumers) == [[(slot, slot)] for slot in range(8)]


def test_a_key_goes_to_the_next_point_on_the_ring() -> None:
    """(SUB-11) The points of the worked example: the hash of the name followed by 1 … 100."""
    selector = HashRing(100)
    assert selector.select(5) is None
    name = "orders-aggregator-pod-2345-consumer"
    worker = _join(selector, name)
    assert selector.ranges(worker) == [(0, 2**32 - 1)]
    other = _join(selector, "other")
    points = {murmur3_32(f"{one.name}{number}".encode()): one for one in (worker, other) for number in range(1, 101)}
    assert points[1003084738] is worker  # name + "1"
    for hash_ in (murmur3_32(b"Order-3459134"), 1003084738, 1003084739, 0, 2**32 - 1):
        following = min((point for point in points if point >= hash_), default=min(points))
        assert selector.select(hash_) is points[following]
    slots = sum(last - first + 1 for one in (worker, other) for first, last in selector.ranges(one))
    assert slots == 2**32
    ends = {slot: one for one in (worker, other) for ends in selector.ranges(one) for slot in ends}
    assert {slot: selector.select(slot) for slot in ends} == ends
    selector.leave([worker])
    assert selector.ranges(other) == [(0, 2**32 - 1)]
    selector.leave([other])
    assert selector.select(5) is None


def test_consumers_share_the_points_that_they_have_in_common() -> None:
    """(SUB-11) The hash modulo the number of consumers chooses one of them. A reconnected consumer has the name of the
    old one."""
    selector = HashRing(100)
    old, new = _join(selector, "same"), _join(selector, "same")
    assert [selector.select(slot) for slot in (100, 101, 102)] == [old, new, old]
    selector.leave([old])
    assert [selector.select(slot) for slot in (100, 101, 102)] == [new, new, new]


def test_a_consumer_with_fixed_ranges_gets_what_it_requests() -> None:
    """(SUB-12) The worked example: a consumer without ranges, or with an overlap, is refused and changes nothing."""
    selector = StickyRanges()
    c1 = _join(selector, "C1", (0, 16_383), (32_768, 49_151))
    for ranges in ([], [(16_000, 17_000)], [(50_000, 50_001), (49_151, 49_151)], [(0, 65_535)], [(40_000, 40_000)]):
        with pytest.raises(BrokerError) as refused:
            _join(selector, "refused", *ranges)
        assert refused.value.code == ErrorCode.CONSUMER_ASSIGN_ERROR
        assert [selector.select(slot) for slot in (0, 16_383, 16_384, 32_768, 50_000)] == [c1, c1, None, c1, None]
    c2 = _join(selector, "C2", (16_384, 32_767), (49_152, 65_535))
    assert [selector.select(slot) for slot in (16_383, 16_384, 32_767, 49_151, 65_535)] == [c1, c2, c2, c1, c2]
    assert selector.select(key_shared_slot(b"Order-3459134")) is c1
    assert selector.ranges(c2) == [(16_384, 32_767), (49_152, 65_535)]
    selector.leave([c1])
    assert [selector.select(slot) for slot in (0, 16_384)] == [None, c2]
    with pytest.raises(BrokerError, match="consumer C2 has 49152 … 65535"):
        _join(selector, "C3", (0, 10), (60_000, 60_001))
    _join(selector, "C3", (0, 16_383))
