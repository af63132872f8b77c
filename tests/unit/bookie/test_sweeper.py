"""Ledgers that nobody claimed, tombstones, and what is never deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auditor import Auditor
from magnetar_bookie.auto_recovery.cluster import Cluster
from magnetar_bookie.auto_recovery.sweeper import Sweeper
from magnetar_bookie.core.lost_bookies import ClusterView
from magnetar_bookie.errors import IntentSwept, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server import collector
from magnetar_bookie.server.collector import GarbageCollector
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import OutcomeUnknown
from magnetar_metadata.store import ABSENT, SessionState
from magnetar_protos.ledger_pb2 import LedgerIntent
from magnetar_testing.metadata import Fault
from tests.unit.bookie.repair_scene import Scene, SceneBookie


async def unclaimed(of: Scene) -> NewLedger:
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
    """One whose next requests are the test's: it has done its own."""
    client = await of.new_client()
    await of.passes(0.1)
    return client


def always() -> bool:
    return True


async def test_sweeper_deletes_only_unclaimed_ledgers(of: Scene) -> None:
    """CHK-58: whatever time passes."""
    claimed = await of.ledger(3)
    open_one = (await of.writer()).ledger_id
    orphan = await unclaimed(of)
    await of.auto_recovery()

    async def swept() -> bool:
        return not await intents(of)

    await of.until(swept, "the intent is gone")
    assert await state(of, orphan.ledger_id) is LedgerState.TOMBSTONE
    await of.passes(100)
    assert await state(of, claimed) is LedgerState.CLOSED
    assert await state(of, open_one) is LedgerState.OPEN


async def test_nothing_is_swept_before_its_grace_time(of: Scene) -> None:
    orphan = await unclaimed(of)
    sweeper = Sweeper(of.client, 20)
    await sweeper.sweep(always)
    due = sweeper.next_due()
    assert due == of.clock.monotonic() + 20
    # An operator sets the clock: that is no passing of time.
    of.clock.jump(10_000_000)
    of.clock.advance(19)
    await sweeper.sweep(always)
    assert await state(of, orphan.ledger_id) is LedgerState.OPEN
    await of.client.ledgers.claim_ledger(orphan, "/owners/1", lambda _: b"mine")
    of.clock.advance(1000)
    await sweeper.sweep(always)
    assert await state(of, orphan.ledger_id) is LedgerState.OPEN
    assert sweeper.next_due() is None


async def test_a_claim_behind_the_sweeper_is_refused_and_leaves_nothing(of: Scene) -> None:
    """CHK-58: the sweeper was first, at each of its steps."""
    # Its requests: the names, the intent, `sweeping`, the ledger, the tombstone, the intent, its end.
    for place in (2, 3, 4, 5, 6):
        orphan = await unclaimed(of)
        other = await quiet_client(of)
        # It stands still at this one, whose answer it does not get.
        of.server.next_request(other.ledgers.store, *[None] * place, Fault.LOSE_ANSWER)  # type: ignore[arg-type]
        sweeping = asyncio.get_running_loop().create_task(Sweeper(other, 0).sweep(always))
        await of.until(lambda one=other: one.ledgers.store.session.state is SessionState.SUSPENDED, "it stands still")  # type: ignore[misc]
        intent = await compare_and_set.read(of.store, paths.intent(orphan.ledger_id))
        assert intent is None or LedgerIntent.FromString(intent.payload).sweeping
        with pytest.raises(IntentSwept):
            await of.over(of.client.ledgers.claim_ledger(orphan, f"/owners/{orphan.ledger_id}", lambda _: b"mine"))
        assert await of.store.exists(f"/owners/{orphan.ledger_id}") is None
        sweeping.cancel()
        await asyncio.wait([sweeping])
        # Another goes on where it stopped.
        await Sweeper(of.client, 0).sweep(always)
        assert await state(of, orphan.ledger_id) is LedgerState.TOMBSTONE
        assert not await intents(of)


async def test_earlier_claim_prevents_ledger_deletion(of: Scene) -> None:
    """CHK-58: also where its answer was lost, and where the sweeper saw the intent before."""
    for fault in (None, Fault.LOSE_ANSWER):
        made = await unclaimed(of)
        sweeper = Sweeper(of.client, 1)
        await sweeper.sweep(always)  # it has seen the intent
        owner = await quiet_client(of)
        of.server.next_request(owner.ledgers.store, None, fault)  # type: ignore[arg-type]
        of.server.lag(of.store)  # so that the sweeper sees the intent still
        claiming = of.spawn(owner.ledgers.claim_ledger(made, f"/owners/{made.ledger_id}", lambda _: b"mine"))
        await of.passes(2)
        of.server.resume(owner.ledgers.store)  # type: ignore[arg-type]
        await of.until(claiming.done, "the claim is over")
        await of.over(sweeper.sweep(always))
        assert await of.store.exists(f"/owners/{made.ledger_id}") is not None
        assert await state(of, made.ledger_id) is LedgerState.OPEN


async def test_a_claim_that_lands_after_the_sweeping_has_no_effect(of: Scene) -> None:
    """CHK-58: a claim that was held on its way."""
    made = await unclaimed(of)
    owner = await quiet_client(of)
    clock, randomness = of.clock, of.randomness
    await compare_and_set.change(of.store, "/owners/1", lambda _: b"before", clock=clock, randomness=randomness)
    of.server.next_request(owner.ledgers.store, None, Fault.HOLD_REQUEST)  # type: ignore[arg-type]
    claiming = of.spawn(owner.ledgers.claim_ledger(made, "/owners/1", lambda _: b"mine"))
    await of.passes(1)
    await Sweeper(of.client, 0).sweep(always)
    assert of.server.release(owner.ledgers.store) == 0  # type: ignore[arg-type]
    of.server.resume(owner.ledgers.store)  # type: ignore[arg-type]
    await of.until(claiming.done, "the claim is over")
    with pytest.raises((IntentSwept, OutcomeUnknown)):
        await claiming
    stored = await compare_and_set.read(of.store, "/owners/1")
    assert stored is not None
    assert stored.payload == b"before"
    assert await state(of, made.ledger_id) is LedgerState.TOMBSTONE


async def test_a_sweeping_that_lands_after_the_claim_has_no_effect(of: Scene) -> None:
    """CHK-58: and neither has one whose sweeper hears nothing of what came of it."""
    made = await unclaimed(of)
    other = await quiet_client(of)
    store = other.ledgers.store
    # The first requests are the intents' names and the one intent; then `sweeping` is set.
    of.server.next_request(store, None, None, Fault.HOLD_REQUEST)  # type: ignore[arg-type]
    sweeping = of.spawn(Sweeper(other, 0).sweep(always))
    await of.passes(1)
    await of.over(of.client.ledgers.claim_ledger(made, "/owners/1", lambda _: b"mine"))
    of.server.release(store)  # type: ignore[arg-type]
    of.server.resume(store)  # type: ignore[arg-type]
    await of.until(sweeping.done, "the sweeper has ended")
    await sweeping
    assert await state(of, made.ledger_id) is LedgerState.OPEN
    assert not await intents(of)


async def test_a_ledger_that_is_made_late_is_swept_with_its_intent(of: Scene) -> None:
    """CHK-58: the transaction that makes both was held, and its maker gave the id up."""
    maker = await quiet_client(of)
    of.server.next_request(maker.ledgers.store, None, None, Fault.HOLD_REQUEST)  # type: ignore[arg-type]
    making = of.spawn(maker.create(Striping(3, 3, 2), "a test"))
    await of.passes(1)
    sweeper = Sweeper(of.client, 0)
    await sweeper.sweep(always)
    assert not await intents(of)
    assert of.server.release(maker.ledgers.store) == 1  # type: ignore[arg-type]
    (late,) = await intents(of)
    assert await state(of, paths.parse_ledger_id(late)) is LedgerState.OPEN
    await sweeper.sweep(always)
    assert await state(of, paths.parse_ledger_id(late)) is LedgerState.TOMBSTONE
    assert not await intents(of)
    making.cancel()


async def test_intent_without_ledger_is_deleted(of: Scene) -> None:
    """The holders dropped the tombstone, and the sweeper died before its last step."""
    made = await unclaimed(of)
    intent = await compare_and_set.read(of.store, paths.intent(made.ledger_id))
    ledger = await compare_and_set.read(of.store, paths.ledger(made.ledger_id))
    assert intent is not None
    assert ledger is not None
    await of.store.delete(paths.ledger(made.ledger_id), ledger.version)
    await Sweeper(of.client, 0).sweep(always)
    assert not await intents(of)


async def test_sweeper_deletes_nothing_after_losing_auditor_role(of: Scene) -> None:
    made = await unclaimed(of)
    await Sweeper(of.client, 0).sweep(lambda: False)
    assert await state(of, made.ledger_id) is LedgerState.OPEN


async def test_a_tombstone_waits_for_every_holder_that_exists(of: Scene) -> None:
    """CHK-26, the auditor's part: a dead bookie is waited for; one without a cookie is not."""
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
    """A bookie looks after the ledgers that it has heard of; one that was never written is not among them."""
    orphan = await unclaimed(of)
    auditor = of.auditor()
    await Sweeper(of.client, 0).sweep(always)
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
    """Every bookie's garbage, round by round, and how often each ledger was asked for meanwhile."""

    def __init__(self, of: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[int, int] = {}
        self._of = of
        self._read = of.client.ledgers.read_metadata
        monkeypatch.setattr(of.client.ledgers, "read_metadata", self._watched)

    async def _watched(self, ledger_id: int, *, fresh: bool = False) -> LedgerMetadata:
        if not fresh:  # the tests' own are
            self.asked[ledger_id] = self.asked.get(ledger_id, 0) + 1
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
    """Tombstones stay for ever. What a round costs, and the first one after a start, must not grow with them."""
    async with Scene(bookies=3) as of:
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(collector, "_PORTION", 2)
            kept, *deleted = [await of.ledger(1) for _ in range(6)]
            for ledger_id in deleted:
                await of.client.delete(ledger_id)
            collected = Collected(of, monkeypatch)
            await collected.round()
            assert [await state(of, one) for one in deleted] == [None] * 5
            await collected.restart()
            collected.asked.clear()
            await collected.round()
            assert collected.asked == {kept: 3}
            assert all(one.holds(kept, 0) for one in of.bookies.values())


async def test_restored_tombstone_is_removed_again() -> None:
    """The metadata store was set back to an hour ago, when it waited for the bookies still."""
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


class InterruptedCluster(Cluster):
    """Something happens right behind the first look."""

    happens: Callable[[], Awaitable[None]] | None = None

    async def look(self) -> ClusterView:
        view = await super().look()
        happens, self.happens = self.happens, None
        if happens is not None:
            await happens()
        return view


async def test_bookie_registered_during_audit_stays_a_ledger_holder(of: Scene) -> None:
    """CHK-26: its cookie is looked for again before anything relies on there being none."""
    cluster = InterruptedCluster(of.client, of.settings)
    late = of.bookies["b9"] = SceneBookie(of, "b9")
    made: list[int] = []

    async def comes() -> None:
        await late.come()
        ledger = await of.client.ledgers.create_ledger(
            ["b1", "b9"], Striping(2, 2, 1), wanted_ensemble_size=2, purpose="a test", cookie_checks=[]
        )
        await of.client.delete(ledger.ledger_id)
        made.append(ledger.ledger_id)

    cluster.happens = comes
    await of.over(Auditor(of.client, cluster, of.settings, always).scan())
    assert "b9" not in cluster.lost.view.cookies
    assert (await of.metadata(made[0])).holders == ("b1", "b9")


async def test_audit_deletes_no_open_or_closed_ledger(of: Scene) -> None:
    """CHK-26: bookies away, cookies gone, nobody's record of it: no reason."""
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
