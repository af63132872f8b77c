"""The rules of dispatch by themselves, and what they are made of."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.managed_ledger.log_entry import Chunk, LogEntry
from magnetar_broker.position import LATEST, Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable, OutboxCapacity
from magnetar_broker.topics.dispatch.dispatch_rule import DispatchLimits, create_dispatch_limits
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_broker.topics.dispatch.exclusive_and_failover import choose_active
from magnetar_broker.topics.dispatch.position_set import PositionSet
from magnetar_broker.topics.dispatch.redelivery_counts import RedeliveryCounts
from magnetar_broker.topics.dispatch.shared import SharedRule
from tests.unit.broker.fake_log import FakeLog
from tests.unit.broker.recording_sink import FakeOutboxCapacity


class _Consumer(BaseConsumer):
    def __init__(self, name: str, priority: int = 0, outbox_capacity: OutboxCapacity | None = None) -> None:
        super().__init__(name, priority, outbox_capacity or FakeOutboxCapacity())

    def deliver(self, entries: Sequence[Deliverable]) -> None:
        raise AssertionError("rules deliver nothing")

    def on_outbox_capacity(self) -> None:
        pass


def _consumer(name: str, priority: int = 0, number: int = 0) -> _Consumer:
    consumer = _Consumer(name, priority)
    consumer.number = number
    return consumer


class _Log(FakeLog):
    """There is always something to read."""

    last = LATEST


_LOG = _Log()


def _entries(count: int, messages: int = 1) -> list[Deliverable]:
    return [Deliverable(LogEntry(Position(1, number), b"x" * 10, messages, 0, number, 0)) for number in range(count)]


def test_failover_selects_a_consumer_of_the_highest_priority() -> None:
    """SUB-3"""
    first, second, low = _consumer("z", 0, 1), _consumer("a", 0, 2), _consumer("a", 1, 0)
    assert choose_active([low, first, second], -1) is first
    assert choose_active([low], -1) is low
    assert choose_active([], -1) is None
    by_name = [choose_active([low, first, second], partition) for partition in range(4)]
    assert by_name == [second, first, second, first]


def test_round_robin_bounds_consecutive_messages_of_a_consumer() -> None:
    """SUB-4"""
    rule = SharedRule(DispatchLimits(max_round_robin_messages=20), Position(1, -1))
    consumers = [_consumer(name) for name in "ab"]
    for consumer in consumers:
        rule.join(consumer, Position(1, -1))
        rule.grant(consumer, consumer.epoch, 1000)
    read = rule.next_read(_LOG)
    assert read is not None
    assert read.positions == []
    assigned = list(rule.assign(_entries(100, messages=7), read, Position(1, 100)))
    assert [(consumer.name, len(entries)) for consumer, entries in assigned[:3]] == [("a", 3), ("b", 3), ("a", 3)]
    assert sum(len(entries) for _, entries in assigned) == 100
    assert rule.unacked_messages == 700


def test_entries_read_beyond_permits_are_queued_for_redelivery() -> None:
    """SUB-14"""
    rule = SharedRule(DispatchLimits(), Position(1, -1))
    consumer = _consumer("a")
    rule.join(consumer, Position(1, -1))
    rule.grant(consumer, consumer.epoch, 3)
    read = rule.next_read(_LOG)
    assert read is not None
    [(_, assigned)] = rule.assign(_entries(8), read, Position(1, 8))
    assert [one.entry.position.entry_id for one in assigned] == [0, 1, 2]
    assert rule.next_read(_LOG) is None
    assert rule.redelivery_entries == 5
    assert rule.read_position == Position(1, 8)
    rule.redeliver(consumer, consumer.epoch, [(1, 1, 1)], Position(1, -1))
    rule.grant(consumer, consumer.epoch, 3)
    read = rule.next_read(_LOG)
    assert read is not None
    # In order, whenever they joined; and before anything new.
    assert [position.entry_id for position in read.positions] == [1, 3, 4]
    again = rule.assign([_entries(8)[1]], read, None)
    assert [one.redelivery_count for _, entries in again for one in entries] == [1]


def test_stream_without_capacity_is_skipped_until_it_has_some() -> None:
    rule = SharedRule(DispatchLimits(), Position(1, -1))
    outbox_capacity = FakeOutboxCapacity(0)
    consumer = _Consumer("a", 0, outbox_capacity)
    rule.join(consumer, Position(1, -1))
    rule.grant(consumer, consumer.epoch, 3)
    assert rule.next_read(_LOG) is None
    outbox_capacity.free = 15
    rule.recheck(consumer)
    read = rule.next_read(_LOG)
    assert read is not None
    went: list[Deliverable] = []
    for _, assigned in rule.assign(_entries(3), read, Position(1, 3)):
        went += assigned
        outbox_capacity.free -= sum(len(one.entry.stored) for one in assigned)
    assert len(went) == 2  # the one that passes the bound still goes
    assert rule.redelivery_entries == 1


def test_priority_levels_that_nobody_has_any_more_are_forgotten() -> None:
    rule = SharedRule(DispatchLimits(), Position(1, -1))
    for level in range(100):
        consumer = _consumer("a", level)
        rule.join(consumer, Position(1, -1))
        rule.grant(consumer, consumer.epoch, 1)
        assert list(rule._lines) == [level]
        rule.leave([consumer], Position(1, -1))
    assert not rule._lines


def test_fifty_thousand_held_entries_are_cheap_to_give_back() -> None:
    """ACK-3: the default bound of unacknowledged messages of a consumer"""
    rule = SharedRule(create_dispatch_limits(SubscriptionSettings()), Position(1, -1))
    consumer = _consumer("a")
    rule.join(consumer, Position(1, -1))
    rule.grant(consumer, consumer.epoch, 1_000_000)
    given = _entries(60_000)
    read = rule.next_read(_LOG)
    assert read is not None
    assert sum(len(assigned) for _, assigned in rule.assign(given, read, Position(1, 60_000))) == 50_000
    assert consumer.capacity.unacked_messages == 50_000
    other = _consumer("b")
    rule.join(other, Position(1, -1))
    rule.leave([consumer], Position(1, -1))
    assert rule.redelivery_entries == 60_000
    positions = PositionSet()
    positions.add_all(1, range(60_000))
    assert len(positions._blocks) == 59, "adjacent entries share a block"


def test_past_deliveries_count_the_deliveries_that_reached_an_entry() -> None:
    past = RedeliveryCounts()
    for end in (20, 9, 5):
        past.record_delivery(Position(1, end))
    assert [past.count(Position(1, number)) for number in (0, 4, 5, 7, 9, 19, 20)] == [3, 3, 2, 2, 1, 1, 0]
    past.record_delivery(Position(1, 9))
    assert [past.count(Position(1, number)) for number in (0, 5, 9, 20)] == [4, 3, 1, 0]
    past.discard_up_to(Position(1, 8))
    assert past._ends == [Position(1, 20)]
    for end in range(21, 2_000):
        past.record_delivery(Position(1, end))
    assert len(past._ends) <= 256
    assert past.count(Position(1, 10)) == 1980


def test_range_removal_does_not_scan_entries_outside_the_range() -> None:
    numbers = EntryCounts()
    numbers.increment(7, range(50_000))
    for _ in range(200_000):  # a look at all of them for each would take many minutes
        assert numbers.take_range(7, 60_000, 2**62) == []
        assert numbers.take_range(7, 1, 0) == []
    assert numbers.total == 50_000


def test_removal_of_a_huge_range_costs_only_existing_entries() -> None:
    numbers, positions = EntryCounts(), PositionSet()
    for entry_id in (3, 5, 2**40):
        numbers.set(Position(1, entry_id), 2)
        positions.add(Position(1, entry_id))
    assert sorted(numbers.take_range(1, 4, 2**62)) == [5, 2**40]
    positions.discard_range(1, 4, 2**62)
    assert numbers.total == 2
    assert positions.take(10) == [Position(1, 3)]
    assert numbers.take_range(9, 0, 2**62) == []


def _chunks(*chunks: Chunk | None) -> list[Deliverable]:
    return [Deliverable(LogEntry(Position(1, at), b"x", 1, 0, at, 0, chunk)) for at, chunk in enumerate(chunks)]


def _assigned(rule: SharedRule, entries: list[Deliverable]) -> list[tuple[str, int]]:
    read = rule.next_read(_LOG)
    assert read is not None
    assigned = rule.assign(entries, read, None if read.positions else entries[-1].entry.position.next)
    return [(consumer.name, one.entry.position.entry_id) for consumer, some in assigned for one in some]


def test_a_chunk_waits_for_the_consumer_that_has_those_before_it_and_others_do_not() -> None:
    """WIRE-1, SUB-4: until that consumer has capacity; an acknowledged one does not wait"""
    rule = SharedRule(DispatchLimits(), Position(1, -1))
    a, b = _consumer("a"), _consumer("b")
    for consumer, permits in ((a, 1), (b, 100)):
        rule.join(consumer, Position(1, -1))
        rule.grant(consumer, consumer.epoch, permits)
    entries = _chunks(Chunk(1, 0, False), None, Chunk(1, 1, False), None, Chunk(1, 2, False), Chunk(1, 3, True))
    assert _assigned(rule, entries) == [("a", 0), ("b", 1), ("b", 3)]
    assert rule.redelivery_entries == 3
    rule.record_acknowledged(b, [(1, 2, 2)])
    assert rule.redelivery_entries == 2
    read = rule.next_read(_LOG)
    assert read is not None
    assert read.positions == [], "b would be shown again and again what it can't have"
    at_end = _Log()
    at_end.last = Position(1, 5)
    assert rule.next_read(at_end) is None
    rule.grant(a, a.epoch, 1)
    assert _assigned(rule, entries[4:]) == [("a", 4)]
    assert rule.redelivery_entries == 1
    rule.leave([a], Position(1, -1))
    rule.record_acknowledged_up_to(Position(1, 4))
    assert _assigned(rule, entries[5:]) == [("b", 5)]


def test_of_messages_that_are_begun_and_never_ended_few_are_remembered() -> None:
    rule = SharedRule(DispatchLimits(), Position(1, -1))
    consumer = _consumer("a")
    rule.join(consumer, Position(1, -1))
    rule.grant(consumer, consumer.epoch, 10_000)
    entries = _chunks(*(Chunk(number, 0, False) for number in range(5_000)))
    assert len(_assigned(rule, entries)) == 5_000
    assert len(rule._chunks._owners) == 1_000
