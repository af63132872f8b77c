"""Repair of open ledgers: which fragments are repaired, and which are left to the writer."""

from __future__ import annotations

import pytest

from magnetar_bookie.auto_recovery.underreplicated_ledgers import list_repair_progress
from magnetar_bookie.core.ledger_metadata import LedgerState
from magnetar_bookie.errors import AddFailed
from tests.unit.bookie.repair_scene import Scene


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
    # A bookie of the last fragment. The writer adds nothing, so it does not notice.
    (absent,) = [one for one in before.last_fragment.bookies if one not in first]
    await of.bookies[absent].go()
    settings = of.settings.model_copy(update={"open_ledger_rereplication_grace_period_seconds": 1e6})
    await of.auto_recovery(settings=settings)
    await of.passes(40)
    after = await of.metadata(writer.ledger_id)
    assert after.state is LedgerState.OPEN
    assert after.last_fragment == before.last_fragment
    # The writer can continue.
    await of.bookies[absent].come()
    await of.over(writer.add(b"6"))
    assert (await of.over(writer.close())).last_entry_id == 6


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


async def test_open_ledger_of_lost_bookie_is_recovered_and_repaired(of: Scene) -> None:
    """CHK-62: the one way to repair a last fragment is to fence its writer first."""
    writer = await of.writer()
    for number in range(3):
        await of.over(writer.add(b"%d" % number))
    lost = writer.metadata.fragments[0].bookies[2]
    await of.bookies[lost].go()
    await of.auto_recovery()
    await of.passes(5)
    assert (await of.metadata(writer.ledger_id)).state is LedgerState.OPEN
    await of.until(lambda: of.whole(writer.ledger_id, without=[lost]), "the ledger is closed and fully replicated")
    assert (await of.metadata(writer.ledger_id)).last_entry_id == 2
    with pytest.raises(AddFailed):
        await of.over(writer.add(b"3"))


async def test_open_ledger_stays_open_when_no_replacement_bookie_exists() -> None:
    """No bookie can replace the lost one, so the writer continues with the other two."""
    async with Scene(bookies=3) as of:
        writer = await of.writer()
        await of.over(writer.add(b"0"))
        await of.bookies["b3"].go()
        client = await of.auto_recovery()

        async def stuck() -> bool:
            return any("no bookie can replace b3" in one.stuck for one in await list_repair_progress(client))

        await of.until(stuck, "the task has the reason")
        await of.over(writer.add(b"1"))
        assert (await of.metadata(writer.ledger_id)).state is LedgerState.OPEN


async def test_acknowledged_entry_survives_open_ledger_repair_and_failures(of: Scene) -> None:
    """CHK-62: b3 is lost, repair runs; b3 returns, the writer loses b1; then b2 and the writer crash, b1 returns.

    With the last fragment repaired behind the writer's back, the entry that b2 and b3 acknowledged would be lost.
    """
    await of.bookies["b4"].go()
    writer = await of.writer()
    assert sorted(writer.metadata.last_fragment.bookies) == ["b1", "b2", "b3"]
    await of.over(writer.add(b"0"))
    await of.bookies["b3"].go()
    await of.bookies["b4"].come()
    settings = of.settings.model_copy(update={"open_ledger_rereplication_grace_period_seconds": 30.0})
    await of.auto_recovery("b4", settings)
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
