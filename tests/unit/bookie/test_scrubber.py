"""The scrubber: what it finds is mended, once, and slowly; and it goes on where it was."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.replication_worker import ReplicationWorker
from magnetar_bookie.auto_recovery.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar_bookie.core import scrub
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, with_bookie_replaced
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.scrubber import Scrubber
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_metadata.store import SessionState
from magnetar_protos.ledger_pb2 import ScrubPosition
from magnetar_testing.metadata import Fault
from tests.unit.bookie.repair_scene import PATIENT, Scene

# Nobody else looks for damage of itself.
ALONE = PATIENT.model_copy(update={"auditor_periodic_check_interval_seconds": 1e9})
HOURLY: dict[str, Any] = {"scrub_interval_seconds": 3600.0}


def bookie_of(of: Scene, bookie_id: str, **changed: Any) -> Bookie:
    bookie = of.bookies[bookie_id].bookie
    assert bookie is not None
    bookie.settings = BookieServerSettings.model_validate({**HOURLY, **changed})
    return bookie


async def scrubber(of: Scene, bookie_id: str, **changed: Any) -> Scrubber:
    """One that runs."""
    found = Scrubber(bookie_of(of, bookie_id, **changed), of.clock)
    of.spawn(found.run(await of.new_client()))
    return found


async def worker(of: Scene) -> None:
    client = await of.new_client()
    of.spawn(ReplicationWorker(client, BookieWatcher(client, of.settings), of.settings).run())


@pytest.mark.parametrize(
    ("position", "now_ms", "due_s"),
    [
        (ScrubPosition(), 5000, 0.0),
        (ScrubPosition(began_ms=1000, done=True), 5000, 6.0),
        (ScrubPosition(began_ms=1000, done=True), 12_000, 0.0),
        # It was broken off, and goes on.
        (ScrubPosition(began_ms=1000, ledger_id=7), 5000, 0.0),
        # The clock was set back by a year.
        (ScrubPosition(began_ms=40_000_000_000, done=True), 5000, 10.0),
    ],
)
def test_when_a_pass_is_due(position: ScrubPosition, now_ms: int, due_s: float) -> None:
    assert scrub.due_in_s(position, now_ms, 10.0) == due_s


def test_interrupted_pass_resumes_and_finished_pass_restarts() -> None:
    broken_off = ScrubPosition(began_ms=1, ledger_id=7, entry_id=3)
    assert scrub.began(broken_off, 9) is broken_off
    assert scrub.began(ScrubPosition(began_ms=1, ledger_id=7, done=True), 9) == ScrubPosition(began_ms=9)


def test_small_records_cost_time_too() -> None:
    assert scrub.pause_s(5000, 0, 0, 1.0, 1000) == 4.0
    assert scrub.pause_s(0, 3, 0, 0.0, 1000) == 3 * scrub.RECORD_COST_BYTES / 1000
    assert scrub.pause_s(0, 0, 1, 0.0, 1000) == scrub.LEDGER_COST_BYTES / 1000
    assert scrub.pause_s(5000, 0, 0, 60.0, 1000) == 0.0


@pytest.mark.parametrize("unreadable", [False, True], ids=["other bytes", "unreadable"])
async def test_damaged_record_is_detected_and_repaired(unreadable: bool) -> None:
    """CHK-28: under-replication beyond the ack quorum is found, though nobody reads the entry."""

    async with Scene(settings=ALONE) as of:
        ledger_id = await of.ledger(8)
        name = (await of.metadata(ledger_id)).bookies()[0]
        assert of.bookies[name].disk.damage(ledger_id, 5, unreadable=unreadable)
        assert not of.bookies[name].holds(ledger_id, 5)
        await worker(of)
        found = await scrubber(of, name)
        await of.until(lambda: of.whole(ledger_id), "the record is whole again")
        await of.until(of.no_tasks, "the task is done")
        bookie = of.bookies[name].bookie
        assert bookie is not None
        assert bookie.counters.damaged >= 1
        await of.until(lambda: found.position.done, "the pass is done")
        assert bookie.counters.scrubbed_records == 8


async def test_damage_is_reported_once_in_a_pass() -> None:
    async with Scene(settings=ALONE) as of:
        ledger_id = await of.ledger(1200)
        name = (await of.metadata(ledger_id)).bookies()[0]
        for entry_id in (0, 700, 1100):
            assert of.bookies[name].disk.damage(ledger_id, entry_id)
        reports = []
        report = UnderreplicatedLedgers.mark_underreplicated

        async def counted(tasks: UnderreplicatedLedgers, ledger: int, lost: Any = ()) -> None:
            reports.append(ledger)
            await report(tasks, ledger, lost)

        with patch.object(UnderreplicatedLedgers, "mark_underreplicated", counted):
            found = await scrubber(of, name, scrub_interval_seconds=100)
            await of.until(lambda: found.position.done, "the pass is done")
            assert reports == [ledger_id]
            # Nobody mended it: the next pass says so again.
            bookie = of.bookies[name].bookie
            assert bookie is not None
            await of.passes(100)
            await of.until(lambda: bookie.counters.scrub_passes == 2, "the next pass is done")
            assert reports == [ledger_id, ledger_id]


async def test_an_open_ledger_is_mended_after_its_close() -> None:
    """CHK-28, and CHK-62: the last fragment of an open ledger is left alone, however often it is reported."""
    async with Scene(settings=ALONE) as of:
        writer = await of.writer()
        for number in range(4):
            await of.over(writer.add(b"entry %d" % number))
        ledger_id = writer.ledger_id
        name = (await of.metadata(ledger_id)).bookies()[0]
        assert of.bookies[name].disk.damage(ledger_id, 2)
        before = await of.metadata(ledger_id)
        await of.auto_recovery()
        await scrubber(of, name, scrub_interval_seconds=5)
        bookie = of.bookies[name].bookie
        assert bookie is not None
        await of.until(lambda: bookie.counters.scrub_passes >= 3, "it was looked through three times")
        await of.until(of.no_tasks, "the task does not stay")
        assert await of.metadata(ledger_id) == before
        assert not of.bookies[name].holds(ledger_id, 2)
        await of.over(writer.add(b"entry 4"))
        await of.over(writer.close())
        await of.until(lambda: of.whole(ledger_id), "the record is whole again")


async def test_unrepairable_damage_creates_no_repair_task() -> None:
    """CHK-29: each pass would find it again, and a worker would end the task at once, for ever."""
    async with Scene(settings=ALONE) as of:
        # Two entries of the writer's that the recovery did not keep.
        cut_short, moved, gone = [await of.ledger(4) for _ in range(3)]
        await of.client.ledgers.change(cut_short, lambda current: replace(_existing(current), last_entry_id=1))
        name = (await of.metadata(cut_short)).bookies()[0]
        assert of.bookies[name].disk.damage(cut_short, 2)
        # Repair has put another bookie in this one's place.
        bookies = (await of.metadata(moved)).bookies()
        other = next(one for one in of.bookies if one not in bookies)
        if name in bookies:
            slot = bookies.index(name)
            await of.client.ledgers.change(moved, lambda now: with_bookie_replaced(now, 0, slot, name, other))
            assert of.bookies[name].disk.damage(moved, 1)
        # A ledger without a node.
        node = await of.store.get(paths.ledger(gone))
        assert node is not None
        await of.store.delete(paths.ledger(gone), node.version)
        of.bookies[name].disk.damage(gone, 1)
        reports = []

        async def reported(tasks: UnderreplicatedLedgers, ledger_id: int, lost: Any = ()) -> None:
            reports.append(ledger_id)

        with patch.object(UnderreplicatedLedgers, "mark_underreplicated", reported):
            await scrubber(of, name, scrub_interval_seconds=5)
            bookie = of.bookies[name].bookie
            assert bookie is not None
            await of.until(lambda: bookie.counters.scrub_passes >= 3, "it was looked through three times")
            assert bookie.counters.damaged >= 3
            assert reports == []
            # What repair may mend is reported, though damage that it may not comes before.
            assert of.bookies[name].disk.damage(cut_short, 1)
            await of.until(lambda: reports == [cut_short], "the damage is reported")


def _existing(current: LedgerMetadata | None) -> LedgerMetadata:
    assert current is not None
    return current


async def test_a_deleted_ledger_is_not_reported() -> None:
    async with Scene(settings=ALONE) as of:
        ledger_id = await of.ledger(3)
        name = (await of.metadata(ledger_id)).bookies()[0]
        bookie = bookie_of(of, name)
        assert of.bookies[name].disk.damage(ledger_id, 1)
        read = bookie.reader.read

        async def deleted_meanwhile(ledger: int, entry_ids: Any, max_bytes: int) -> Any:
            records = await read(ledger, entry_ids, max_bytes)
            await bookie.tombstone(ledger)
            return records

        with patch.object(bookie.reader, "read", deleted_meanwhile):
            found = await scrubber(of, name)
            await of.until(lambda: found.position.done, "the pass is done")
        assert await of.no_tasks()


async def test_scrubber_resumes_from_saved_position() -> None:
    """What comes last is looked at too, however often the process ends before."""
    async with Scene(settings=ALONE) as of:
        ledgers = [await of.ledger(50, ensemble=1, write=1, ack=1) for _ in range(8)]
        name = (await of.metadata(ledgers[0])).bookies()[0]
        held = [one for one in ledgers if (await of.metadata(one)).bookies()[0] == name]
        assert len(held) >= 2
        # Minutes for a ledger: its place is kept once in a minute.
        slow = {"scrub_max_bytes_per_second": 300}
        first = Scrubber(bookie_of(of, name, **slow), of.clock)
        running = of.spawn(first.run(await of.new_client()))
        await of.until(lambda: first.position.ledger_id > held[0], "the first ledger is behind it")
        await of.passes(70)
        running.cancel()
        await asyncio.wait([running])
        await of.bookies[name].go()
        await of.bookies[name].come()
        second = await scrubber(of, name)
        bookie = of.bookies[name].bookie
        assert bookie is not None
        assert second.position.ledger_id >= held[0]
        await of.until(lambda: second.position.done, "the pass is done")
        assert 0 < bookie.counters.scrubbed_records < 50 * len(held)
        assert second.position.began_ms == first.position.began_ms


async def test_it_reads_no_faster_than_it_may() -> None:
    async with Scene(settings=ALONE) as of:
        await of.ledger(100)
        found = Scrubber(bookie_of(of, "b1", scrub_max_bytes_per_second=2000), of.clock)
        began = of.clock.monotonic()
        of.spawn(found.run(await of.new_client()))
        await of.until(lambda: found.position.done, "the pass is done")
        bookie = of.bookies["b1"].bookie
        assert bookie is not None
        cost = bookie.counters.scrubbed_bytes + bookie.counters.scrubbed_records * scrub.RECORD_COST_BYTES
        assert bookie.counters.scrubbed_records > 0
        assert of.clock.monotonic() - began >= cost / 2000


async def test_it_can_be_turned_off() -> None:
    async with Scene(settings=ALONE) as of:
        await of.ledger(3)
        found = Scrubber(bookie_of(of, "b1", scrub_interval_seconds=0), of.clock)
        await of.over(found.run(await of.new_client()))
        assert found.position == ScrubPosition()


async def test_damage_is_reported_after_metadata_store_recovers() -> None:
    async with Scene(settings=ALONE) as of:
        ledger_id = await of.ledger(3)
        name = (await of.metadata(ledger_id)).bookies()[0]
        assert of.bookies[name].disk.damage(ledger_id, 1)
        client = await of.new_client()
        store = client.ledgers.store
        of.server.queue_faults(store, Fault.LOSE_REQUEST)  # type: ignore[arg-type]
        found = Scrubber(bookie_of(of, name), of.clock)
        of.spawn(found.run(client))
        await of.until(lambda: store.session.state is SessionState.SUSPENDED, "the store is away")
        await of.passes(3)
        assert not found.position.done
        of.server.resume(store)  # type: ignore[arg-type]
        await of.until(lambda: found.position.done, "the pass is done")
        assert await UnderreplicatedLedgers(of.client).list_ledger_ids() == [ledger_id]
