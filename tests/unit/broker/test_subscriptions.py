"""Subscriptions on a log in memory: how they begin, who gets what, and what moves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.acknowledgments import check_ranges
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable
from magnetar_broker.topics.dispatch.dispatch_rule import DispatchRead
from magnetar_protos.broker_pb2 import Acknowledge, EntryRange, ErrorCode, StartAt, StartMessageId, SubscriptionType
from tests.unit.broker.recording_sink import RecordingSink
from tests.unit.broker.subscription_scene import (
    EARLIEST,
    LATEST,
    Scene,
    ack,
    ack_messages,
    at_position,
    at_time,
    redeliver,
    settle,
)

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER = SubscriptionType.FAILOVER


async def _refused(code: ErrorCode, scene: Scene, *arguments: object, **more: object) -> str:
    with pytest.raises(BrokerError) as refusal:
        await scene.subscribe(*arguments, **more)  # type: ignore[arg-type]
    assert refusal.value.code == code
    return str(refusal.value)


async def test_a_subscription_begins_at_latest_or_earliest_when_it_is_made() -> None:
    """SUB-1"""
    scene = Scene()
    old = scene.add(3)
    _, latest = await scene.subscribe("latest", start=LATEST)
    _, silent = await scene.subscribe("no start", start=StartAt())
    _, earliest = await scene.subscribe("earliest", start=EARLIEST)
    await scene.subscriptions.create("made by the admin", EARLIEST, {"why": "test"})
    new = scene.add(2)
    assert latest.positions == silent.positions == new
    assert earliest.positions == old + new
    # It is there already: where it begins is decided.
    _, made = await scene.subscribe("made by the admin", start=LATEST)
    assert made.positions == old + new
    assert scene.stats("made by the admin").properties == {"why": "test"}


async def test_the_type_is_that_of_the_connected_consumers_and_may_change_when_there_are_none() -> None:
    """SUB-1"""
    scene = Scene()
    first, _ = await scene.subscribe(kind=SHARED)
    problem = await _refused(ErrorCode.CONSUMER_BUSY, scene, kind=FAILOVER)
    assert "SHARED" in problem
    assert "FAILOVER" in problem
    await scene.subscribe(kind=SHARED)
    first.leave()
    await _refused(ErrorCode.CONSUMER_BUSY, scene, kind=EXCLUSIVE)
    [second] = scene.subscriptions._loaded["s", True].consumers
    second.leave()
    await scene.subscribe(kind=EXCLUSIVE)
    assert scene.stats().type == "EXCLUSIVE"


async def test_subscribing_makes_none_where_that_is_off() -> None:
    scene = Scene(allow_auto_subscription_creation=False)
    await _refused(ErrorCode.SUBSCRIPTION_NOT_FOUND, scene)
    await scene.subscriptions.create("s", EARLIEST)
    await scene.subscribe()
    with pytest.raises(BrokerError) as refusal:
        await scene.subscriptions.create("s", EARLIEST)
    assert refusal.value.code == ErrorCode.ALREADY_EXISTS


async def test_concurrent_subscribes_create_one_subscription_despite_cancel() -> None:
    scene = Scene()
    scene.add(1)
    scene.cursors.gate = asyncio.Event()
    joining = [asyncio.create_task(scene.subscribe(kind=SHARED)) for _ in range(5)]
    await settle()
    joining[0].cancel()
    await settle()
    scene.cursors.gate.set()
    joined = await asyncio.gather(*joining[1:])
    assert len(joined) == 4
    assert scene.cursors.created == 1
    assert len(scene.stats().consumers) == 4


async def test_exclusive_has_one_consumer_and_refuses_a_second_unless_the_first_is_dead() -> None:
    """SUB-2"""
    scene = Scene()
    entries = scene.add(3)
    first, had = await scene.subscribe(consumer="first")
    text = await _refused(ErrorCode.CONSUMER_BUSY, scene, consumer="second")
    assert "first" in text
    assert had.positions == entries
    ack(first, entries[0])
    # The stream is dead, and the consumer has not left yet: it holds nobody up.
    had.is_broken = True
    second, gets = await scene.subscribe(consumer="second")
    assert gets.positions == entries[1:]
    assert first.has_left
    assert not second.has_left
    # The subscription is the one that the topic knows: it delivers new entries, and has its only consumer.
    assert scene.subscriptions.consumers == 1
    new = scene.add(2)
    await settle()
    assert gets.positions == entries[1:] + new
    await _refused(ErrorCode.CONSUMER_BUSY, scene, consumer="third")


async def test_reconnecting_reader_replaces_its_disconnected_consumer() -> None:
    """A subscription that is not durable begins at the start of its new consumer."""
    scene = Scene()
    entries = scene.add(4)
    _, had = await scene.subscribe(durable=False, consumer="reader")
    had.is_broken = True
    start = StartAt(
        message_id=StartMessageId(ledger_id=entries[1].ledger_id, entry_id=entries[1].entry_id, batch_index=-1)
    )
    _, gets = await scene.subscribe(durable=False, consumer="reader", start=start)
    new = scene.add(1)
    await settle()
    assert gets.positions == entries[2:] + new
    assert scene.subscriptions.consumers == 1


async def test_failover_selects_by_priority_and_redelivers_unacked_entries() -> None:
    """SUB-3"""
    scene = Scene()
    entries = scene.add(4)
    b, gets_b = await scene.subscribe(kind=FAILOVER, consumer="b", priority=1)
    a, gets_a = await scene.subscribe(kind=FAILOVER, consumer="a", priority=1)
    assert (gets_b.active, gets_a.active) == ([True], [False])
    assert (gets_b.take(), gets_a.take()) == (entries, [])
    ack(b, entries[0], entries[2])
    # A consumer of a higher priority takes over: it gets unacknowledged messages in order, and the old one is notified.
    c, gets_c = await scene.subscribe(kind=FAILOVER, consumer="c", priority=0)
    assert (gets_b.active, gets_c.active) == ([True, False], [True])
    assert gets_c.take() == [entries[1], entries[3]]
    assert gets_b.epochs == [(b.epoch, b.epoch)]
    with pytest.raises(BrokerError) as stale:  # nothing was delivered to it in this epoch
        ack(b, entries[3], cumulative=True)
    assert stale.value.code == ErrorCode.STALE_EPOCH
    c.leave()
    assert (gets_b.active, gets_a.active) == ([True, False, True], [False])
    # Its permits are of an epoch that has ended.
    assert gets_b.take() == []
    b.flow(b.epoch, 100)
    assert gets_b.take() == [entries[1], entries[3]]
    b.leave()
    assert gets_a.active == [False, True]
    a.flow(a.epoch, 100)
    assert gets_a.take() == [entries[1], entries[3]]
    ack(a, entries[3], cumulative=True)
    assert scene.stats().backlog_entries == 0


async def test_failover_spreads_partitions_over_the_highest_priority_by_name() -> None:
    """SUB-3"""
    for partition in range(6):
        scene = Scene(topic=f"topic-partition-{partition}")
        sinks: dict[str, RecordingSink] = {}
        for name, priority in (("c", 0), ("low", 1), ("a", 0), ("b", 0)):
            _, sinks[name] = await scene.subscribe(kind=FAILOVER, consumer=name, priority=priority)
        active = [name for name, sink in sinks.items() if sink.active[-1]]
        assert active == ["abc"[partition % 3]]


async def test_shared_is_round_robin_by_priority_and_refuses_cumulative_ack() -> None:
    """SUB-4"""
    scene = Scene()
    _, low = await scene.subscribe(kind=SHARED, priority=1)
    first, one = await scene.subscribe(kind=SHARED, permits=3)
    _, two = await scene.subscribe(kind=SHARED, permits=5)
    entries = scene.add(10)
    assert one.positions == [entries[0], entries[2], entries[4]]
    assert two.positions == [entries[1], entries[3], *entries[5:8]]
    # Those of the highest priority have no permits left.
    assert low.positions == entries[8:]
    with pytest.raises(BrokerError) as refusal:
        ack(first, entries[4], cumulative=True)
    assert refusal.value.code == ErrorCode.NOT_ALLOWED
    assert scene.stats().backlog_entries == 10


async def test_backlog_is_dispatched_evenly_to_shared_consumers() -> None:
    """SUB-4"""
    scene = Scene()
    entries = scene.add(40)
    sinks = []
    consumers = []
    for _ in range(4):
        consumer, sink = await scene.subscribe(kind=SHARED, permits=0)
        consumers.append(consumer)
        sinks.append(sink)
    scene.log.is_cached = False
    for consumer in consumers:
        consumer.flow(consumer.epoch, 1000)
    await settle()
    assert sorted(position for sink in sinks for position in sink.positions) == entries
    assert all(5 <= len(sink.positions) <= 15 for sink in sinks)


async def test_large_entries_are_redelivered_in_bounded_reads() -> None:
    """CHK-66: what one read does not hold stays with the entries that wait for redelivery, in order."""
    scene = Scene(dispatcher_max_read_size_bytes=250)
    entries = [scene.log.add(payload=b"x" * 100) for _ in range(20)]
    consumer, sink = await scene.subscribe(kind=SHARED)
    await settle()
    assert sink.take() == entries
    sizes: list[int] = []
    read_at = scene.log.read_at

    async def read(positions: Sequence[Position], max_bytes: int | None = None) -> list[LogEntry | None]:
        found = await read_at(positions, max_bytes)
        sizes.append(len(found))
        return found

    scene.log.read_at = read  # type: ignore[method-assign]
    redeliver(consumer)
    consumer.flow(consumer.epoch, 100)
    await settle()
    assert sink.take() == entries
    assert sizes == [2] * 10
    # Entries that are acknowledged while they are read are not put back.
    scene.log.gate = asyncio.Event()
    redeliver(consumer)
    consumer.flow(consumer.epoch, 100)
    await settle()
    ack(consumer, *entries)
    scene.log.gate.set()
    await settle()
    assert scene.stats().redelivery_entries == 0


async def test_the_active_consumer_changes_during_a_seek() -> None:
    """SUB-9: entries count as delivered for the first time after a seek."""
    scene = Scene()
    entries = scene.add(4)
    first, _ = await scene.subscribe(kind=FAILOVER, consumer="a")
    second, _ = await scene.subscribe(kind=FAILOVER, consumer="b")
    await settle()
    subscription = first.subscription
    dispatcher = subscription.dispatcher
    assert dispatcher is not None
    rule = dispatcher.rule
    rule.begin_move()
    rule.leave([first], subscription.cursor.mark_delete)
    rule.end_move(entries[0].previous)
    rule.grant(second, second.epoch, 10)
    [(_, deliverable)] = rule.assign(
        [Deliverable(one) for one in scene.log.read_nowait(entries[0], 4, 1000) or ()],
        DispatchRead([], entries[0], 4, 1000, None),
        entries[-1].next,
    )
    assert [one.redelivery_count for one in deliverable] == [0] * 4


async def test_redelivered_and_undelivered_entries_precede_new_ones() -> None:
    """SUB-14"""
    scene = Scene()
    entries = scene.add(6)
    one, gets_one = await scene.subscribe(kind=SHARED, permits=4)
    assert gets_one.take() == entries[:4]
    redeliver(one, entries[3])
    redeliver(one, entries[1])
    await settle()
    assert gets_one.take() == []
    assert scene.stats().redelivery_entries == 2
    two, gets_two = await scene.subscribe(kind=SHARED, permits=3)
    await settle()
    assert gets_two.delivered == [
        (entries[1], two.epoch, 1, 0),
        (entries[3], two.epoch, 1, 0),
        (entries[4], two.epoch, 0, 0),
    ]
    gets_two.take()
    # What was read while nobody had a permit any more comes before what is new, and was never delivered.
    scene.log.is_cached = False
    scene.log.gate = asyncio.Event()
    two.flow(two.epoch, 1)
    await settle()
    two.leave()  # while it is being read for it
    scene.log.gate.set()
    await settle()
    one.flow(one.epoch, 10)
    await settle()
    assert [(position, count) for position, _, count, _ in gets_one.delivered] == [
        (entries[1], 1),
        (entries[3], 1),
        (entries[4], 0),
        (entries[5], 0),
    ]


async def test_non_durable_subscription_ends_with_consumer_and_may_share_name() -> None:
    """SUB-7"""
    scene = Scene()
    entries = scene.add(3)
    durable, _ = await scene.subscribe("name", start=EARLIEST)
    reader, reads = await scene.subscribe("name", durable=False, start=at_position(entries[1]))
    assert reads.take() == entries[1:]
    assert [one.name for one in scene.cursors.durable_cursors()] == ["name"]
    assert scene.cursors.find_slowest_position() == entries[0].previous
    ack(durable, entries[2], cumulative=True)
    # The reader has acknowledged nothing, and holds back nothing.
    assert scene.cursors.find_slowest_position() == entries[2]
    reader.leave()
    assert {one.durable for one in scene.subscriptions.stats()} == {True}
    # It begins at its start position each time.
    _, again = await scene.subscribe("name", durable=False, start=at_position(entries[1], inclusive=False))
    assert again.take() == entries[2:]
    durable.leave()
    assert scene.stats("name").mark_delete == entries[2]


async def test_a_reader_begins_within_a_batch() -> None:
    """SUB-7"""
    scene = Scene()
    batch = scene.log.add(5, batch=True)
    single = scene.log.add()
    _, after = await scene.subscribe("a", durable=False, start=at_position(batch, 1, inclusive=False))
    _, at = await scene.subscribe("b", durable=False, start=at_position(batch, 4))
    _, first = await scene.subscribe("c", durable=False, start=at_position(batch, 0))
    _, last = await scene.subscribe("d", durable=False, start=at_position(batch, 4, inclusive=False))
    _, alone = await scene.subscribe("e", durable=False, start=at_position(single, 3))
    _, behind = await scene.subscribe("f", durable=False, start=at_position(single, 0, inclusive=False))
    await settle()
    assert [(position, bits) for position, _, _, bits in after.delivered] == [(batch, 0b11), (single, 0)]
    assert [(position, bits) for position, _, _, bits in at.delivered] == [(batch, 0b1111), (single, 0)]
    assert [(position, bits) for position, _, _, bits in first.delivered] == [(batch, 0), (single, 0)]
    assert last.positions == alone.positions == [single]
    assert behind.positions == []
    assert after.consumer is not None
    reported = after.consumer.find_epoch_start()
    assert reported is not None
    assert (reported.ledger_id, reported.entry_id, reported.batch_index) == (*batch, 1)


async def test_seek_and_reset_move_to_an_id_or_a_time() -> None:
    """SUB-9"""
    scene = Scene()
    entries = [scene.log.add(time_ms=1000 * number) for number in range(6)]
    consumer, gets = await scene.subscribe()
    assert gets.take() == entries
    ack(consumer, entries[5], cumulative=True)
    before = consumer.epoch
    await consumer.seek(at_position(entries[2]))
    assert gets.epochs == [(consumer.epoch, consumer.epoch)]
    assert consumer.epoch > before
    assert scene.cursors.cursors["s"].moves == 1
    # The permits ended with the epoch, and late ones of it count for nothing.
    consumer.flow(before, 100)
    assert gets.take() == []
    consumer.flow(consumer.epoch, 100)
    assert gets.take() == entries[2:]
    await consumer.seek(at_time(3500))
    consumer.flow(consumer.epoch, 100)
    assert gets.take() == entries[4:]
    await consumer.seek(at_time(99_000))
    consumer.flow(consumer.epoch, 100)
    assert gets.take() == []
    await scene.subscriptions.reset("s", EARLIEST)
    consumer.flow(consumer.epoch, 100)
    assert gets.take() == entries
    # In a batch.
    batch = scene.log.add(4, batch=True)
    await consumer.seek(at_position(batch, 2))
    consumer.flow(consumer.epoch, 100)
    assert [(position, bits) for position, _, _, bits in gets.delivered[-1:]] == [(batch, 0b11)]


async def test_redelivery_of_a_trimmed_entry_redelivers_no_others() -> None:
    scene = Scene(per_ledger=2)
    entries = scene.add(6)
    consumer, sink = await scene.subscribe(kind=SHARED)
    assert sink.positions == entries
    ack(consumer, *entries[:2])
    for trimmed in entries[:2]:
        del scene.log.entries[trimmed]
    redeliver(consumer, entries[0])
    await settle()
    assert sink.positions == entries
    redeliver(consumer)
    consumer.flow(consumer.epoch, 10)
    await settle()
    assert sink.positions == entries + entries[2:]


async def test_consumers_that_join_while_it_is_moved_do_not_wait_for_each_other() -> None:
    scene = Scene()
    scene.add(3)
    consumer, _ = await scene.subscribe(kind=SHARED)
    gate = scene.cursors.cursors["s"].gate = asyncio.Event()
    async with asyncio.timeout(30):
        changes = [asyncio.create_task(scene.subscriptions.reset("s", EARLIEST)) for _ in range(2)]
        await settle()
        joining = [asyncio.create_task(scene.subscribe(kind=SHARED)) for _ in range(3)]
        await settle()
        assert consumer.subscription.consumers == [consumer]
        gate.set()
        await asyncio.gather(*changes, *joining)
    assert scene.subscriptions.consumers == 4


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_late_acks_count_after_a_redelivery_and_not_after_a_seek(kind: SubscriptionType) -> None:
    """SUB-9, CHK-52"""
    scene = Scene()
    entries = scene.add(4)
    consumer, gets = await scene.subscribe(kind=kind)
    assert gets.take() == entries
    old = consumer.epoch
    cursor = scene.cursors.cursors["s"]
    cursor.gate = asyncio.Event()
    seeking = asyncio.create_task(consumer.seek(EARLIEST))
    await settle()
    for cumulative in (True, False):  # while the cursor is being moved
        with pytest.raises(BrokerError) as stale:
            ack(consumer, entries[3], epoch=old, cumulative=cumulative)
        assert stale.value.code == ErrorCode.STALE_EPOCH
    cursor.gate.set()
    await seeking
    with pytest.raises(BrokerError) as stale:
        ack(consumer, entries[3], epoch=old, cumulative=True)
    assert stale.value.code == ErrorCode.STALE_EPOCH
    assert scene.stats().backlog_entries == 4
    consumer.flow(consumer.epoch, 10)
    await settle()
    assert gets.take() == entries
    # A redelivery begins an epoch, too, and what was processed before it still counts.
    old = consumer.epoch
    redeliver(consumer)
    consumer.redeliver(old, [])  # requested before, and done
    assert consumer.epoch == old + 1
    assert consumer.acknowledged_from == old
    ack(consumer, entries[1], epoch=old)
    consumer.flow(consumer.epoch, 10)
    await settle()
    assert gets.take() == [entries[0], entries[2], entries[3]]


async def test_late_acks_do_not_count_after_a_take_over() -> None:
    """SUB-9, CHK-52"""
    scene = Scene()
    entries = scene.add(3)
    old, had = await scene.subscribe(kind=FAILOVER, priority=1)
    epoch = old.epoch
    assert had.take() == entries
    _, gets = await scene.subscribe(kind=FAILOVER, priority=0)
    with pytest.raises(BrokerError) as stale:
        ack(old, entries[2], epoch=epoch, cumulative=True)
    assert stale.value.code == ErrorCode.STALE_EPOCH
    assert gets.take() == entries
    assert scene.stats().backlog_entries == 3


async def test_acks_survive_reconnect_unless_another_consumer_was_active() -> None:
    """SUB-9, CHK-52"""
    scene = Scene()
    entries = scene.add(8)
    a, _ = await scene.subscribe(kind=FAILOVER, consumer="a")
    known = a.moves_and_take_overs
    a.leave()
    # Nobody else was served: what it had may be acknowledged.
    a, _ = await scene.subscribe(kind=FAILOVER, consumer="a")
    assert a.moves_and_take_overs == known
    ack(a, entries[0])
    b, gets_b = await scene.subscribe(kind=FAILOVER, consumer="b")
    a.leave()
    assert gets_b.active == [False, True]
    known_by_b = b.moves_and_take_overs
    assert gets_b.epochs  # it was reported
    a, _ = await scene.subscribe(kind=FAILOVER, consumer="a")
    assert a.moves_and_take_overs != known
    with pytest.raises(BrokerError) as stale:
        ack(a, entries[7], cumulative=True)
    assert stale.value.code == ErrorCode.STALE_EPOCH
    assert scene.stats().backlog_entries == 7
    a.leave()
    b.leave()
    # It is known when there is nobody for a while, and for a consumer of another type.
    b, _ = await scene.subscribe(kind=EXCLUSIVE, consumer="b")
    assert b.moves_and_take_overs == known_by_b
    await b.seek(LATEST)
    assert b.moves_and_take_overs not in (known, known_by_b)


async def test_late_seek_is_refused_after_a_newer_seek() -> None:
    """SUB-9"""
    scene = Scene()
    entries = scene.add(3)
    a, _ = await scene.subscribe(kind=FAILOVER, priority=1, consumer="a")
    known = a.moves_and_take_overs
    await a.seek(LATEST, known)
    for late in (known, known):
        with pytest.raises(BrokerError) as stale:
            await a.seek(EARLIEST, late)
        assert stale.value.code == ErrorCode.STALE_EPOCH
    assert scene.stats().backlog_entries == 0
    # A take-over moves nothing, and is not reported to inactive consumers.
    known = a.moves_and_take_overs
    b, gets = await scene.subscribe(kind=FAILOVER, priority=0, consumer="b")
    assert b.moves_and_take_overs != known
    await a.seek(EARLIEST, known)
    b.flow(b.epoch, 10)
    assert gets.take() == entries
    # A request without a number of moves is not checked.
    await a.seek(LATEST)
    assert scene.stats().backlog_entries == 0


async def test_one_entry_alone_fills_no_bound_however_many_messages_it_has() -> None:
    """ACK-3"""
    scene = Scene(max_unacked_messages_per_consumer=100, max_unacked_messages_per_subscription=200)
    huge = scene.log.add(300_000, batch=True)
    consumer, gets = await scene.subscribe(kind=SHARED, permits=10)
    assert gets.take() == [huge]  # with any number of permits
    other, gets_other = await scene.subscribe(kind=SHARED, permits=1000)
    entries = scene.add(40)
    await settle()
    assert gets_other.take() == entries
    # Its own consumer waits, and goes on when that is acknowledged and handed out.
    assert scene.stats().consumers[0].permits == 10 - 300_000
    consumer.flow(consumer.epoch, 300_000)
    ack(other, *entries)
    ack_messages(consumer, huge, 300_000, *range(299_990))
    assert scene.stats().unacked_messages == 10
    more = scene.add(10)
    assert sorted(gets.positions + gets_other.positions) == more
    assert gets.positions
    ack_messages(consumer, huge, 300_000, *range(299_990, 300_000))
    assert (scene.stats().unacked_messages, scene.stats().backlog_entries) == (10, 10)


async def test_a_reader_that_is_closed_leaves_nothing() -> None:
    """SUB-7"""
    scene = Scene()
    entries = scene.add(3)
    for _ in range(5):
        reader, gets = await scene.subscribe("r", durable=False, start=at_position(entries[1]))
        assert gets.positions == entries[1:]  # at its own start position
        reader.when_saved(lambda _: None)
        reader.leave()
    assert not scene.subscriptions._loaded
    assert scene.subscriptions.stats() == []


async def test_shared_seek_starts_new_epoch_and_clears_pending_acks() -> None:
    """SUB-9, CHK-52"""
    scene = Scene()
    entries = scene.add(4)
    one, gets_one = await scene.subscribe(kind=SHARED, permits=2)
    two, gets_two = await scene.subscribe(kind=SHARED, permits=1)
    redeliver(one, entries[0])
    old = one.epoch
    await one.seek(LATEST)
    assert len(gets_one.epochs) == len(gets_two.epochs) == 1
    for consumer, sink in ((one, gets_one), (two, gets_two)):
        sink.take()
        consumer.flow(consumer.epoch, 10)
    await settle()
    assert gets_one.take() + gets_two.take() == []
    # A redelivery requested before the seek names entries that no consumer has any more.
    one.redeliver(old, [EntryRange(ledger_id=7, first_entry_id=0, last_entry_id=9)])
    await settle()
    stats = scene.stats()
    assert (stats.redelivery_entries, stats.unacked_messages, stats.backlog_entries) == (0, 0, 0)
    new = scene.add(2)
    assert sorted(gets_one.take() + gets_two.take()) == new


async def test_seek_discards_entries_of_a_read_in_flight() -> None:
    """CHK-52"""
    scene = Scene()
    entries = scene.add(5)
    consumer, gets = await scene.subscribe(permits=0)
    scene.log.is_cached = False
    scene.log.gate = asyncio.Event()
    consumer.flow(consumer.epoch, 10)
    await settle()
    await consumer.seek(at_position(entries[3]))
    consumer.flow(consumer.epoch, 10)
    scene.log.gate.set()
    await settle()
    assert gets.take() == entries[3:]


async def test_skip_skip_all_and_expire_acknowledge_for_good() -> None:
    """SUB-9"""
    scene = Scene(per_ledger=3)
    now = scene.clock.time_ms()
    entries = [scene.log.add(time_ms=now - 60_000 + 10_000 * number) for number in range(6)]
    await scene.subscriptions.create("s", EARLIEST)
    consumer, gets = await scene.subscribe(permits=2)
    assert gets.take() == entries[:2]
    ack(consumer, entries[2])
    assert await scene.subscriptions.skip("s", 2) == 2
    assert scene.stats().mark_delete == entries[2]
    assert await scene.subscriptions.expire("s", 15) == 2  # that of 30 s and that of 20 s
    consumer.flow(consumer.epoch, 10)
    assert gets.take() == [entries[5]]
    more = scene.add(4)
    assert gets.take() == more
    assert await scene.subscriptions.skip_all("s") == 5
    assert scene.stats().backlog_entries == 0
    assert await scene.subscriptions.skip("s", 3) == 0
    # Nothing goes backwards.
    assert await scene.subscriptions.expire("s", 1_000_000) == 0
    assert scene.stats().backlog_entries == 0
    with pytest.raises(BrokerError) as missing:
        await scene.subscriptions.skip_all("another")
    assert missing.value.code == ErrorCode.SUBSCRIPTION_NOT_FOUND


async def test_skipped_entries_no_longer_count_as_unacked() -> None:
    scene = Scene(max_unacked_messages_per_consumer=2)
    entries = scene.add(4)
    _, gets = await scene.subscribe(kind=SHARED)
    assert gets.take() == entries[:2]
    await scene.subscriptions.skip_all("s")
    assert scene.stats().unacked_messages == 0
    new = scene.add(1)
    assert gets.take() == new


async def test_unacked_limit_blocks_one_consumer_and_leaving_redelivers() -> None:
    """ACK-3"""
    scene = Scene(max_unacked_messages_per_consumer=3)
    one, gets_one = await scene.subscribe(kind=SHARED)
    two, gets_two = await scene.subscribe(kind=SHARED, permits=0)
    entries = scene.add(6)
    assert gets_one.take() == entries[:3]
    reason = scene.stats().consumers[0].reason
    assert reason is not None
    assert "max_unacked_messages_per_consumer" in reason.text
    # It waits, and others go on.
    two.flow(two.epoch, 2)
    await settle()
    assert gets_two.take() == entries[3:5]
    assert scene.stats().unacked_messages == 5
    ack(one, entries[1])
    await settle()
    assert gets_one.take() == entries[5:]
    # It leaves: what it held goes to others, in order.
    one.leave()
    two.flow(two.epoch, 100)
    await settle()
    assert [(position, count) for position, _, count, _ in gets_two.delivered] == [(entries[0], 0)]
    ack(two, *entries[3:5])
    await settle()
    assert gets_two.take() == [entries[0], entries[2], entries[5]]


@pytest.mark.parametrize("durable", [True, False])
async def test_trimmed_entries_are_not_unacknowledged_any_more(durable: bool) -> None:
    """ACK-3, CHK-66: a consumer at its bound, whose entries are deleted, could acknowledge them in vain for ever."""
    scene = Scene(per_ledger=2, max_unacked_messages_per_consumer=2)
    entries = scene.add(6)
    consumer, sink = await scene.subscribe(kind=SHARED, durable=durable)
    await settle()
    assert sink.take() == entries[:2]
    for trimmed in entries[:2]:
        del scene.log.entries[trimmed]
    ack(consumer, *entries[:2])
    await settle()
    assert sink.take() == []
    consumer.subscription.cursor.drop_trimmed_ledgers()
    scene.subscriptions.release_trimmed_entries()
    await settle()
    assert sink.take() == entries[2:4]
    assert scene.stats(durable=durable).unacked_messages == 2


async def test_a_seek_does_not_wait_for_the_retry_of_a_failed_read() -> None:
    scene = Scene()
    entries = scene.add(4)
    scene.log.fails = BrokerError(ErrorCode.PERSISTENCE_ERROR, "no bookie answers")
    consumer, sink = await scene.subscribe()
    await settle()
    assert "no bookie answers" in scene.stats().blocked_by
    scene.log.fails = None
    await consumer.seek(at_position(entries[2]))
    consumer.flow(consumer.epoch, 10)
    await settle()
    assert sink.take() == entries[2:]
    assert "reading failed" not in scene.stats().blocked_by


async def test_lost_entries_that_wait_for_redelivery_are_skipped_once() -> None:
    """CHK-67: though another one that was requested with them can't be read at first."""
    scene = Scene()
    entries = scene.add(4)
    consumer, sink = await scene.subscribe(kind=SHARED)
    await settle()
    assert sink.take() == entries
    scene.log.lost.append(entries[0])
    read_at = scene.log.read_at

    async def read(positions: Sequence[Position], max_bytes: int | None = None) -> list[LogEntry | None]:
        if entries[0] not in positions and fails:
            raise BrokerError(ErrorCode.PERSISTENCE_ERROR, "no bookie answers")
        return await read_at(positions, max_bytes)

    scene.log.read_at = read  # type: ignore[method-assign]
    fails = True
    redeliver(consumer)
    consumer.flow(consumer.epoch, 10)
    await settle()
    dispatcher = consumer.subscription.dispatcher
    assert dispatcher is not None
    assert dispatcher.skipped_entries == 1
    assert scene.stats().redelivery_entries == 3
    fails = False
    scene.clock.advance(1)
    await settle()
    assert sink.take() == entries[1:]
    assert dispatcher.skipped_entries == 1


async def test_a_shared_subscription_as_a_whole_holds_up_to_a_bound() -> None:
    """ACK-3"""
    scene = Scene(max_unacked_messages_per_subscription=4)
    one, gets_one = await scene.subscribe(kind=SHARED)
    _, gets_two = await scene.subscribe(kind=SHARED)
    entries = scene.add(6)
    assert sorted(gets_one.positions + gets_two.positions) == entries[:4]
    assert "max_unacked_messages_per_subscription" in scene.stats().blocked_by
    # Whoever acknowledges, and though it is another's.
    ack(one, gets_two.positions[0])
    await settle()
    assert sorted(gets_one.positions + gets_two.positions) == entries[:5]


async def test_permits_count_messages_and_redelivered_batch_omits_acked_ones() -> None:
    scene = Scene(max_unacked_messages_per_consumer=10)
    batch = scene.log.add(4, batch=True)
    other = scene.log.add(9, batch=True)
    third = scene.log.add(1)
    consumer, gets = await scene.subscribe(kind=SHARED, permits=5)
    # An entry goes out whole while there is a permit.
    assert gets.take() == [batch, other]
    assert scene.stats().consumers[0].permits == -8
    assert scene.stats().unacked_messages == 13
    ack_messages(consumer, batch, 4, 0, 3)
    ack_messages(consumer, batch, 4, 3)
    assert scene.stats().unacked_messages == 11
    redeliver(consumer, batch)
    consumer.flow(consumer.epoch, 20)
    await settle()
    assert gets.delivered == [(batch, consumer.epoch, 1, 0b1001)]
    gets.take()
    ack_messages(consumer, batch, 4, 1, 2)
    await settle()
    assert gets.take() == [third]
    assert scene.stats().unacked_messages == 10
    assert scene.stats().backlog_entries == 2


async def test_redelivery_to_one_consumer_is_everything_in_order_in_a_new_epoch_and_counts() -> None:
    """CHK-52"""
    scene = Scene()
    entries = scene.add(5)
    consumer, gets = await scene.subscribe(permits=4)
    ack(consumer, entries[1])
    gets.take()
    redeliver(consumer, entries[3])
    redelivered = consumer.epoch
    consumer.redeliver(redelivered - 1, [])  # requested before, and done
    assert consumer.epoch == redelivered
    consumer.flow(consumer.epoch, 100)
    assert gets.delivered == [
        (entries[0], consumer.epoch, 1, 0),
        (entries[2], consumer.epoch, 1, 0),
        (entries[3], consumer.epoch, 1, 0),
        (entries[4], consumer.epoch, 0, 0),
    ]
    redeliver(consumer)
    gets.take()
    consumer.flow(consumer.epoch, 2)
    assert [count for _, _, count, _ in gets.delivered] == [2, 2]
    redeliver(consumer)
    gets.take()
    consumer.flow(consumer.epoch, 100)
    assert [count for _, _, count, _ in gets.delivered] == [3, 3, 2, 1]


async def test_invalid_acks_are_refused_and_missing_entries_not_counted() -> None:
    scene = Scene()
    entries = scene.add(3)
    consumer, _ = await scene.subscribe(kind=SHARED)
    far = 2**64 - 1
    for bad in (
        EntryRange(ledger_id=far, first_entry_id=0, last_entry_id=0),
        EntryRange(ledger_id=7, first_entry_id=5, last_entry_id=4),
        EntryRange(ledger_id=7, first_entry_id=0, last_entry_id=far),
    ):
        with pytest.raises(BrokerError) as refusal:
            consumer.acknowledge(Acknowledge(epoch=consumer.epoch, entries=[bad]))
        assert refusal.value.code == ErrorCode.INVALID_ARGUMENT
    for size, indexes in ((0, (0,)), (2**31, (0,)), (3, ()), (3, (3,))):
        with pytest.raises(BrokerError) as refusal:
            ack_messages(consumer, entries[0], size, *indexes)
        assert refusal.value.code == ErrorCode.INVALID_ARGUMENT
    # Only entries of the log count. A request for a receipt gets an error for the others.
    with pytest.raises(BrokerError) as refusal:
        consumer.acknowledge(
            Acknowledge(
                epoch=consumer.epoch,
                entries=[
                    EntryRange(ledger_id=99, first_entry_id=0, last_entry_id=2**62),
                    EntryRange(ledger_id=7, first_entry_id=1, last_entry_id=2**62),
                ],
            )
        )
    assert refusal.value.code == ErrorCode.INVALID_ARGUMENT
    stats = scene.stats()
    assert (stats.backlog_entries, stats.unacked_messages) == (1, 1)
    # Repeated acknowledgements count once.
    overlapping = [EntryRange(ledger_id=7, first_entry_id=0, last_entry_id=last) for last in (2, 0, 1, 2**60)]
    assert check_ranges(overlapping, scene.log) == [(7, 0, 2)]
    apart = [EntryRange(ledger_id=7, first_entry_id=one, last_entry_id=one) for one in (2, 0)]
    assert check_ranges(apart, scene.log) == [(7, 0, 0), (7, 2, 2)]
    other, _ = await scene.subscribe("other")
    with pytest.raises(BrokerError) as refusal:
        ack(other, Position(8, 0), cumulative=True)
    assert refusal.value.code == ErrorCode.INVALID_ARGUMENT
    with pytest.raises(BrokerError) as refusal:
        ack(other, entries[0], entries[1], cumulative=True)
    assert refusal.value.code == ErrorCode.INVALID_ARGUMENT
    assert scene.stats("other").backlog_entries == 3


async def test_another_incarnation_is_refused() -> None:
    """TOP-7"""
    scene = Scene()
    await _refused(ErrorCode.INCARNATION_CHANGED, scene, incarnation="another")
    await scene.subscribe(incarnation="one")


async def test_ids_from_before_the_topic_was_made_are_refused_and_move_nothing() -> None:
    """TOP-7, CHK-57"""
    scene = Scene()
    scene.log.floor = 6
    entries = scene.add(3)
    consumer, _ = await scene.subscribe(kind=SHARED)
    single, _ = await scene.subscribe("single")
    old = Position(6, 2)
    start = StartAt(message_id=StartMessageId(ledger_id=6, entry_id=2, batch_index=-1))
    epochs = consumer.epoch, single.epoch

    def refused(request: Callable[[], object]) -> None:
        with pytest.raises(BrokerError) as refusal:
            request()
        assert refusal.value.code == ErrorCode.INCARNATION_CHANGED

    refused(lambda: ack(consumer, old))
    refused(lambda: ack_messages(consumer, old, 3, 0))
    refused(lambda: ack(single, old, cumulative=True))
    refused(lambda: ack(single, old, cumulative=True, epoch=0))
    for change in (consumer.seek(start), scene.subscriptions.reset("s", start), scene.subscriptions.create("t", start)):
        with pytest.raises(BrokerError) as refusal:
            await change
        assert refusal.value.code == ErrorCode.INCARNATION_CHANGED
    await _refused(ErrorCode.INCARNATION_CHANGED, scene, name="r", durable=False, start=start)
    assert (consumer.epoch, single.epoch) == epochs
    assert scene.stats().backlog_entries == scene.stats("single").backlog_entries == 3
    # What came along with it counts.
    refused(lambda: ack(consumer, old, entries[1]))
    assert scene.stats().backlog_entries == 2
    # Before everything: that is so in any incarnation.
    await consumer.seek(StartAt(message_id=StartMessageId(ledger_id=-1, entry_id=-1, batch_index=-1)))
    await settle()
    assert scene.stats().backlog_entries == 3


async def test_a_subscription_is_deleted_by_its_last_consumer_or_the_admin() -> None:
    scene = Scene()
    entries = scene.add(2)
    one, _ = await scene.subscribe(kind=SHARED)
    two, gets_two = await scene.subscribe(kind=SHARED)
    with pytest.raises(BrokerError) as refusal:
        await one.unsubscribe()
    assert refusal.value.code == ErrorCode.NOT_ALLOWED
    with pytest.raises(BrokerError) as refusal:
        await scene.subscriptions.delete("s")
    assert refusal.value.code == ErrorCode.CONSUMER_BUSY
    one.leave()
    scene.cursors.fails = BrokerError(ErrorCode.METADATA_ERROR, "not now")
    with pytest.raises(BrokerError):
        await two.unsubscribe()
    ack(two, entries[0])
    assert scene.stats().backlog_entries == 1
    scene.cursors.fails = None
    await two.unsubscribe()
    assert two.has_left
    assert scene.subscriptions.stats() == []
    _, again = await scene.subscribe(kind=SHARED)
    await settle()
    assert again.positions == entries
    await scene.subscriptions.delete("s", force=True)
    assert [problem.code for problem in again.problems if problem] == [ErrorCode.SUBSCRIPTION_NOT_FOUND]
    assert gets_two.problems == []
    assert scene.subscriptions.stats() == []


async def test_failed_reads_are_retried_and_reported_in_stats() -> None:
    scene = Scene()
    entries = scene.add(2)
    scene.log.fails = BrokerError(ErrorCode.PERSISTENCE_ERROR, "no bookie answers")
    _, gets = await scene.subscribe()
    await settle()
    assert gets.positions == []
    assert "no bookie answers" in scene.stats().blocked_by
    scene.log.fails = None
    scene.clock.advance(10)
    await settle()
    assert gets.take() == entries
    # The same for what is to come again.
    shared, gets = await scene.subscribe("shared", SHARED)
    await settle()
    scene.log.fails = BrokerError(ErrorCode.PERSISTENCE_ERROR, "no bookie answers")
    gets.take()
    redeliver(shared)
    shared.flow(shared.epoch, 10)
    await settle()
    scene.log.fails = None
    scene.clock.advance(10)
    await settle()
    assert gets.take() == entries


async def test_entries_added_during_a_read_are_delivered() -> None:
    scene = Scene()
    scene.add(1)
    scene.log.is_cached = False
    scene.log.gate = asyncio.Event()
    _, gets = await scene.subscribe()
    await settle()
    new = scene.add(3)  # while it reads
    scene.log.gate.set()
    await settle()
    assert gets.positions[1:] == new


async def _one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    await scene.subscribe("broken")
    _, gets = await scene.subscribe("other")

    def fails(position: Position) -> bool:
        raise RuntimeError("a mistake")

    broken = scene.cursors.cursors["broken"]
    broken.is_acknowledged = fails  # type: ignore[method-assign]
    broken.state.restore_messages(Position(9, 9), 1, 2)  # so each entry is looked up in it
    entries = scene.add(2)
    assert gets.positions == entries
    assert "subscription broken failed to deliver" in caplog.text


async def test_a_subscription_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    await _one_that_fails(caplog)


async def test_a_stream_that_is_behind_holds_up_its_own_consumers_alone() -> None:
    scene = Scene()
    slow, gets_slow = await scene.subscribe(kind=SHARED)
    _, gets_other = await scene.subscribe("other", SHARED)
    gets_slow.outbox_capacity.free = 0
    entries = scene.add(3)
    assert gets_slow.take() == []
    assert "can't keep up" in scene.stats().blocked_by
    assert gets_other.take() == entries
    gets_slow.outbox_capacity.free = 10_000
    slow.on_outbox_capacity()
    await settle()
    assert gets_slow.take() == entries


async def test_close_ends_consumers_and_fails_pending_acks_and_seeks() -> None:
    scene = Scene()
    scene.add(2)
    consumer, gets = await scene.subscribe()
    answers: list[BrokerError | None] = []
    cursor = scene.cursors.cursors["s"]
    cursor.gate = asyncio.Event()
    consumer.when_saved(answers.append)
    seeking = asyncio.create_task(consumer.seek(EARLIEST))
    await settle()
    lost = TopicUnloaded("another broker has it")
    await scene.subscriptions.close(lost)
    assert gets.problems == [lost.problem]
    assert answers == [lost]
    with pytest.raises(TopicUnloaded):
        await seeking
    await _refused(ErrorCode.SERVICE_NOT_READY, scene)
    consumer.leave()
    consumer.flow(1, 1)


async def test_receipts_are_answered_by_as_few_saves_as_there_can_be() -> None:
    scene = Scene()
    entries = scene.add(3)
    consumer, _ = await scene.subscribe()
    cursor = scene.cursors.cursors["s"]
    cursor.gate = asyncio.Event()
    answers: list[BrokerError | None] = []
    ack(consumer, entries[0])
    consumer.when_saved(answers.append)
    await settle()
    for entry in entries[1:]:
        ack(consumer, entry)
        consumer.when_saved(answers.append)
    assert answers == []
    cursor.gate.set()
    await settle()
    assert answers == [None] * 3
    assert cursor.saves == 2
    cursor.fails = BrokerError(ErrorCode.PERSISTENCE_ERROR, "no")
    consumer.when_saved(answers.append)
    consumer.leave()
    await settle()
    assert answers[3:] == [cursor.fails]
    assert not scene.subscriptions._loaded  # it stayed for the receipt alone


async def test_seek_completes_after_its_caller_is_cancelled() -> None:
    scene = Scene()
    entries = scene.add(3)
    consumer, gets = await scene.subscribe()
    ack(consumer, entries[2], cumulative=True)
    cursor = scene.cursors.cursors["s"]
    cursor.gate = asyncio.Event()
    seeking = asyncio.create_task(consumer.seek(EARLIEST))
    await settle()
    seeking.cancel()
    await settle()
    assert scene.stats().blocked_by == ""
    cursor.gate.set()
    await settle()
    assert cursor.moves == 1
    consumer.flow(consumer.epoch, 10)
    assert gets.positions[-3:] == entries


async def test_deliveries_are_counted() -> None:
    scene = Scene()
    scene.log.add(5, batch=True)
    consumer, _ = await scene.subscribe(kind=SHARED)
    redeliver(consumer)
    consumer.flow(consumer.epoch, 10)
    await settle()
    [stats] = scene.subscriptions.stats()
    assert stats.counters.delivered.messages == 10
    assert stats.counters.delivered.entries == 2
    assert stats.counters.redelivered_messages == 5
    assert stats.consumers[0].counters.delivered.messages == 10
    assert (await scene.subscriptions.measure_backlog("s")).messages == 5
    assert scene.subscriptions.consumers == 1


async def test_messages_that_are_acknowledged_behind_others_are_no_backlog() -> None:
    """ADM-3: exactly, unless a whole batch is acknowledged: it counts as one message."""
    scene = Scene()
    entries = [scene.log.add() for _ in range(10)]
    batches = [scene.log.add(5, batch=True) for _ in range(2)]
    consumer, _ = await scene.subscribe(kind=SHARED)

    async def measure() -> int:
        return (await scene.subscriptions.measure_backlog("s")).messages

    assert await measure() == 20
    ack(consumer, *entries[1:9])
    assert await measure() == 12
    ack_messages(consumer, batches[0], 5, 0, 3)
    assert await measure() == 10
    ack(consumer, entries[0])
    assert await measure() == 9
    ack(consumer, batches[1])
    assert (await measure(), scene.stats().backlog_entries) == (8, 2)


async def _log_has_ended(kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch) -> None:
    def given_up(start: Position, max_entries: int, max_bytes: int) -> None:
        raise TopicUnloaded("fenced")

    scene = Scene()
    positions = scene.add(3)
    consumer, sink = await scene.subscribe(kind=kind, permits=1)
    with monkeypatch.context() as ended:
        ended.setattr(scene.log, "read_nowait", given_up)
        consumer.flow(consumer.epoch, 10)
        ack(consumer, positions[0])
        redeliver(consumer)
        await settle()
        assert sink.positions == positions[:1]
        assert consumer.subscription.dispatcher is not None
        assert consumer.subscription.dispatcher.read_error == "fenced"
    consumer.flow(consumer.epoch, 10)
    assert sink.positions == positions


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_consumer_requests_on_a_fenced_log_raise_no_error(
    kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the topic is reported to the consumer a moment later. The requests are not wrong."""
    await _log_has_ended(kind, monkeypatch)
