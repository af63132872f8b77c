"""Auto-recovery with real bookies that crash, return and lose entries; the test controls the clock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from magnetar_bookie.auto_recovery.auditor import Auditor
from magnetar_bookie.auto_recovery.auto_recovery import AutoRecovery
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.ledger_repair import repair_slot
from magnetar_bookie.auto_recovery.ledger_repair_rules import SlotRepair
from magnetar_bookie.auto_recovery.replication_worker import ReplicationWorker
from magnetar_bookie.auto_recovery.underreplicated_ledgers import (
    RepairLock,
    UnderreplicatedLedgers,
    list_repair_progress,
)
from magnetar_bookie.core.ledger_metadata import LedgerState
from magnetar_bookie.errors import LedgerDeleted
from magnetar_metadata.errors import SessionLost, StoreFull
from magnetar_metadata.store import Change, ChangeResult, SessionState
from magnetar_testing.metadata import Fault, MemoryStore
from tests.unit.bookie.repair_scene import Scene, SceneBookie


async def test_a_dead_bookies_replicas_are_made_again_elsewhere(of: Scene) -> None:
    ledgers = [await of.ledger(20), await of.ledger(7)]
    await of.bookies["b2"].go()
    await of.auto_recovery()
    for ledger_id in ledgers:
        await of.until(lambda one=ledger_id: of.whole(one, without=["b2"]), "the ledger is fully replicated")  # type: ignore[misc]
    await of.until(of.no_tasks, "no repair task is left")
    for ledger_id in ledgers:
        metadata = await of.metadata(ledger_id)
        assert metadata.state is LedgerState.CLOSED
        # A deletion of the ledger must wait for it.
        if "b2" in metadata.former_bookies:
            assert "b2" not in metadata.bookies()


async def test_striped_entries_are_copied_slot_by_slot() -> None:
    async with Scene(bookies=6) as of:
        ledger_id = await of.ledger(23, ensemble=5, write=3, ack=2)
        lost = (await of.metadata(ledger_id)).fragments[0].bookies[1]
        await of.bookies[lost].go()
        await of.auto_recovery("b1")
        await of.until(lambda: of.whole(ledger_id, without=[lost]), "the ledger is fully replicated")
        new = (await of.metadata(ledger_id)).fragments[0].bookies[1]
        held = [entry_id for entry_id in range(23) if of.bookies[new].holds(ledger_id, entry_id)]
        assert held == [entry_id for entry_id in range(23) if (1 - entry_id) % 5 < 3]


async def test_a_bookie_that_returns_in_time_is_left_alone(of: Scene) -> None:
    ledger_id = await of.ledger(5)
    before = await of.metadata(ledger_id)
    await of.auto_recovery()
    await of.passes(6)
    lost = before.bookies()[0]
    await of.bookies[lost].go()
    await of.passes(2)
    await of.bookies[lost].come()
    await of.passes(20)
    assert await of.metadata(ledger_id) == before
    assert await of.no_tasks()


async def test_all_ledgers_are_scanned_only_when_a_bookie_is_lost(of: Scene) -> None:
    settings = of.settings.model_copy(
        update={"auditor_scan_interval_seconds": 1000.0, "lost_bookie_recovery_delay_seconds": 20.0}
    )
    scans: list[float] = []

    class RecordingAuditor(Auditor):
        async def scan(self) -> None:
            scans.append(of.clock.monotonic())
            await super().scan()

    client = await of.new_client()
    of.spawn(RecordingAuditor(client, BookieWatcher(client, settings), settings, lambda: True).run())
    await of.until(lambda: len(scans) == 1, "the first scan")
    await of.bookies["b4"].go()
    await of.passes(10)
    await of.bookies["b4"].come()
    await of.passes(100)
    assert len(scans) == 1
    unregistered_at = of.clock.monotonic()
    await of.bookies["b4"].go()
    await of.until(lambda: len(scans) == 2, "the scan for the lost bookie")
    assert scans[1] >= unregistered_at + 20


async def test_bookie_registered_after_the_last_scan_is_detected_as_lost() -> None:
    """STO-2: in a cluster that has just started, the auditor's first scan is earlier than most registrations."""
    async with Scene(bookies=3) as of:
        patient = of.settings.model_copy(update={"auditor_scan_interval_seconds": 100_000.0})
        await of.auto_recovery("b1", patient)
        await of.passes(10)
        for name in ("b4", "b5"):
            of.bookies[name] = SceneBookie(of, name)
            await of.bookies[name].come()
        await of.bookies["b2"].go()
        await of.passes(2)
        ledger_id = await of.ledger(5, ensemble=4)
        await of.bookies["b2"].come()
        await of.passes(1)
        await of.bookies["b5"].go()
        await of.until(lambda: of.whole(ledger_id, without=["b5"]), "its replicas are restored")


async def test_entries_that_one_bookie_lacks_are_found_and_copied(of: Scene) -> None:
    """CHK-28: an ack quorum has them, so no request fails, and no bookie is lost: inventories show it."""
    writer = await of.writer()
    slow = of.bookies[writer.metadata.fragments[0].bookies[2]]
    for number in range(4):
        await of.over(writer.add(b"%d" % number))
    ledger_id = writer.ledger_id
    await of.over(writer.close())
    lost = [entry_id for entry_id in range(4) if slow.disk.damage(ledger_id, entry_id, unreadable=entry_id % 2 == 0)]
    assert lost == [0, 1, 2, 3]
    assert not await of.whole(ledger_id)
    await of.auto_recovery()
    await of.until(lambda: of.whole(ledger_id), "the ledger is fully replicated")
    await of.until(of.no_tasks, "the task is done")


async def test_a_reported_ledger_is_looked_through(of: Scene) -> None:
    """Readers rely on it: for a task that names no lost bookie, every replica is checked."""
    ledger_id = await of.ledger(6)
    damaged = of.bookies[(await of.metadata(ledger_id)).bookies()[1]]
    assert damaged.disk.damage(ledger_id, 3)
    settings = of.settings.model_copy(update={"auditor_checks_per_round": 1, "auditor_scan_interval_seconds": 1000.0})
    await of.auto_recovery(settings=settings)
    await UnderreplicatedLedgers(of.client).mark_underreplicated(ledger_id)
    await of.until(lambda: of.whole(ledger_id), "the ledger is fully replicated")


async def test_a_read_only_bookie_that_lacks_entries_is_replaced(of: Scene) -> None:
    ledger_id = await of.ledger(6)
    name = (await of.metadata(ledger_id)).bookies()[1]
    assert of.bookies[name].disk.damage(ledger_id, 3)
    await of.bookies[name].go()
    await of.bookies[name].come(read_only=True)
    await of.auto_recovery()
    await of.until(lambda: of.whole(ledger_id, without=[name]), "the ledger is fully replicated")


async def test_stuck_repair_reports_why_and_resumes_with_a_new_bookie() -> None:
    async with Scene(bookies=3) as of:
        ledger_id = await of.ledger(5)
        await of.bookies["b3"].go()
        client = await of.auto_recovery()

        async def stuck() -> bool:
            return any("no bookie can replace" in one.stuck for one in await list_repair_progress(client))

        await of.until(stuck, "the task has the reason")
        (progress,) = await list_repair_progress(client)
        assert (progress.ledger_id, progress.lost_bookies) == (ledger_id, ("b3",))
        await of.bookies["b3"].come()
        await of.until(of.no_tasks, "the task is done")
        assert await of.whole(ledger_id)


async def test_stuck_repair_names_each_replica_that_can_not_be_read(of: Scene) -> None:
    ledger_id = await of.ledger(1)
    bookies = (await of.metadata(ledger_id)).bookies()
    for name in bookies:
        assert of.bookies[name].disk.damage(ledger_id, 0)
    await of.auto_recovery()

    async def stuck() -> bool:
        return any(one.stuck for one in await list_repair_progress(of.client))

    await of.until(stuck, "the task has the reason")
    (progress,) = await list_repair_progress(of.client)
    damaged = "its copy of the entry is damaged"
    assert f"no replica of entry 0 could be read: {bookies[1]}: {damaged}; {bookies[2]}: {damaged};" in progress.stuck


async def test_only_a_lost_single_replica_is_retried_and_with_backoff() -> None:
    """CHK-29."""
    async with Scene(bookies=3) as of:
        empty = await of.ledger(0)
        single = await of.ledger(4, ensemble=1, write=1, ack=1)
        (holder,) = (await of.metadata(single)).bookies()
        await of.bookies[holder].go()
        await of.auto_recovery()

        async def stuck() -> bool:
            reasons = [one.stuck for one in await list_repair_progress(of.client)]
            return len(reasons) == 1 and "no replica of entry 0" in reasons[0]

        await of.until(stuck, "the task of the single replica has the reason")
        tried = [(await list_repair_progress(of.client))[0].tried_ms]
        for _ in range(4):

            async def tried_again() -> bool:
                return (await list_repair_progress(of.client))[0].tried_ms > tried[-1]

            await of.until(tried_again, "it was tried again")
            tried.append((await list_repair_progress(of.client))[0].tried_ms)
        pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
        assert pauses == sorted(pauses)
        assert pauses[-1] >= 4 * pauses[0] or pauses[-1] >= 8000
        assert [one.ledger_id for one in await list_repair_progress(of.client)] == [single]
        assert (await of.metadata(empty)).last_entry_id == -1
        # The bookie returns, and the task is finished.
        await of.bookies[holder].come()
        await of.until(of.no_tasks, "the task is done")
        assert await of.whole(single)


async def test_task_of_a_deleted_ledger_is_deleted(of: Scene) -> None:
    ledger_id = await of.ledger(3)
    await of.client.delete(ledger_id)
    await UnderreplicatedLedgers(of.client).mark_underreplicated(ledger_id, ["b1"])
    await UnderreplicatedLedgers(of.client).mark_underreplicated(4711, ["b1"])
    await of.auto_recovery()
    await of.until(of.no_tasks, "no repair task is left")


async def test_auditor_fails_over_when_its_session_is_lost(of: Scene) -> None:
    first = await of.new_client()
    running = of.spawn(AutoRecovery("b1", first, of.settings).run())
    await of.passes(1)
    await of.auto_recovery("b2")
    ledger_id = await of.ledger(4)
    await of.passes(1)
    of.server.expire(first.ledgers.store)  # type: ignore[arg-type]
    await of.until(running.done, "it has ended")
    with pytest.raises(SessionLost):
        await running
    await of.bookies["b3"].go()
    await of.until(lambda: of.whole(ledger_id, without=["b3"]), "the ledger is fully replicated")


async def test_a_metadata_store_that_is_away_for_a_while_delays_and_ends_nothing(of: Scene) -> None:
    ledger_id = await of.ledger(12)
    client = await of.auto_recovery()
    store = client.ledgers.store
    await of.bookies["b1"].go()
    of.server.queue_faults(store, *[None, Fault.LOSE_ANSWER] * 12)  # type: ignore[arg-type]

    async def comes_back() -> None:
        while True:
            await of.clock.sleep(1)
            if store.session.state is SessionState.SUSPENDED:
                of.server.resume(store)  # type: ignore[arg-type]

    of.spawn(comes_back())
    await of.until(lambda: of.whole(ledger_id, without=["b1"]), "the ledger is fully replicated")
    await of.until(of.no_tasks, "the task is done")


async def test_a_metadata_store_that_is_full_for_a_while_delays_and_ends_nothing(of: Scene) -> None:
    """The auditor, its checks and the worker retry: none of them ends."""
    incomplete, losing = await of.ledger(3), await of.ledger(3)
    holder = (await of.metadata(incomplete)).bookies()[0]
    assert of.bookies[holder].disk.damage(incomplete, 1)
    client = await of.new_client()
    watcher = BookieWatcher(client, of.settings)
    transaction, full, refused = MemoryStore.transaction, True, 0

    async def refusing(store: MemoryStore, changes: Sequence[Change]) -> list[ChangeResult]:
        nonlocal refused
        if full and store is client.ledgers.store:
            refused += 1
            raise StoreFull("the disk is full", changes[0].path)
        return await transaction(store, changes)

    with patch.object(MemoryStore, "transaction", refusing):
        auditing = of.spawn(Auditor(client, watcher, of.settings, lambda: True).run())
        working = of.spawn(ReplicationWorker(client, watcher, of.settings).run())
        await of.until(lambda: refused > 0, "a check can't be reported")
        away = next(one for one in (await of.metadata(losing)).bookies() if one != holder)
        await of.bookies[away].go()
        await of.passes(8)
        await UnderreplicatedLedgers(of.client).mark_underreplicated(losing)
        before = refused
        await of.until(lambda: refused > before + 2, "the worker can't lock it")
        await of.passes(20)
        assert not auditing.done()
        assert not working.done()
        full = False
        for ledger_id in (incomplete, losing):
            await of.until(lambda one=ledger_id: of.whole(one, without=[away]), "it is fully replicated")  # type: ignore[misc]


async def test_a_lock_is_given_back_though_the_store_is_away_just_then(of: Scene) -> None:
    """Its session continues, and would keep all other workers from the ledger. A full store is the same case."""
    one, other = await of.new_client(), await of.new_client()
    store = one.ledgers.store

    async def locked() -> None:
        async with RepairLock(one, 1, b"limbo") as acquired:
            assert acquired
            of.server.queue_faults(store, Fault.LOSE_REQUEST)  # type: ignore[arg-type]

    releasing = of.spawn(locked())
    await of.until(lambda: store.session.state is SessionState.SUSPENDED, "the store is suspended")
    with patch.object(store, "transaction", side_effect=StoreFull("the disk is full", "/")):
        of.server.resume(store)  # type: ignore[arg-type]
        await of.passes(3)
        assert not releasing.done()
    await of.until(releasing.done, "it is released")
    async with RepairLock(other, 1, b"worker") as acquired:
        assert acquired


async def test_two_that_repair_the_same_ledgers_do_no_harm(of: Scene) -> None:
    ledgers = [await of.ledger(6) for _ in range(4)]
    for name in ("b1", "b2"):
        await of.auto_recovery(name)
    await of.bookies["b4"].go()
    for ledger_id in ledgers:
        await of.until(lambda one=ledger_id: of.whole(one, without=["b4"]), "the ledger is fully replicated")  # type: ignore[misc]
    await of.until(of.no_tasks, "no repair task is left")


async def test_report_during_a_repair_is_not_lost() -> None:
    async with Scene(bookies=0) as of:
        underreplicated = UnderreplicatedLedgers(of.client)
        await underreplicated.mark_underreplicated(7, ["b1"])
        repaired = await underreplicated.read_task(7)
        assert repaired is not None
        await underreplicated.record_progress(7, 3, 5, "")  # the worker's own changes don't count
        await underreplicated.mark_underreplicated(7, ["b2", "b1"])
        assert not await underreplicated.mark_replicated(7, repaired)
        (progress,) = await list_repair_progress(of.client)
        assert (progress.lost_bookies, progress.entries_copied, progress.entries_total) == (("b1", "b2"), 3, 5)
        now = await underreplicated.read_task(7)
        assert now is not None
        assert await underreplicated.mark_replicated(7, now)
        assert await of.no_tasks()
        # A late worker finds no task, and creates none.
        await underreplicated.record_progress(7, 5, 5, "")
        assert await underreplicated.mark_replicated(7, now)
        assert await of.no_tasks()


async def test_a_ledger_that_is_deleted_during_its_repair_waits_for_the_new_holder(of: Scene) -> None:
    """The copies made until then are deleted like all other replicas."""
    ledger_id = await of.ledger(4)
    metadata = await of.metadata(ledger_id)
    (spare,) = [one for one in of.bookies if one not in metadata.bookies()]

    async def deletes(_: int) -> None:
        await of.client.delete(ledger_id)

    step = SlotRepair(0, 3, 1, metadata.fragments[0].bookies[1], spare)
    with pytest.raises(LedgerDeleted):
        await of.over(repair_slot(of.client, of.settings, ledger_id, metadata, step, deletes))
    assert of.bookies[spare].holds(ledger_id, 0)
    assert spare in (await of.metadata(ledger_id)).holders


async def test_repair_in_small_batches_restores_all_replicas() -> None:
    """Batches are limited by entries, by bytes, and by the range of an inventory request."""
    async with Scene(bookies=5) as of:
        small = {"rereplication_entry_batch_size": 2, "rereplication_batch_bytes": 100, "inventory_entries": 3}
        ledgers = [await of.ledger(11), await of.ledger(11, ensemble=4, write=2, ack=2)]
        for settings in (of.settings.model_copy(update={name: small[name]}) for name in small):
            name = (await of.metadata(ledgers[0])).bookies()[0]
            await of.bookies[name].go()
            client = await of.new_client()
            running = of.spawn(AutoRecovery("b1", client, settings).run())
            for ledger_id in ledgers:
                await of.until(lambda one=ledger_id, without=name: of.whole(one, [without]), "it is fully replicated")  # type: ignore[misc]
            running.cancel()
            await of.until(running.done, "it has ended")
            await client.ledgers.store.close()
            await of.bookies[name].come()


async def test_returned_bookie_is_not_lost_without_watch_events(of: Scene) -> None:
    client = await of.new_client()
    watcher = BookieWatcher(client, of.settings)
    await of.bookies["b2"].go()
    await of.until(lambda: "b2" not in client.bookies.alive(), "its registration is removed")
    await of.over(watcher.refresh_view())
    of.server.suspend(client.ledgers.store)  # type: ignore[arg-type]
    await of.passes(2)
    await of.bookies["b2"].come()
    await of.passes(2)
    of.server.resume(client.ledgers.store)  # type: ignore[arg-type]
    await of.over(watcher.refresh_view())
    assert not watcher.lost.is_lost("b2", of.clock.monotonic() + 1000)
