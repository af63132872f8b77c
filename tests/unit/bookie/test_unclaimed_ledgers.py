"""Deletion of unclaimed ledgers and of tombstones, and ledgers that are never deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auditor import Auditor
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.lost_bookies import ClusterView
from magnetar_bookie.auto_recovery.unclaimed_ledgers import UnclaimedLedgerDeleter
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.client.ledger_store import MadeLedger
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.errors import IntentSwept, NoSuchLedger
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server import collector
from magnetar_bookie.server.collector import GarbageCollector
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import OutcomeUnknown
from magnetar_metadata.store import ABSENT, SessionState
from magnetar_protos.ledger_pb2 import LedgerIntent
from magnetar_testing.metadata import Fault
from tests.unit.bookie.repair_scene import Scene, SceneBookie


async def unclaimed(of: Scene) -> MadeLedger:
    made, writer = await of.client.create(Striping(3, 3, 2), "a test")
    writer.abandon()
    return made


async def state(of: Scene, ledger_id: int) -> LedgerState | None:
    try:
        return (await of.metadata(ledger_id)).state
    except NoSuchLedger:
        return None


async def intents(of: Scene) -> list[str]:
    await of.store.sync()
    return await of.store.children(paths.INTENTS)


async def quiet_client(of: Scene) -> LedgerClient:
    """Return a client that has finished its own first requests: the next ones are the test's."""
    client = await of.new_client()
    await of.passes(0.1)
    return client


def always() -> bool:
    return True


async def test_only_unclaimed_ledgers_are_deleted(of: Scene) -> None:
    """CHK-58: however much time passes."""
    claimed = await of.ledger(3)
    open_one = (await of.writer()).ledger_id
    orphan = await unclaimed(of)
    await of.auto_recovery()

    async def deleted() -> bool:
        return not await intents(of)

    await of.until(deleted, "the intent is deleted")
    assert await state(of, orphan.ledger_id) is LedgerState.TOMBSTONE
    await of.passes(100)
    assert await state(of, claimed) is LedgerState.CLOSED
    assert await state(of, open_one) is LedgerState.OPEN


async def test_nothing_is_swept_before_its_grace_time(of: Scene) -> None:
    orphan = await unclaimed(of)
    deleter = UnclaimedLedgerDeleter(of.client, 20)
    await deleter.delete_overdue(always)
    due = deleter.next_due()
    assert due == of.clock.monotonic() + 20
    # An operator sets the wall clock: no time passes.
    of.clock.jump(10_000_000)
    of.clock.advance(19)
    await deleter.delete_overdue(always)
    assert await state(of, orphan.ledger_id) is LedgerState.OPEN
    await of.client.ledgers.record(orphan, "/owners/1", lambda _: b"mine")
    of.clock.advance(1000)
    await deleter.delete_overdue(always)
    assert await state(of, orphan.ledger_id) is LedgerState.OPEN
    assert deleter.next_due() is None


async def test_claim_after_the_deletion_began_is_refused_and_leaves_nothing(of: Scene) -> None:
    """CHK-58: the deleter was first, and stops at each of its steps."""
    # Its requests: the names, the intent, `sweeping`, the ledger, the tombstone, the intent, its end.
    for requests in (2, 3, 4, 5, 6):
        orphan = await unclaimed(of)
        other = await quiet_client(of)
        # It waits at the next one, whose answer is lost.
        of.server.queue_faults(other.ledgers.store, *[None] * requests, Fault.LOSE_ANSWER)  # type: ignore[arg-type]
        deleting = asyncio.get_running_loop().create_task(UnclaimedLedgerDeleter(other, 0).delete_overdue(always))
        await of.until(lambda one=other: one.ledgers.store.session.state is SessionState.SUSPENDED, "it waits")  # type: ignore[misc]
        intent = await compare_and_set.read(of.store, paths.intent(orphan.ledger_id))
        assert intent is None or LedgerIntent.FromString(intent.payload).sweeping
        with pytest.raises(IntentSwept):
            await of.over(of.client.ledgers.record(orphan, f"/owners/{orphan.ledger_id}", lambda _: b"mine"))
        assert await of.store.exists(f"/owners/{orphan.ledger_id}") is None
        deleting.cancel()
        await asyncio.wait([deleting])
        # Another deleter continues.
        await UnclaimedLedgerDeleter(of.client, 0).delete_overdue(always)
        assert await state(of, orphan.ledger_id) is LedgerState.TOMBSTONE
        assert not await intents(of)


async def test_earlier_claim_prevents_ledger_deletion(of: Scene) -> None:
    """CHK-58: also if the claim's answer was lost, and if the deleter saw the intent before."""
    for fault in (None, Fault.LOSE_ANSWER):
        made = await unclaimed(of)
        deleter = UnclaimedLedgerDeleter(of.client, 1)
        await deleter.delete_overdue(always)  # it has seen the intent
        owner = await quiet_client(of)
        of.server.queue_faults(owner.ledgers.store, None, fault)  # type: ignore[arg-type]
        of.server.lag(of.store)  # so that the deleter still sees the intent
        claiming = of.spawn(owner.ledgers.record(made, f"/owners/{made.ledger_id}", lambda _: b"mine"))
        await of.passes(2)
        of.server.resume(owner.ledgers.store)  # type: ignore[arg-type]
        await of.until(claiming.done, "the claim is over")
        await of.over(deleter.delete_overdue(always))
        assert await of.store.exists(f"/owners/{made.ledger_id}") is not None
        assert await state(of, made.ledger_id) is LedgerState.OPEN


async def test_claim_executed_after_the_deletion_has_no_effect(of: Scene) -> None:
    """CHK-58: a claim that was delayed in flight."""
    made = await unclaimed(of)
    owner = await quiet_client(of)
    clock, randomness = of.clock, of.randomness
    await compare_and_set.change(of.store, "/owners/1", lambda _: b"before", clock=clock, randomness=randomness)
    of.server.queue_faults(owner.ledgers.store, None, Fault.HOLD_REQUEST)  # type: ignore[arg-type]
    claiming = of.spawn(owner.ledgers.record(made, "/owners/1", lambda _: b"mine"))
    await of.passes(1)
    await UnclaimedLedgerDeleter(of.client, 0).delete_overdue(always)
    assert of.server.release(owner.ledgers.store) == 0  # type: ignore[arg-type]
    of.server.resume(owner.ledgers.store)  # type: ignore[arg-type]
    await of.until(claiming.done, "the claim is over")
    with pytest.raises((IntentSwept, OutcomeUnknown)):
        await claiming
    stored = await compare_and_set.read(of.store, "/owners/1")
    assert stored is not None
    assert stored.payload == b"before"
    assert await state(of, made.ledger_id) is LedgerState.TOMBSTONE


async def test_deletion_executed_after_the_claim_has_no_effect(of: Scene) -> None:
    """CHK-58: the request that sets `sweeping` was delayed in flight, and its answer lost."""
    made = await unclaimed(of)
    other = await quiet_client(of)
    store = other.ledgers.store
    # The first requests are the intents' names and the one intent; then `sweeping` is set.
    of.server.queue_faults(store, None, None, Fault.HOLD_REQUEST)  # type: ignore[arg-type]
    deleting = of.spawn(UnclaimedLedgerDeleter(other, 0).delete_overdue(always))
    await of.passes(1)
    await of.over(of.client.ledgers.record(made, "/owners/1", lambda _: b"mine"))
    of.server.release(store)  # type: ignore[arg-type]
    of.server.resume(store)  # type: ignore[arg-type]
    await of.until(deleting.done, "the deleter has ended")
    await deleting
    assert await state(of, made.ledger_id) is LedgerState.OPEN
    assert not await intents(of)


async def test_a_ledger_that_is_made_late_is_swept_with_its_intent(of: Scene) -> None:
    """CHK-58: the transaction that creates both was delayed, and its client does not wait for it any more."""
    maker = await quiet_client(of)
    of.server.queue_faults(maker.ledgers.store, None, None, Fault.HOLD_REQUEST)  # type: ignore[arg-type]
    making = of.spawn(maker.create(Striping(3, 3, 2), "a test"))
    await of.passes(1)
    deleter = UnclaimedLedgerDeleter(of.client, 0)
    await deleter.delete_overdue(always)
    assert not await intents(of)
    assert of.server.release(maker.ledgers.store) == 1  # type: ignore[arg-type]
    (late,) = await intents(of)
    assert await state(of, paths.id_of(late)) is LedgerState.OPEN
    await deleter.delete_overdue(always)
    assert await state(of, paths.id_of(late)) is LedgerState.TOMBSTONE
    assert not await intents(of)
    making.cancel()


async def test_intent_without_ledger_is_deleted(of: Scene) -> None:
    """The holders dropped the tombstone, and the deleter died before its last step."""
    made = await unclaimed(of)
    intent = await compare_and_set.read(of.store, paths.intent(made.ledger_id))
    ledger = await compare_and_set.read(of.store, paths.ledger(made.ledger_id))
    assert intent is not None
    assert ledger is not None
    await of.store.delete(paths.ledger(made.ledger_id), ledger.version)
    await UnclaimedLedgerDeleter(of.client, 0).delete_overdue(always)
    assert not await intents(of)


async def test_nothing_is_deleted_after_losing_the_auditor_role(of: Scene) -> None:
    made = await unclaimed(of)
    await UnclaimedLedgerDeleter(of.client, 0).delete_overdue(lambda: False)
    assert await state(of, made.ledger_id) is LedgerState.OPEN


async def test_a_tombstone_waits_for_every_holder_that_exists(of: Scene) -> None:
    """CHK-26: the auditor waits for an unregistered bookie, but not for one without a cookie."""
    ledger_id = await of.ledger(2)
    holders = (await of.metadata(ledger_id)).bookies()
    await of.client.delete(ledger_id)
    for name in holders:
        await of.bookies[name].go()
    auditor = of.auditor()
    await of.over(auditor.scan())
    assert list((await of.metadata(ledger_id)).holders) == holders
    for name in holders:
        cookie = await of.store.get(paths.cookie(name))
        assert cookie is not None
        await of.store.delete(paths.cookie(name), cookie.version)
        assert await state(of, ledger_id) is LedgerState.TOMBSTONE
        await of.over(auditor.scan())
    assert await state(of, ledger_id) is None


async def test_a_holder_that_holds_nothing_learns_of_the_tombstone(of: Scene) -> None:
    """A bookie collects ledgers that it knows. It does not know of one to which nothing was ever written."""
    orphan = await unclaimed(of)
    auditor = of.auditor()
    await UnclaimedLedgerDeleter(of.client, 0).delete_overdue(always)
    assert (await of.metadata(orphan.ledger_id)).holders
    for _ in range(2):
        await of.over(auditor.scan())
    for name in (await of.metadata(orphan.ledger_id)).holders:
        bookie = of.bookies[name].bookie
        assert bookie is not None
        garbage = GarbageCollector(bookie, of.clock, of.randomness)
        await of.over(garbage.collect(of.client.ledgers))
    assert await state(of, orphan.ledger_id) is None


class Collected:
    """Rounds of garbage collection on all bookies, which count the reads of each ledger's metadata."""

    def __init__(self, of: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: dict[int, int] = {}
        self._of = of
        self._read = of.client.ledgers.read
        monkeypatch.setattr(of.client.ledgers, "read", self._count_read)

    async def _count_read(self, ledger_id: int, *, fresh: bool = False) -> LedgerMetadata:
        if not fresh:  # the test's own reads are
            self.reads[ledger_id] = self.reads.get(ledger_id, 0) + 1
        return await self._read(ledger_id, fresh=fresh)

    async def round(self) -> None:
        of = self._of
        for one in of.bookies.values():
            assert one.bookie is not None
            await of.over(GarbageCollector(one.bookie, of.clock, of.randomness).collect(of.client.ledgers))

    async def restart(self) -> None:
        for one in self._of.bookies.values():
            await one.go()
            await one.come()


async def test_garbage_collection_ignores_fully_deleted_ledgers() -> None:
    """Tombstones stay for ever. The cost of a round, also of the first one after a start, must not grow with them."""
    async with Scene(bookies=3) as of:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(collector, "_PORTION", 2)
            live, *deleted = [await of.ledger(1) for _ in range(6)]
            for ledger_id in deleted:
                await of.client.delete(ledger_id)
            collected = Collected(of, monkeypatch)
            await collected.round()
            assert [await state(of, one) for one in deleted] == [None] * 5
            await collected.restart()
            collected.reads.clear()
            await collected.round()
            assert collected.reads == {live: 3}
            assert all(one.holds(live, 0) for one in of.bookies.values())


async def test_restored_tombstone_is_removed_again() -> None:
    """The metadata store was restored from a backup in which the tombstone still has holders."""
    async with Scene(bookies=3) as of:
        with pytest.MonkeyPatch.context() as monkeypatch:
            ledger_id = await of.ledger(1)
            await of.client.delete(ledger_id)
            tombstone = await of.store.get(paths.ledger(ledger_id))
            assert tombstone is not None
            collected = Collected(of, monkeypatch)
            await collected.round()
            assert await state(of, ledger_id) is None
            await of.store.put(paths.ledger(ledger_id), tombstone.value, ABSENT)
            auditor = of.auditor()
            for _ in range(2):
                await of.over(auditor.scan())
            await collected.restart()
            await collected.round()
            assert await state(of, ledger_id) is None


class InterruptedWatcher(BookieWatcher):
    """Something happens right after the first refresh."""

    happens: Callable[[], Awaitable[None]] | None = None

    async def refresh_view(self) -> ClusterView:
        view = await super().refresh_view()
        happens, self.happens = self.happens, None
        if happens is not None:
            await happens()
        return view


async def test_bookie_registered_during_audit_stays_a_ledger_holder(of: Scene) -> None:
    """CHK-26: its cookie is read again before anything relies on its absence."""
    watcher = InterruptedWatcher(of.client, of.settings)
    late = of.bookies["b9"] = SceneBookie(of, "b9")
    made: list[int] = []

    async def comes() -> None:
        await late.come()
        ledger = await of.client.ledgers.make(
            ["b1", "b9"], Striping(2, 2, 1), wanted_ensemble_size=2, purpose="a test", cookie_checks=[]
        )
        await of.client.delete(ledger.ledger_id)
        made.append(ledger.ledger_id)

    watcher.happens = comes
    await of.over(Auditor(of.client, watcher, of.settings, always).scan())
    assert "b9" not in watcher.lost.view.cookies
    assert (await of.metadata(made[0])).holders == ("b1", "b9")


async def test_audit_deletes_no_open_or_closed_ledger(of: Scene) -> None:
    """CHK-26: lost bookies, deleted cookies and missing owners are no reason to delete it."""
    closed, written = await of.ledger(3), (await of.writer()).ledger_id
    for bookie in of.bookies.values():
        await bookie.go()
        cookie = await of.store.get(paths.cookie(bookie.bookie_id))
        assert cookie is not None
        await of.store.delete(paths.cookie(bookie.bookie_id), cookie.version)
    auditor = of.auditor()
    for _ in range(5):
        await of.over(auditor.scan())
        await of.passes(10)
    assert await state(of, closed) is LedgerState.CLOSED
    assert await state(of, written) is LedgerState.OPEN
