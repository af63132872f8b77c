"""Which bound ends a delivery, and who is called when a bound changes."""

from __future__ import annotations

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import LATEST, Position
from magnetar_broker.topics.dispatch.delivery_capacity import (
    Deliverable,
    DeliveryCapacity,
    OutboxBudget,
    OutboxCapacity,
    ReadSize,
    UnackedMessages,
)
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_wire import delivery_reasons
from tests.unit.broker.recording_sink import FakeOutboxCapacity
from tests.unit.broker.subscription_scene import Scene, ack, settle

_NONE = Position(1, -1)


def _entries(count: int, messages: int = 1, size: int = 10) -> list[Deliverable]:
    return [Deliverable(LogEntry(Position(1, at), b"x" * size, messages, 0, at, 0)) for at in range(count)]


def _capacity(permits: int, outbox_capacity: OutboxCapacity | None = None) -> DeliveryCapacity:
    capacity = DeliveryCapacity(outbox_capacity or FakeOutboxCapacity(), lambda: None)
    capacity.grant(permits)
    return capacity


def test_permits_end_a_delivery_with_the_entry_that_uses_the_last_one() -> None:
    capacity = _capacity(10)
    assert capacity.measure()
    assert capacity.take(_entries(5, messages=4)) == 3
    assert capacity.permits == -2
    assert not capacity.measure()
    assert capacity.find_shortage("it") == delivery_reasons.NO_PERMITS(who="it")
    capacity.grant(2)
    assert not capacity.measure()
    capacity.grant(1)
    assert capacity.measure()


def test_outbox_ends_a_delivery_with_the_entry_that_fills_it() -> None:
    outbox_capacity = FakeOutboxCapacity(25)
    capacity = _capacity(100, outbox_capacity)
    assert capacity.measure()
    assert capacity.take(_entries(5)) == 3
    assert capacity.free_bytes == -5
    assert capacity.permits == 97


def test_consumer_with_a_full_outbox_is_called_once_when_it_has_capacity() -> None:
    outbox_capacity = FakeOutboxCapacity(0)
    calls: list[str] = []
    capacity = DeliveryCapacity(outbox_capacity, lambda: calls.append("called"))
    outbox_capacity.offer()
    assert not capacity.measure(), "without permits the outbox is not measured"
    assert outbox_capacity.measured == 0
    capacity.grant(1)
    assert not capacity.measure()
    outbox_capacity.offer()
    assert calls == []
    outbox_capacity.free = 1
    outbox_capacity.offer()
    outbox_capacity.offer()
    assert calls == ["called"]


def test_stopped_consumer_gets_nothing_and_is_not_called() -> None:
    outbox_capacity = FakeOutboxCapacity(0)
    calls: list[str] = []
    capacity = DeliveryCapacity(outbox_capacity, lambda: calls.append("called"))
    capacity.grant(1)
    assert not capacity.measure()
    capacity.stop()
    outbox_capacity.free = 100
    outbox_capacity.offer()
    assert calls == []
    assert not capacity.may_get_more
    assert not capacity.measure()
    assert capacity.find_shortage("it") == delivery_reasons.CLOSING(who="it")


def test_offered_capacity_goes_to_waiting_consumers_in_turn() -> None:
    outbox_capacity = FakeOutboxCapacity(0)
    order: list[str] = []

    def waiting(name: str) -> DeliveryCapacity:
        def use() -> None:
            order.append(name)
            outbox_capacity.free = 0
            capacity.measure()

        capacity = DeliveryCapacity(outbox_capacity, use)
        capacity.grant(100)
        assert not capacity.measure()
        return capacity

    kept = [waiting(name) for name in "abc"]
    for _ in range(5):
        outbox_capacity.free = 10
        outbox_capacity.offer()
    assert order == ["a", "b", "c", "a", "b"], kept


def test_unacknowledged_messages_of_one_consumer_end_its_delivery() -> None:
    """ACK-3: until some are acknowledged; a batch counts its unacknowledged messages"""
    of_all = UnackedMessages(max_per_consumer=10, max_per_subscription=0)
    capacity = _capacity(1000)
    capacity.bound_unacked(of_all)
    entries = _entries(5, messages=4)
    entries[0].acknowledged = 0b111
    assert capacity.measure()
    assert capacity.take(entries) == 4
    assert (capacity.unacked_messages, of_all.total) == (13, 13)
    assert capacity.has_max_unacked
    assert not capacity.measure()
    assert not capacity.may_get_more
    assert capacity.find_shortage("it") == delivery_reasons.MAX_UNACKED_CONSUMER(who="it", messages=13, limit=10)
    assert capacity.release_range(1, 2, 9) == [2, 3]
    assert (capacity.unacked_messages, of_all.total) == (5, 5)
    capacity.set_unacked(Position(1, 1), 1_000)  # by a client that states a wrong size of the batch
    assert (capacity.unacked_messages, of_all.total) == (5, 5)
    capacity.set_unacked(Position(1, 1), 0)
    assert capacity.unacked_messages == 2
    assert capacity.measure()
    assert capacity.release_up_to(Position(1, 0))
    assert of_all.total == 1
    assert capacity.release_all() == [(1, [1])]
    assert of_all.total == 0


def test_unacknowledged_messages_of_all_consumers_end_a_delivery() -> None:
    of_all = UnackedMessages(max_per_consumer=100, max_per_subscription=10)
    first, second = _capacity(1000), _capacity(1000)
    for one in (first, second):
        one.bound_unacked(of_all)
        assert one.measure()
    assert first.take(_entries(4)) == 4
    assert of_all.free_messages == 6
    assert second.take(_entries(20)) == 6
    assert of_all.free_messages == 0


def test_one_large_entry_counts_for_the_subscription_at_most_as_one_consumer() -> None:
    of_all = UnackedMessages(max_per_consumer=10, max_per_subscription=15)
    first = _capacity(100_000)
    first.bound_unacked(of_all)
    assert first.measure()
    assert first.take(_entries(2, messages=5_000)) == 1
    assert (of_all.total, of_all.free_messages) == (5_000, 5)


def test_full_budget_of_the_broker_leaves_each_outbox_a_small_capacity() -> None:
    budget = OutboxBudget(1_000_000)
    first, second = (OutboxCapacity(800_000, budget, lambda: None) for _ in range(2))
    first.add(700_000)
    assert second.free_bytes() == 800_000
    second.reserve(300_000)
    assert (first.free_bytes(), second.free_bytes()) == (262_144 - 700_000, 262_144 - 300_000)
    second.reserve(-300_000)
    assert (first.free_bytes(), second.free_bytes()) == (100_000, 800_000)
    first.release()
    first.add(-700_000)
    assert budget.queued_bytes == 0, "what is returned after the release counts once"
    assert first.free_bytes() == 0


def test_outbox_reports_returned_memory_and_not_reserved_memory() -> None:
    returned: list[int] = []
    outbox_capacity = OutboxCapacity(100, OutboxBudget(1000), lambda: returned.append(1))
    outbox_capacity.reserve(60)
    assert returned == []
    outbox_capacity.reserve(-60)
    assert returned == [1]


def test_read_size_follows_the_entries_that_were_read() -> None:
    size = ReadSize(max_entries=100)
    assert size.entries_for(50) == 1, "before any entry was read, they may be large"
    size.record(_entries(3, messages=1))
    assert size.entries_for(50) == 50
    assert size.entries_for(0) == 1
    assert size.entries_for(10_000) == 100
    size.record(_entries(1, messages=25))
    assert size.entries_for(50) == 2


async def test_outbox_is_measured_once_per_delivery() -> None:
    for kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER, SubscriptionType.SHARED):
        scene = Scene()
        consumer, sink = await scene.subscribe(kind=kind, permits=1_000)
        for number in range(1, 20):
            [position] = scene.add(1)
            assert sink.take() == [position]
            ack(consumer, position)
            assert sink.outbox_capacity.measured == number
        await settle()
        assert scene.log.last < LATEST
