"""Topics that have lost entries on all bookies: they open, say what is lost, and go on."""

from __future__ import annotations

import pytest

from magnetar_broker.errors import BrokerError, LostEntry
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.lost_entries import LostEntries
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_protos.broker_pb2 import ErrorCode, SubscriptionType
from magnetar_wire.limits import MAX_BATCH_MESSAGES
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.log_scene import Scene, numbered, payload, running_log_scene
from tests.unit.broker.subscription_scene import Scene as SubscriptionScene
from tests.unit.broker.subscription_scene import ack, at_time, settle

WIDE = ManagedLedgerSettings(managed_ledger_min_ledger_rollover_time_minutes=0)


def destroy(scene: Scene, *positions: Position) -> None:
    """On all bookies."""
    for ledger_id, entry_id in positions:
        for holder in scene.holders(ledger_id, entry_id):
            scene[holder].damage(ledger_id, entry_id)


async def read_what_is_left(scene: Scene, log: ManagedLedger) -> list[LogEntry]:
    found: list[LogEntry] = []
    place = log.before_first.next
    while True:
        try:
            more = await scene.patiently(log.read(place, 100, 1_000_000))
        except LostEntry as error:
            place = log.first_after(error.position)
            continue
        if not more:
            return found
        found += more
        place = log.first_after(more[-1].position)


async def test_a_ledger_that_its_broker_closed_is_opened_without_reading_an_entry() -> None:
    """CHK-67: what the list says of it stands in the metadata, so damage at its ends costs nothing but the entries."""

    async with running_log_scene() as scene:
        log = await scene.open(options=WIDE, cache_bytes=0)
        await scene.append(log, *numbered(4), messages=3)
        known = log.ledger_list.ledgers[-1]
        places = [Position(known.ledger_id, entry_id) for entry_id in range(4)]
        await scene.patiently(log.close())
        destroy(scene, *places)
        log = await scene.open(options=WIDE, cache_bytes=0)
        assert log.next_index == 12
        assert log.lost_entries.count == 0
        assert log.ledger_list.ledgers[-1] == known
        assert known.first_time_ms > 0
        await scene.append(log, b"goes on")
        (entry,) = await read_what_is_left(scene, log)
        assert (payload(entry), entry.index) == (b"goes on", 12)
        assert [position for position, _ in log.lost_entries.list_known()] == places


@pytest.mark.parametrize("lost", [[4], [0], [0, 4], [3, 4], [2, 4], [0, 1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("bookies", [1, 3])
async def test_a_topic_opens_whichever_ends_of_its_last_ledger_are_lost(lost: list[int], bookies: int) -> None:
    """CHK-67, ADM-3; MSG-5: no index is given twice, whatever the lost entries held."""

    async with running_log_scene(bookies) as scene:
        options = ManagedLedgerSettings(
            managed_ledger_default_ensemble_size=bookies,
            managed_ledger_default_write_quorum=bookies,
            managed_ledger_default_ack_quorum=min(2, bookies),
        )
        log = await scene.open(options=options, cache_bytes=0)
        await scene.append(log, *numbered(5), messages=10)
        entries = await scene.read_all(log)
        places = [entry.position for entry in entries]
        given = log.next_index
        log.abandon()
        destroy(scene, *(places[number] for number in lost))
        log = await scene.open(await scene.another(), options=options, cache_bytes=0)
        behind = len([number for number in lost if all(later in lost for later in range(number, 5))])
        assert given <= log.next_index <= given + behind * MAX_BATCH_MESSAGES
        if not behind:
            assert log.next_index == given
        assert log.last == places[-1]
        ends = [number for number in (0, 4) if number in lost]
        assert {places[number] for number in ends} <= {position for position, _ in log.lost_entries.list_known()}
        assert log.lost_entries.count >= len(ends)
        await scene.append(log, b"goes on")
        found = await read_what_is_left(scene, log)
        left = [entry for number, entry in enumerate(entries) if number not in lost]
        assert [entry.stored for entry in found[:-1]] == [entry.stored for entry in left]
        assert payload(found[-1]) == b"goes on"
        assert found[-1].index >= given
        assert found[-1].broker_time_ms >= max([entry.broker_time_ms for entry in left], default=0)
        assert {position for position, _ in log.lost_entries.list_known()} == {places[number] for number in lost}
        # A later opening finds the same, without the entries.
        next_index = log.next_index
        await scene.patiently(log.close())
        assert (await scene.open(options=options)).next_index == next_index


async def test_an_entry_that_can_t_be_read_now_is_not_lost() -> None:
    """CHK-67, CHK-15: the topic is not opened at a wrong index because bookies are away."""

    async with running_log_scene() as scene:
        log = await scene.open(options=WIDE, cache_bytes=0)
        await scene.append(log, *numbered(3))
        place = log.last
        log.abandon()
        await scene.patiently(scene.client.recover(place.ledger_id))
        first, *others = scene.holders(place.ledger_id, place.entry_id)
        scene[first].hanging = {"read"}
        for other in others:
            scene[other].damage(*place)
        with pytest.raises(BrokerError, match="can't be opened now") as raised:
            await scene.open(await scene.another(), options=WIDE)
        assert raised.value.code == ErrorCode.PERSISTENCE_ERROR
        scene[first].hanging = set()
        log = await scene.open(await scene.another(), options=WIDE)
        assert (log.next_index, log.lost_entries.count) == (3, 0)


async def test_single_reads_name_the_entry_that_is_lost_and_give_the_others() -> None:
    """CHK-67: also where a lost entry stands between those that were asked for, or is looked at for its time."""

    async with running_log_scene() as scene:
        log = await scene.open(options=WIDE, cache_bytes=0)
        for number in range(8):
            await scene.append(log, b"%d" % number)
            scene.clock.advance(1)
        entries = await scene.read_all(log)
        places = [entry.position for entry in entries]
        destroy(scene, places[3], places[4])
        with pytest.raises(LostEntry) as raised:
            await scene.patiently(log.read_at([places[2], places[4]]))
        assert raised.value.position == places[4]
        read = await scene.patiently(log.read_at([places[2], places[5]]))
        assert [entry.position for entry in read if entry is not None] == [places[2], places[5]]
        for number, entry in enumerate(entries):
            found = await scene.patiently(log.find_first_at_time(entry.broker_time_ms))
            assert found <= places[number]
            assert not [place for place in places if found <= place < places[number] and place not in places[3:5]]
        destroy(scene, *places[5:])
        last = await scene.patiently(log.read_last_readable())
        assert last is not None
        assert last.position == places[2]


async def test_the_last_readable_entry_is_found_in_few_reads() -> None:
    """CHK-67: behind a long run of lost entries, without a read of each of them."""

    async with running_log_scene() as scene:
        log = await scene.open(options=WIDE, cache_bytes=0)
        for number in range(64):
            await scene.append(log, b"%d" % number)
        places = [entry.position for entry in await scene.read_all(log)]
        destroy(scene, *places[2:])
        last = await scene.patiently(log.read_last_readable())
        assert last is not None
        assert last.position == places[1]
        assert log.lost_entries.count < 20
        destroy(scene, *places[:2])
        assert await scene.patiently(log.read_last_readable()) is None
        assert log.lost_entries.count < 30


def test_each_lost_entry_is_counted_once_and_the_first_ones_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """CHK-67: also beyond those that are listed, in memory with a bound; then the count is a lower bound."""
    found: list[int] = []
    lost = LostEntries(TopicName.parse("t"), lambda: found.append(1))

    def read_all(entries: int, step: int = 1, ledger_id: int = 5) -> None:
        for entry_id in range(0, entries * step, step):
            lost.report(LostEntry(Position(ledger_id, entry_id), "no bookie has it"))

    for _ in range(3):
        read_all(3_000)
        assert (lost.count, len(found), len(lost.list_known())) == (3_000, 3_000, 1_000)
    assert caplog.text.count("has lost an entry") == 1_000
    assert caplog.text.count("has lost more than 1000 entries: further ones are counted, but not logged") == 1
    for _ in range(2):
        read_all(6_000, step=1_024, ledger_id=6)
        assert lost.count == len(found) == 3_000 + 4_096 - 3
    assert caplog.text.count("more entries than can be counted") == 1
    lost.forget_ledgers(5)
    assert lost.list_known() == []
    lost.forget_ledgers(6)
    read_all(10, ledger_id=7)
    assert lost.count == 3_000 + 4_096 - 3 + 10
    assert [position.ledger_id for position, _ in lost.list_known()] == [7] * 10


def test_a_lost_entry_of_a_trimmed_ledger_is_not_counted_again() -> None:
    """CHK-67: a read was in flight when its ledger was trimmed, and reports the entry afterwards."""
    lost = LostEntries(TopicName.parse("t"))
    trimmed = [LostEntry(Position(ledger_id, 4), "no bookie has it") for ledger_id in (2, 3)]
    lost.report(trimmed[1])
    lost.forget_ledgers(3)
    lost.forget_ledgers(1)
    for error in trimmed:
        lost.report(error)
    assert (lost.count, lost.list_known()) == (1, [])
    lost.report(LostEntry(Position(4, 0), "no bookie has it"))
    assert (lost.count, len(lost.list_known())) == (2, 1)


@pytest.mark.parametrize("kind", [SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED])
@pytest.mark.parametrize("lost", [[0], [5], [9], [2, 3, 4], list(range(10))], ids=str)
async def test_a_subscription_passes_over_lost_entries(kind: SubscriptionType, lost: list[int]) -> None:
    """CHK-67: it gets all others, and does not wait for what nobody has; nor does the log keep it for ever."""
    scene = SubscriptionScene()
    places = scene.add(10)
    scene.log.lost = [places[number] for number in lost]
    consumer, sink = await scene.subscribe(kind=kind)
    await settle()
    left = [place for place in places if place not in scene.log.lost]
    assert sink.positions == left
    more = scene.add(2)
    await settle()
    assert sink.positions == [*left, *more]
    ack(consumer, *left, *more)
    (stats,) = scene.subscriptions.stats()
    assert (stats.backlog_entries, stats.mark_delete) == (0, more[-1])
    await scene.subscriptions.close()


async def test_entries_that_are_lost_after_their_delivery_are_passed_over_too() -> None:
    """CHK-67: of those that are to be delivered again."""
    scene = SubscriptionScene()
    places = scene.add(6)
    consumer, _ = await scene.subscribe(kind=SubscriptionType.SHARED)
    await settle()
    consumer.leave()
    scene.log.lost = places[1:3]
    _, sink = await scene.subscribe(kind=SubscriptionType.SHARED)
    await settle()
    assert sink.positions == [places[0], *places[3:]]
    await scene.subscriptions.close()


async def test_stats_and_seeks_succeed_despite_lost_entries() -> None:
    """CHK-67: stats and seeks."""
    scene = SubscriptionScene()
    places = scene.add(6)
    consumer, _ = await scene.subscribe()
    await settle()
    consumer.leave()
    scene.log.lost = places[:2]
    assert (await scene.subscriptions.measure_backlog("s")).messages == 4
    scene.log.lost = list(places)
    assert (await scene.subscriptions.measure_backlog("s")).messages == 0
    await scene.subscriptions.reset("s", at_time(0))
    await scene.subscriptions.close()
