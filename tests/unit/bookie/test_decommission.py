"""Taking a bookie out of the cluster: emptied while it serves, then struck off."""

from __future__ import annotations

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import NoSuchBookie, decommission, decommission_progress
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, without_holders
from tests.unit.bookie.repair_scene import Scene, scene


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
