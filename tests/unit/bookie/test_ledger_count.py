"""The number of ledgers that a bookie reports."""

from __future__ import annotations

from magnetar_bookie.server.garbage_collector import GarbageCollector
from tests.unit.bookie.repair_scene import Scene


async def test_ledger_count_is_updated_between_collection_rounds() -> None:
    async with Scene(bookies=3) as of:
        bookie = of.bookies["b1"].bookie
        assert bookie is not None
        assert GarbageCollector(bookie, of.clock, of.randomness).ledgers is None, "nobody has counted"
        collector = GarbageCollector(bookie, of.clock, of.randomness)
        await of.ledger(1)
        await collector.collect(of.client.ledgers)
        assert collector.ledgers == 1
        ledger_ids = [await of.ledger(2) for _ in range(3)]
        assert collector.ledgers == 4
        await of.over(bookie.delete_ledger(ledger_ids[0]))
        await of.over(bookie.delete_ledger(ledger_ids[0]))
        await of.over(bookie.delete_ledger(9999))  # one that it had never heard of
        assert collector.ledgers == 3
        await collector.collect(of.client.ledgers)
        assert (collector.ledgers, collector.tombstones) == (3, 2)
        fresh = GarbageCollector(bookie, of.clock, of.randomness)
        await fresh.collect(of.client.ledgers)
        assert fresh.ledgers == 3
