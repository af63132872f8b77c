"""A reader that bypasses the broker: it reads leased ledgers from bookies while owners trim, compete and delete."""

from __future__ import annotations

from magnetar_bookie.errors import LedgerDeleted, LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_reader import LedgerReader
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from tests.sim.topics.leased import Grant
from tests.sim.topics.owner import TopicOwner

__all__ = ["LeasedReader"]


class LeasedReader(TopicOwner):
    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        world, chance = self.world, self.chance
        while not world.quiet and store.session.state.name != "LOST":
            await self.clock.sleep(chance.random() * chance.choice((0.2, 2.0)))
            grants = world.leased.standing()
            if grants:
                grant = chance.choice(grants)
                await self._read(client, grant, chance.choice(list(grant.entries)))

    async def _read(self, client: LedgerClient, grant: Grant, ledger_id: int) -> None:
        world = self.world
        last = grant.entries[ledger_id] - 1
        try:
            reader = LedgerReader(client, ledger_id, await client.ledgers.read_metadata(ledger_id))
            reader.raise_last_add_confirmed(last)
            first = self.chance.below(last + 1)
            entries = await reader.read(first, last)
        except LedgerDeleted as error:
            world.guarded(world.leased.refused, ledger_id, f"is refused as deleted ({error})")
            world.count("leased, and over while it was read")
        except (TimeoutError, LedgerError, NoSuchLedger, MetadataError) as error:
            self.trace(f"could not read leased ledger {ledger_id}: {type(error).__name__}: {error}")
            world.count("leased, and could not be read")
        else:
            for entry_id, entry in enumerate(entries, first):
                world.checker.was_read(ledger_id, entry_id, entry)
            world.count("leased entries read", len(entries))
