"""Those who do not write: readers without recovery."""

from __future__ import annotations

from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata.store import MetadataStore
from tests.sim.invariants.history import CHAINS, Chain, stored_payload
from tests.sim.world.chain_writer import ChainWriter

__all__ = ["ReaderHost"]


class ReaderHost(ChainWriter):
    """Tails and reads ranges of any ledger that the chains list."""

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        chance, world = self.chance, self.world
        while not world.quiet:
            await self.clock.sleep(chance.random() * 2)
            ledger_ids = self._listed()
            if not ledger_ids:
                continue
            ledger_id = ledger_ids[-1] if chance.random() < 0.6 else chance.choice(ledger_ids)
            try:
                await self._read(client, ledger_id)
            except LedgerError as error:
                self.trace(f"could not read ledger {ledger_id}: {type(error).__name__}: {error}")
                world.count(f"could not read: {type(error).__name__}")

    async def _read(self, client: LedgerClient, ledger_id: int) -> None:
        chance, world = self.chance, self.world
        reader = await client.open(ledger_id)
        if chance.random() < 0.5:
            until, seen = self.clock.monotonic() + 5 * chance.random(), 0
            async for entry_id, payload in reader.tail(chance.below(3)):
                self.trace(f"tails entry {entry_id} of ledger {ledger_id}")
                world.checker.was_read(ledger_id, entry_id, payload)
                seen += 1
                if self.clock.monotonic() > until:
                    break
            world.count("tailed", seen)
            return
        last = await reader.read_last_add_confirmed()
        if last < 0:
            return
        first = chance.below(last + 1)
        entries = await reader.read(first, last)
        for entry_id, payload in enumerate(entries, first):
            world.checker.was_read(ledger_id, entry_id, payload)
        self.trace(f"read entries {first} to {last} of ledger {ledger_id}")
        world.count("read", len(entries))

    def _listed(self) -> list[int]:
        ledger_ids: list[int] = []
        for chain in self.world.chain_names:
            value = self.world.metadata.value(CHAINS + chain)
            if value is not None:
                ledger_ids += Chain.of(stored_payload(value)).ledgers
        return ledger_ids
