"""What people are shown of bookies, offices, intents and ledgers is what stands in the metadata store."""

from __future__ import annotations

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import decommission, decommission_progress, note_ledgers_left
from magnetar_bookie.auto_recovery.ledger_overview import ledgers, replicas
from magnetar_bookie.auto_recovery.overview import Standing, members, offices, unclaimed
from magnetar_bookie.auto_recovery.sweeper import Sweeper
from magnetar_bookie.auto_recovery.tasks import LedgerLock
from magnetar_bookie.ledger.ledger_metadata import make_tombstone
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_metadata.store import ABSENT, ANY
from magnetar_protos.ledger_pb2 import BookieRegistration
from tests.registered_bookies import make_cookie
from tests.unit.bookie.small_cluster import SmallCluster, running_small_cluster


async def _with_cookies(of: SmallCluster, *bookie_ids: str) -> None:
    for bookie_id in bookie_ids:
        await make_cookie(of.store, bookie_id)


async def test_each_bookie_state_is_listed() -> None:
    async with running_small_cluster() as of:
        await _with_cookies(of, "b0", "b1", "b2", "b3", "gone")
        full = BookieRegistration(address="b1:1", read_only=True, http_address="b1:2").SerializeToString()
        await of.store.put(paths.available("b1"), full, ANY)
        await decommission(of.client, "b2")
        await decommission(of.client, "b3")
        for name, left in (("b2", 7), ("b3", 0)):
            progress = await decommission_progress(of.client, name)
            assert progress is not None
            await note_ledgers_left(of.client, name, progress.mark, left)
        found = {one.bookie_id: one for one in await members(of.client)}
        assert {name: one.standing for name, one in found.items()} == {
            "b0": Standing.WRITABLE,
            "b1": Standing.READ_ONLY,
            "b2": Standing.LEAVING,
            "b3": Standing.STRUCK_OFF,
            "gone": Standing.LOST,
        }
        assert (found["b1"].address, found["b1"].http_address) == ("b1:1", "b1:2")
        assert found["gone"].address == ""
        leaving = found["b2"].leaving
        assert leaving is not None
        assert leaving.ledgers_left == 7


async def test_malformed_registration_and_leaving_mark_are_tolerated() -> None:
    async with running_small_cluster() as of:
        await _with_cookies(of, "b0", "b1")
        await of.store.put(paths.available("b0"), b"\xff", ANY)
        await of.store.put(paths.leaving("b1"), b"no mark of ours", ABSENT)
        found = {one.bookie_id: one.standing for one in await members(of.client)}
        assert found["b0"] is Standing.LOST
        assert found["b1"] is Standing.LEAVING


async def test_auditor_and_locks_are_attributed_by_session() -> None:
    async with running_small_cluster() as of:
        assert (await offices(of.client)).auditor is None
        bookie, stranger = of.server.connect(), of.server.connect()
        registration = BookieRegistration(address="b9:1").SerializeToString()
        await bookie.put(paths.available("b9"), registration, ABSENT, ephemeral=True)
        await bookie.put(paths.AUDITOR, b"b9", ABSENT, ephemeral=True)
        await bookie.put(paths.lock(1), b"worker", ABSENT, ephemeral=True)
        await stranger.put(paths.lock(2), b"worker", ABSENT, ephemeral=True)
        found = await offices(of.client)
        assert found.auditor == "b9"
        assert found.locks == {1: "b9", 2: f"session {stranger.session.id:#x}"}
        async with LedgerLock(of.client, 1, b"worker") as mine:
            assert not mine


async def test_unclaimed_ledgers_are_listed_until_deleted() -> None:
    async with running_small_cluster() as of:
        ledger_id = await of.make(Striping(3, 3, 2))
        await of.store.put(paths.intent(99), b"nothing of ours", ABSENT)
        (one,) = await unclaimed(of.client)
        assert (one.ledger_id, one.purpose, one.sweeping) == (ledger_id, "a test", False)
        await Sweeper(of.client, 0.0).sweep(lambda: True)
        assert await unclaimed(of.client) == []


async def test_ledger_listing_names_missing_bookies() -> None:
    async with running_small_cluster() as of:
        striping = Striping(2, 2, 1)
        whole = await of.make(striping, Fragment(0, ("b0", "b1")))
        lacking = await of.make(striping, Fragment(0, ("b0", "away")), Fragment(5, ("b1", "b2")))
        deleted = await of.make(striping, Fragment(0, ("b1", "b2")))
        await of.client.ledgers.change_metadata(deleted, make_tombstone)
        await of.store.put(paths.ledger(77), b"nothing of ours", ABSENT)
        found = {one.ledger_id: one async for one in ledgers(of.client)}
        assert list(found) == [whole, lacking, deleted]
        assert {one: summary.missing for one, summary in found.items()} == {
            whole: (),
            lacking: ("away",),
            deleted: ("b1", "b2"),
        }
        places = [
            (one.first_entry_id, one.last_entry_id, one.slot, one.bookie_id, one.registered)
            for one in replicas(of.client, found[lacking].metadata)
        ]
        assert places == [
            (0, 4, 0, "b0", True),
            (0, 4, 1, "away", False),
            (5, None, 0, "b1", True),
            (5, None, 1, "b2", True),
        ]
