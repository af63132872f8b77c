"""Decommissioning: the bookie's entries are copied while it serves reads, then its cookie is deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery import auditor as auditor_module
from magnetar_bookie.auto_recovery.decommission import (
    cancel_decommission,
    read_decommission_progress,
    start_decommission,
)
from magnetar_bookie.auto_recovery.decommission_check import check_decommission
from magnetar_bookie.auto_recovery.errors import CannotDecommission, NoSuchBookie, NotLeaving
from magnetar_bookie.auto_recovery.ledger_nodes import ReadNode, read_ledger_nodes
from magnetar_bookie.client.ledger_store import LedgerStore
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, without_holders
from tests.unit.bookie.repair_scene import Scene


async def test_decommission_empties_a_serving_bookie_and_deletes_its_cookie(of: Scene) -> None:
    ledgers = [await of.ledger(6), await of.ledger(3), await of.ledger(0)]
    leaving = (await of.metadata(ledgers[0])).bookies()[0]
    await of.auto_recovery("b1")
    await start_decommission(of.client, leaving)

    async def done() -> bool:
        progress = await read_decommission_progress(of.client, leaving)
        return progress is not None and progress.done

    await of.until(done, "it is done")
    progress = await read_decommission_progress(of.client, leaving)
    assert progress is not None
    assert progress.ledgers_left == 0
    assert await of.store.exists(paths.cookie(leaving)) is None
    for ledger_id in ledgers:
        assert await of.whole(ledger_id, without=[leaving])


async def test_bookie_named_by_a_ledger_retains_its_cookie() -> None:
    """A closed, an open or a deleted ledger alone is enough; their number is recorded."""
    async with Scene(bookies=3) as of:
        closed = await of.ledger(2)
        writer = await of.writer()
        deleted = await of.ledger(2)
        await of.client.delete(deleted)
        await start_decommission(of.client, "b2")
        await of.client.bookies.close()  # this client does not see the mark
        of.client = await of.new_client()
        auditor = of.auditor()

        async def left() -> int | None:
            await auditor.scan()
            progress = await read_decommission_progress(of.client, "b2")
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
    """Remove the bookie from the tombstone, as its garbage collector does."""

    def update(current: LedgerMetadata | None) -> LedgerMetadata:
        assert current is not None
        return without_holders(current, [bookie_id])

    await of.client.ledgers.change(ledger_id, update)


async def test_decommission_of_an_unknown_bookie_is_refused() -> None:
    async with Scene(bookies=3) as of:
        with pytest.raises(NoSuchBookie, match="b9"):
            await start_decommission(of.client, "b9")
        assert await read_decommission_progress(of.client, "b9") is None


async def test_stuck_decommission_can_be_cancelled() -> None:
    """Without a replacement it waits for ever. After the cancellation, the bookie stays with its entries."""
    async with Scene(bookies=3) as of:
        ledger_id = await of.ledger(3)
        await of.auto_recovery("b1")
        await start_decommission(of.client, "b2")

        async def counted() -> bool:
            progress = await read_decommission_progress(of.client, "b2")
            return progress is not None and progress.ledgers_left == 1 and not progress.done

        await of.until(counted, "its ledger is counted")
        await cancel_decommission(of.client, "b2")
        assert await read_decommission_progress(of.client, "b2") is None
        assert await of.store.exists(paths.cookie("b2")) is not None

        async def settled() -> bool:
            return not await of.store.children(paths.TASKS) and "b2" in of.client.bookies.writable()

        await of.until(settled, "no task is left, and it accepts entries again")
        assert "b2" in (await of.metadata(ledger_id)).bookies()
        with pytest.raises(NotLeaving, match="b2"):
            await cancel_decommission(of.client, "b2")


async def test_completed_decommission_can_not_be_cancelled() -> None:
    async with Scene(bookies=3) as of:
        await start_decommission(of.client, "b2")
        await of.auditor().scan()
        with pytest.raises(NotLeaving, match="for good"):
            await cancel_decommission(of.client, "b2")
        progress = await read_decommission_progress(of.client, "b2")
        assert progress is not None
        assert progress.done


async def test_scan_ignores_a_decommission_requested_after_it_started() -> None:
    """The mark is deleted and set again during a scan that has counted no ledger, with a new ledger in between."""
    async with Scene(bookies=3) as of:
        named: list[int] = []

        async def change_mark_after_reads(ledgers: LedgerStore) -> AsyncIterator[tuple[int, ReadNode]]:
            async for one in read_ledger_nodes(ledgers):
                yield one
            await cancel_decommission(of.client, "b2")
            await of.until(lambda: "b2" in of.client.bookies.writable(), "it is chosen again")
            named.append(await of.ledger(3))
            await start_decommission(of.client, "b2")

        await start_decommission(of.client, "b2")
        auditor = of.auditor()
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(auditor_module, "read_ledger_nodes", change_mark_after_reads)
            await auditor.scan()
        assert "b2" in (await of.metadata(named[0])).bookies()
        assert await of.store.exists(paths.cookie("b2")) is not None, "a ledger names it"
        await auditor.scan()
        progress = await read_decommission_progress(of.client, "b2")
        assert progress is not None
        assert (progress.ledgers_left, progress.done) == (1, False)


async def test_decommission_is_refused_if_too_few_bookies_would_be_left() -> None:
    """At least as many writable bookies must be left as the largest ensemble has that names it."""
    async with Scene(bookies=5) as of:
        await check_decommission(of.client, "b1")
        assert len((await of.metadata(await of.ledger(2))).bookies()) == 3
        leaver = (await of.metadata(1)).bookies()[0]
        others = [name for name in of.bookies if name != leaver]
        await check_decommission(of.client, leaver)
        await start_decommission(of.client, others[0])
        await check_decommission(of.client, leaver)
        await of.bookies[others[1]].go()
        with pytest.raises(CannotDecommission, match=rf"2 .*{others[0]} is leaving, {others[1]} is lost.* 3"):
            await check_decommission(of.client, leaver)
        named = (await of.metadata(1)).bookies()
        stranger = next(name for name in others[2:] if name not in named)
        await check_decommission(of.client, stranger)
