"""The overviews show what the metadata store has on bookies, roles, unclaimed ledgers and ledgers."""

from __future__ import annotations

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.bookie_overview import BookieState, read_recovery_roles, summarize_bookies
from magnetar_bookie.auto_recovery.decommission import (
    read_decommission_progress,
    record_ledgers_left,
    start_decommission,
)
from magnetar_bookie.auto_recovery.ledger_overview import list_replicas, summarize_ledgers
from magnetar_bookie.auto_recovery.unclaimed_ledgers import UnclaimedLedgerDeleter, list_unclaimed_ledgers
from magnetar_bookie.auto_recovery.underreplicated_ledgers import RepairLock
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
        await _with_cookies(of, "b0", "b1", "b2", "b3", "lost")
        full = BookieRegistration(address="b1:1", read_only=True, http_address="b1:2").SerializeToString()
        await of.store.put(paths.available("b1"), full, ANY)
        await start_decommission(of.client, "b2")
        await start_decommission(of.client, "b3")
        for name, left in (("b2", 7), ("b3", 0)):
            progress = await read_decommission_progress(of.client, name)
            assert progress is not None
            await record_ledgers_left(of.client, name, progress.mark, left)
        found = {one.bookie_id: one for one in await summarize_bookies(of.client)}
        assert {name: one.state for name, one in found.items()} == {
            "b0": BookieState.WRITABLE,
            "b1": BookieState.READ_ONLY,
            "b2": BookieState.LEAVING,
            "b3": BookieState.DECOMMISSIONED,
            "lost": BookieState.LOST,
        }
        assert (found["b1"].address, found["b1"].http_address) == ("b1:1", "b1:2")
        assert found["lost"].address == ""
        leaving = found["b2"].decommission
        assert leaving is not None
        assert leaving.ledgers_left == 7


async def test_malformed_registration_and_leaving_mark_are_tolerated() -> None:
    async with running_small_cluster() as of:
        await _with_cookies(of, "b0", "b1")
        await of.store.put(paths.available("b0"), b"\xff", ANY)
        await of.store.put(paths.leaving("b1"), b"no mark of ours", ABSENT)
        found = {one.bookie_id: one.state for one in await summarize_bookies(of.client)}
        assert found["b0"] is BookieState.LOST
        assert found["b1"] is BookieState.LEAVING


async def test_auditor_and_locks_are_attributed_by_session() -> None:
    async with running_small_cluster() as of:
        assert (await read_recovery_roles(of.client)).auditor is None
        bookie, stranger = of.server.connect(), of.server.connect()
        registration = BookieRegistration(address="b9:1").SerializeToString()
        await bookie.put(paths.available("b9"), registration, ABSENT, ephemeral=True)
        await bookie.put(paths.AUDITOR, b"b9", ABSENT, ephemeral=True)
        await bookie.put(paths.lock(1), b"worker", ABSENT, ephemeral=True)
        await stranger.put(paths.lock(2), b"worker", ABSENT, ephemeral=True)
        found = await read_recovery_roles(of.client)
        assert found.auditor == "b9"
        assert found.repair_locks == {1: "b9", 2: f"session {stranger.session.id:#x}"}
        async with RepairLock(of.client, 1, b"worker") as acquired:
            assert not acquired


async def test_unclaimed_ledgers_are_listed_until_deleted() -> None:
    async with running_small_cluster() as of:
        ledger_id = await of.make(Striping(3, 3, 2))
        await of.store.put(paths.intent(99), b"nothing of ours", ABSENT)
        (one,) = await list_unclaimed_ledgers(of.client)
        assert (one.ledger_id, one.purpose, one.sweeping) == (ledger_id, "a test", False)
        await UnclaimedLedgerDeleter(of.client, 0.0).delete_overdue(lambda: True)
        assert await list_unclaimed_ledgers(of.client) == []


async def test_ledger_listing_names_missing_bookies() -> None:
    async with running_small_cluster() as of:
        striping = Striping(2, 2, 1)
        whole = await of.make(striping, Fragment(0, ("b0", "b1")))
        incomplete = await of.make(striping, Fragment(0, ("b0", "away")), Fragment(5, ("b1", "b2")))
        deleted = await of.make(striping, Fragment(0, ("b1", "b2")))
        await of.client.ledgers.change_metadata(deleted, make_tombstone)
        await of.store.put(paths.ledger(77), b"nothing of ours", ABSENT)
        found = {one.ledger_id: one async for one in summarize_ledgers(of.client)}
        assert list(found) == [whole, incomplete, deleted]
        assert {one: summary.missing for one, summary in found.items()} == {
            whole: (),
            incomplete: ("away",),
            deleted: ("b1", "b2"),
        }
        replicas = [
            (one.first_entry_id, one.last_entry_id, one.slot, one.bookie_id, one.registered)
            for one in list_replicas(of.client, found[incomplete].metadata)
        ]
        assert replicas == [
            (0, 4, 0, "b0", True),
            (0, 4, 1, "away", False),
            (5, None, 0, "b1", True),
            (5, None, 1, "b2", True),
        ]
