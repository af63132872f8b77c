"""Auto-recovery as a whole: bookies die, return, lose entries and are emptied; real bookies, time by hand."""

from __future__ import annotations

import itertools

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auto_recovery import AutoRecovery
from magnetar_bookie.auto_recovery.decommission import NoSuchBookie, decommission, decommission_progress
from magnetar_bookie.auto_recovery.ledger_repair import put_in_place
from magnetar_bookie.auto_recovery.tasks import Tasks, repair_progress
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState, without_holders
from magnetar_bookie.core.repair import FillSlot
from magnetar_bookie.errors import AddFailed, LedgerDeleted
from magnetar_metadata.errors import SessionLost
from magnetar_metadata.memory import Fault
from tests.unit.bookie.repair_scene import Scene, scene


@scene()
async def test_a_dead_bookies_replicas_are_made_again_elsewhere(of: Scene) -> None:
    ledgers = [await of.ledger(20), await of.ledger(7)]
    await of.bookies["b2"].go()
    await of.auto_recovery()
    for ledger_id in ledgers:
        await of.until(lambda one=ledger_id: of.whole(one, without=["b2"]), "the ledger is whole")  # type: ignore[misc]
    await of.until(of.no_tasks, "the tasks are done")
    for ledger_id in ledgers:
        metadata = await of.metadata(ledger_id)
        assert metadata.state is LedgerState.CLOSED
        # Whoever deletes the ledger some day has to wait for it.
        if "b2" in metadata.former_bookies:
            assert "b2" not in metadata.bookies()


@scene(bookies=6)
async def test_striped_entries_are_copied_slot_by_slot(of: Scene) -> None:
    ledger_id = await of.ledger(23, ensemble=5, write=3, ack=2)
    lost = (await of.metadata(ledger_id)).fragments[0].bookies[1]
    await of.bookies[lost].go()
    await of.auto_recovery("b1")
    await of.until(lambda: of.whole(ledger_id, without=[lost]), "the ledger is whole")
    new = (await of.metadata(ledger_id)).fragments[0].bookies[1]
    held = [entry_id for entry_id in range(23) if of.bookies[new].holds(ledger_id, entry_id)]
    assert held == [entry_id for entry_id in range(23) if (1 - entry_id) % 5 < 3]


@scene()
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


@scene()
async def test_entries_that_one_bookie_lacks_are_found_and_copied(of: Scene) -> None:
    """CHK-28: an ack quorum has them, so nothing fails, and nobody died: the inventories tell."""
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
    await of.until(lambda: of.whole(ledger_id), "the ledger is whole")
    await of.until(of.no_tasks, "the task is done")


@scene()
async def test_a_reported_ledger_is_looked_through(of: Scene) -> None:
    """What read-repair relies on: a task that names no lost bookie has every replica checked."""
    ledger_id = await of.ledger(6)
    damaged = of.bookies[(await of.metadata(ledger_id)).bookies()[1]]
    assert damaged.disk.damage(ledger_id, 3)
    options = of.options.model_copy(update={"auditor_checks_per_round": 1, "auditor_scan_interval_s": 1000.0})
    await of.auto_recovery(options=options)
    await Tasks(of.client).report(ledger_id)
    await of.until(lambda: of.whole(ledger_id), "the ledger is whole")


@scene()
async def test_a_read_only_bookie_that_lacks_entries_is_replaced(of: Scene) -> None:
    ledger_id = await of.ledger(6)
    name = (await of.metadata(ledger_id)).bookies()[1]
    assert of.bookies[name].disk.damage(ledger_id, 3)
    await of.bookies[name].go()
    await of.bookies[name].come(read_only=True)
    await of.auto_recovery()
    await of.until(lambda: of.whole(ledger_id, without=[name]), "the ledger is whole")


@scene(bookies=3)
async def test_without_a_bookie_to_copy_to_it_says_so_and_goes_on_when_one_comes(of: Scene) -> None:
    ledger_id = await of.ledger(5)
    await of.bookies["b3"].go()
    client = await of.auto_recovery()

    async def stuck() -> bool:
        return any("no bookie to copy to" in one.stuck for one in await repair_progress(client))

    await of.until(stuck, "the task says why it is stuck")
    (progress,) = await repair_progress(client)
    assert (progress.ledger_id, progress.lost_bookies) == (ledger_id, ("b3",))
    await of.bookies["b3"].come()
    await of.until(of.no_tasks, "the task is done")
    assert await of.whole(ledger_id)


@scene(bookies=3)
async def test_empty_ledgers_and_single_replicas_come_to_rest(of: Scene) -> None:
    """CHK-29."""
    empty = await of.ledger(0)
    single = await of.ledger(4, ensemble=1, write=1, ack=1)
    (holder,) = (await of.metadata(single)).bookies()
    await of.bookies[holder].go()
    await of.auto_recovery()

    async def stuck() -> bool:
        said = [one.stuck for one in await repair_progress(of.client)]
        return len(said) == 1 and "no replica could be read of entry 0" in said[0]

    await of.until(stuck, "the single replica's task says why it is stuck")
    tried = [(await repair_progress(of.client))[0].tried_ms]
    for _ in range(4):

        async def tried_again() -> bool:
            return (await repair_progress(of.client))[0].tried_ms > tried[-1]

        await of.until(tried_again, "it was tried again")
        tried.append((await repair_progress(of.client))[0].tried_ms)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 4 * pauses[0] or pauses[-1] >= 8000
    assert [one.ledger_id for one in await repair_progress(of.client)] == [single]
    assert (await of.metadata(empty)).last_entry_id == -1
    # It returns, and all is well.
    await of.bookies[holder].come()
    await of.until(of.no_tasks, "the task is done")
    assert await of.whole(single)


@scene()
async def test_the_last_fragment_of_an_open_ledger_is_left_to_its_writer(of: Scene) -> None:
    """CHK-62: earlier fragments are repaired; the last one keeps its ensemble as long as the ledger is open."""
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    first = writer.metadata.fragments[0].bookies
    await of.bookies[first[0]].go()
    for number in range(3, 6):
        await of.over(writer.add(b"%d" % number))
    before = await of.metadata(writer.ledger_id)
    assert len(before.fragments) == 2
    await of.bookies[first[0]].come()
    # Of the last fragment; the writer adds nothing, and so does not see it go.
    (absent,) = [one for one in before.last_fragment.bookies if one not in first]
    await of.bookies[absent].go()
    options = of.options.model_copy(update={"open_ledger_rereplication_grace_period_s": 1e6})
    await of.auto_recovery(options=options)
    await of.passes(40)
    after = await of.metadata(writer.ledger_id)
    assert after.state is LedgerState.OPEN
    assert after.last_fragment == before.last_fragment
    # And the writer is not disturbed.
    await of.bookies[absent].come()
    await of.over(writer.add(b"6"))
    assert (await of.over(writer.close())).last_entry_id == 6


@scene()
async def test_an_earlier_fragment_of_an_open_ledger_is_repaired_while_it_is_written(of: Scene) -> None:
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    lost = writer.metadata.fragments[0].bookies[0]
    await of.bookies[lost].go()
    for number in range(3, 6):
        await of.over(writer.add(b"%d" % number))
    await of.auto_recovery()

    async def replaced() -> bool:
        return lost not in (await of.metadata(writer.ledger_id)).bookies()

    await of.until(replaced, "the first fragment names another bookie")
    await of.over(writer.add(b"6"))
    metadata = await of.over(writer.close())
    assert metadata.last_entry_id == 6
    assert await of.whole(writer.ledger_id, without=[lost])


@scene()
async def test_a_deleted_ledgers_task_goes(of: Scene) -> None:
    ledger_id = await of.ledger(3)
    await of.client.delete(ledger_id)
    await Tasks(of.client).report(ledger_id, ["b1"])
    await Tasks(of.client).report(4711, ["b1"])
    await of.auto_recovery()
    await of.until(of.no_tasks, "the tasks are gone")


@scene()
async def test_a_bookie_is_emptied_while_it_serves_and_then_struck_off(of: Scene) -> None:
    ledgers = [await of.ledger(6), await of.ledger(3), await of.ledger(0)]
    leaving = (await of.metadata(ledgers[0])).bookies()[0]
    await of.auto_recovery("b1")
    await decommission(of.client, leaving)

    async def done() -> bool:
        progress = await decommission_progress(of.client, leaving)
        return progress is not None and progress.done

    await of.until(done, "it is done")
    progress = await decommission_progress(of.client, leaving)
    assert progress is not None
    assert progress.ledgers_left == 0
    assert await of.store.exists(paths.cookie(leaving)) is None
    for ledger_id in ledgers:
        assert await of.whole(ledger_id, without=[leaving])


@scene(bookies=3)
async def test_a_bookie_that_is_named_keeps_its_cookie(of: Scene) -> None:
    """Closed, open and deleted ledgers hold it, each by itself; the number of them is told."""
    closed = await of.ledger(2)
    writer = await of.writer()
    deleted = await of.ledger(2)
    await of.client.delete(deleted)
    await decommission(of.client, "b2")
    await of.client.bookies.close()  # nobody heard of it here
    of.client = await of.new_client()
    auditor = of.auditor()

    async def left() -> int | None:
        await auditor.scan()
        progress = await decommission_progress(of.client, "b2")
        assert progress is not None
        assert progress.done is (await of.store.exists(paths.cookie("b2")) is None)
        return progress.ledgers_left

    assert await left() == 3
    await of.client.delete(closed)
    await of.client.delete(writer.ledger_id)
    assert await left() == 3
    for count, ledger_id in enumerate((closed, writer.ledger_id, deleted), 1):
        await _dropped(of, ledger_id, "b2")
        assert await left() == 3 - count


async def _dropped(of: Scene, ledger_id: int, bookie_id: str) -> None:
    """The bookie's collector has done its work."""
    def update(current: LedgerMetadata | None) -> LedgerMetadata:
        assert current is not None
        return without_holders(current, [bookie_id])

    await of.client.ledgers.change(ledger_id, update)


@scene(bookies=3)
async def test_nobody_is_emptied_who_does_not_exist(of: Scene) -> None:
    with pytest.raises(NoSuchBookie, match="b9"):
        await decommission(of.client, "b9")
    assert await decommission_progress(of.client, "b9") is None


@scene()
async def test_another_takes_the_office_when_the_auditors_session_is_lost(of: Scene) -> None:
    first = await of.new_client()
    running = of.spawn(AutoRecovery("b1", first, of.options).run())
    await of.passes(1)
    await of.auto_recovery("b2")
    ledger_id = await of.ledger(4)
    await of.passes(1)
    of.server.expire(first.ledgers.store)  # type: ignore[arg-type]
    await of.until(running.done, "it has ended")
    with pytest.raises(SessionLost):
        await running
    await of.bookies["b3"].go()
    await of.until(lambda: of.whole(ledger_id, without=["b3"]), "the ledger is whole")


@scene()
async def test_a_metadata_store_that_is_away_for_a_while_delays_and_ends_nothing(of: Scene) -> None:
    ledger_id = await of.ledger(12)
    client = await of.auto_recovery()
    store = client.ledgers.store
    await of.bookies["b1"].go()
    for _ in range(12):
        of.server.next_request(store, None, Fault.LOSE_ANSWER)  # type: ignore[arg-type]
        await of.passes(1)
        of.server.resume(store)  # type: ignore[arg-type]
        await of.passes(1)
    await of.until(lambda: of.whole(ledger_id, without=["b1"]), "the ledger is whole")
    await of.until(of.no_tasks, "the task is done")


@scene()
async def test_two_that_repair_the_same_ledgers_do_no_harm(of: Scene) -> None:
    ledgers = [await of.ledger(6) for _ in range(4)]
    for name in ("b1", "b2"):
        await of.auto_recovery(name)
    await of.bookies["b4"].go()
    for ledger_id in ledgers:
        await of.until(lambda one=ledger_id: of.whole(one, without=["b4"]), "the ledger is whole")  # type: ignore[misc]
    await of.until(of.no_tasks, "the tasks are done")


@scene()
async def test_an_open_ledger_whose_bookie_stays_away_is_recovered_and_repaired(of: Scene) -> None:
    """CHK-62: the one way to repair a last fragment is to fence its writer first."""
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    lost = writer.metadata.fragments[0].bookies[2]
    await of.bookies[lost].go()
    await of.auto_recovery()
    await of.passes(5)
    assert (await of.metadata(writer.ledger_id)).state is LedgerState.OPEN
    await of.until(lambda: of.whole(writer.ledger_id, without=[lost]), "the ledger is closed and whole")
    assert (await of.metadata(writer.ledger_id)).last_entry_id == 2
    with pytest.raises(AddFailed):
        await of.over(writer.add(b"3"))


@scene(bookies=3)
async def test_an_open_ledger_is_not_taken_from_its_writer_for_nothing(of: Scene) -> None:
    """There is no bookie that could take the place: so its writer goes on with the two that there are."""
    writer = await of.writer()
    await of.over(writer.add(b"0"))
    await of.bookies["b3"].go()
    client = await of.auto_recovery()

    async def stuck() -> bool:
        return any("could take the place of b3" in one.stuck for one in await repair_progress(client))

    await of.until(stuck, "the task says why")
    await of.over(writer.add(b"1"))
    assert (await of.metadata(writer.ledger_id)).state is LedgerState.OPEN


@scene()
async def test_what_the_protocol_says_of_the_open_ledger_can_not_happen(of: Scene) -> None:
    """CHK-62: b3 away, repair about; b3 returns, the writer loses b1; then b2 and the writer die, and b1 returns.

    With the last fragment repaired behind the writer's back, the entry that b2 and b3 acknowledged would be lost.
    """
    await of.bookies["b4"].go()
    writer = await of.writer()
    assert sorted(writer.metadata.last_fragment.bookies) == ["b1", "b2", "b3"]
    await of.over(writer.add(b"0"))
    await of.bookies["b3"].go()
    await of.bookies["b4"].come()
    options = of.options.model_copy(update={"open_ledger_rereplication_grace_period_s": 30.0})
    await of.auto_recovery("b4", options)
    await of.passes(15)
    await of.bookies["b3"].come()
    await of.passes(1)
    await of.bookies["b1"].go()
    acknowledged = await of.over(writer.add(b"1"))
    await of.bookies["b2"].go()
    writer.abandon()
    await of.bookies["b1"].come()
    await of.passes(1)
    metadata = await of.over(of.client.recover(writer.ledger_id))
    assert metadata.last_entry_id >= acknowledged


@scene(bookies=0)
async def test_a_report_that_came_during_the_work_is_not_lost_with_the_task(of: Scene) -> None:
    tasks = Tasks(of.client)
    await tasks.report(7, ["b1"])
    worked_on = await tasks.read(7)
    assert worked_on is not None
    await tasks.note(7, 3, 5, "")  # the worker's own notes don't count
    await tasks.report(7, ["b2", "b1"])
    assert not await tasks.finish(7, worked_on)
    (progress,) = await repair_progress(of.client)
    assert (progress.lost_bookies, progress.entries_copied, progress.entries_total) == (("b1", "b2"), 3, 5)
    now = await tasks.read(7)
    assert now is not None
    assert await tasks.finish(7, now)
    assert await of.no_tasks()
    # And a worker that is late neither finds nor makes one.
    await tasks.note(7, 5, 5, "")
    assert await tasks.finish(7, now)
    assert await of.no_tasks()


@scene()
async def test_a_ledger_that_is_deleted_during_its_repair_waits_for_the_new_holder(of: Scene) -> None:
    """The copies that were made by then are dropped like all others."""
    ledger_id = await of.ledger(4)
    metadata = await of.metadata(ledger_id)
    (spare,) = [one for one in of.bookies if one not in metadata.bookies()]

    async def deletes(_: int) -> None:
        await of.client.delete(ledger_id)

    step = FillSlot(0, 3, 1, metadata.fragments[0].bookies[1], spare)
    with pytest.raises(LedgerDeleted):
        await of.over(put_in_place(of.client, of.options, ledger_id, metadata, step, deletes))
    assert of.bookies[spare].holds(ledger_id, 0)
    assert spare in (await of.metadata(ledger_id)).holders
