"""Limbo repair: ledgers are recovered if needed, missing entries copied, and limbo cleared ledger by ledger."""

from __future__ import annotations

from unittest.mock import patch

from magnetar_bookie.auto_recovery.limbo_repair import repair_limbo
from magnetar_bookie.core.ledger_metadata import LedgerState
from magnetar_bookie.server.bookie import Bookie
from magnetar_metadata.errors import StoreFull
from tests.unit.bookie.repair_scene import Scene


async def lossy_restart(of: Scene, bookie_id: str, groups: int) -> Bookie:
    """Restart the bookie without its newest synced groups, and in limbo."""
    one = of.bookies[bookie_id]
    await one.go()
    assert one.disk.lose_synced(groups) > 0
    await one.come()
    assert one.bookie is not None
    assert not one.bookie.storage.intact
    await one.bookie.enter_limbo(await of.client.ledgers.last_ledger_id() + 1)
    return one.bookie


async def test_limbo_repair_restores_lost_entries_and_clears_limbo(of: Scene) -> None:
    """CHK-22: closed ledgers get their missing entries, open ones are recovered, then they are out of limbo."""
    closed = [await of.ledger(8), await of.ledger(3)]
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    name = writer.metadata.last_fragment.bookies[0]
    bookie = await lossy_restart(of, name, 12)
    named = [one for one in (*closed, writer.ledger_id) if name in (await of.metadata(one)).bookies()]
    assert all(bookie.in_limbo(one) for one in named)
    await of.over(repair_limbo(bookie, of.client, of.settings))
    for ledger_id in named:
        assert not bookie.in_limbo(ledger_id)
        assert await of.whole(ledger_id)
    assert (await of.metadata(writer.ledger_id)).last_entry_id == 2


async def test_a_ledger_that_cannot_be_filled_stays_in_limbo(of: Scene) -> None:
    ledger_id = await of.ledger(4)
    name, *others = (await of.metadata(ledger_id)).bookies()
    bookie = await lossy_restart(of, name, 3)
    for other in others:
        await of.bookies[other].go()
    repairing = of.spawn(repair_limbo(bookie, of.client, of.settings))
    await of.passes(20)
    assert bookie.in_limbo(ledger_id)
    assert not repairing.done()
    await of.bookies[others[1]].come()
    await of.until(repairing.done, "its entries are copied")
    await repairing
    assert not bookie.in_limbo(ledger_id)
    assert all(of.bookies[name].holds(ledger_id, entry_id) for entry_id in range(4))


async def test_a_metadata_store_that_is_full_is_waited_for(of: Scene) -> None:
    ledger_id = await of.ledger(4)
    bookie = await lossy_restart(of, (await of.metadata(ledger_id)).bookies()[0], 3)
    with patch.object(of.store, "transaction", side_effect=StoreFull("the disk is full", "/")):
        repairing = of.spawn(repair_limbo(bookie, of.client, of.settings))
        await of.passes(20)
        assert not repairing.done()
    await of.until(repairing.done, "its entries are copied")
    assert not bookie.in_limbo(ledger_id)


async def test_limbo_in_earlier_fragments_does_not_fence_the_writer(of: Scene) -> None:
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    name = writer.metadata.fragments[0].bookies[0]
    await of.bookies[name].go()
    await of.over(writer.add(b"3"))
    assert name not in writer.metadata.last_fragment.bookies
    bookie = await lossy_restart(of, name, 2)
    await of.over(repair_limbo(bookie, of.client, of.settings))
    assert not bookie.in_limbo(writer.ledger_id)
    assert (await of.metadata(writer.ledger_id)).state is LedgerState.OPEN
    await of.over(writer.add(b"4"))
    assert (await of.over(writer.close())).last_entry_id == 4
    assert await of.whole(writer.ledger_id)


async def test_deleted_ledgers_and_those_that_do_not_name_it_are_left_alone(of: Scene) -> None:
    ledger_id = await of.ledger(4)
    (stranger,) = [one for one in of.bookies if one not in (await of.metadata(ledger_id)).bookies()]
    deleted = await of.ledger(2)
    await of.client.delete(deleted)
    other = of.bookies[stranger].bookie
    assert other is not None
    await other.enter_limbo(await of.client.ledgers.last_ledger_id() + 1)
    await of.over(repair_limbo(other, of.client, of.settings))
    assert other.in_limbo(ledger_id)
    assert (await of.metadata(deleted)).state is LedgerState.TOMBSTONE


async def test_a_closed_ledger_is_fenced_though_its_fence_was_lost(of: Scene) -> None:
    """CHK-11: otherwise bookies that all lost their fences would accept adds of a writer behind the end."""
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    ledger_id, name = writer.ledger_id, writer.metadata.last_fragment.bookies[0]
    await of.over(of.client.recover(ledger_id))
    bookie = await lossy_restart(of, name, 1)
    remembered = bookie.storage.ledger(ledger_id)
    assert remembered is not None
    assert not remembered.fenced
    await of.over(repair_limbo(bookie, of.client, of.settings))
    remembered = bookie.storage.ledger(ledger_id)
    assert remembered is not None
    assert remembered.fenced
