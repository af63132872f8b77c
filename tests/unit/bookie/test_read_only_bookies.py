"""Ledgers whose bookies take no new entries any more can be closed all the same."""

from __future__ import annotations

from magnetar_bookie.server.read_only_reasons import DECOMMISSION
from tests.unit.bookie.repair_scene import Scene, SceneBookie


async def abandoned(of: Scene, entries: int) -> tuple[int, list[SceneBookie]]:
    """An open ledger whose writer is dead, and its bookies."""
    writer = await of.writer()
    for number in range(entries):
        await of.over(writer.add(b"entry %d" % number))
    await of.passes(1)
    writer.abandon()
    return writer.ledger_id, [of.bookies[name] for name in writer.metadata.last_fragment.bookies]


async def last_recovered(of: Scene, ledger_id: int) -> int | None:
    client = await of.new_client()
    metadata = await of.over(client.recover(ledger_id))
    assert metadata.is_closed
    return metadata.last_entry_id  # type: ignore[no-any-return]


async def test_a_ledger_is_recovered_when_all_disks_are_full() -> None:
    async with Scene(bookies=3) as of:
        ledger_id, bookies = await abandoned(of, 3)
        other, _ = await abandoned(of, 0)
        for one in bookies:
            one.disk.fill()
        writer = await of.writer()
        adding = of.spawn(writer.add(b"this finds the disks full"))
        await of.until(lambda: all(one.bookie is not None and one.bookie.read_only for one in bookies), "they know it")
        adding.cancel()
        assert await last_recovered(of, ledger_id) == 2
        assert await last_recovered(of, other) == -1


async def test_a_ledger_is_recovered_when_two_of_its_bookies_leave_and_there_is_no_spare() -> None:
    """They take what recovery has found on the third, which was never on an ack quorum."""
    async with Scene(bookies=3) as of:
        ledger_id, bookies = await abandoned(of, 3)
        for one in bookies[:2]:
            assert one.bookie is not None
            one.bookie.set_read_only(DECOMMISSION, True)
            assert one.disk.damage(ledger_id, 2)
        assert await last_recovered(of, ledger_id) == 2
        assert await of.whole(ledger_id)
