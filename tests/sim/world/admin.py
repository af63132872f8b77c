"""An operator's process: takes ledgers off their chain's head and deletes them, empties bookies, recovers at random."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import start_decommission
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import MetadataStore
from tests.sim.invariants.history import CHAINS, Chain, stored_payload
from tests.sim.world.chain_writer import ChainWriter

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["Admin"]


class Admin(ChainWriter):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        # (what, of whom)
        self._orders: list[tuple[str, str]] = []
        self._ordered: asyncio.Future[None] | None = None

    def order(self, what: str, whom: str) -> None:
        self._orders.append((what, whom))
        if self._ordered is not None and not self._ordered.done():
            self._ordered.set_result(None)

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        while True:
            while not self._orders:
                self._ordered = asyncio.get_running_loop().create_future()
                await self._ordered
            what, whom = self._orders.pop(0)
            self.trace(f"is to {what} {whom}")
            try:
                if what == "delete":
                    await self._delete_head(client, store, whom)
                elif what == "recover":
                    await self._recover(client, whom)
                else:
                    await start_decommission(client, whom)
            except LedgerError as error:
                self.trace(f"could not {what} {whom}: {type(error).__name__}: {error}")
                self.world.count(f"admin: {type(error).__name__}")

    async def _delete_head(self, client: LedgerClient, store: MetadataStore, chain: str) -> None:
        """Delete the list first, then the ledger; what is being deleted stays noted until it is done."""
        taken: int | None = None

        def take(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            nonlocal taken
            taken = None
            current = Chain.of(payload) if payload is not None else Chain()
            if len(current.ledgers) < 2 or self.world.metadata.is_forgotten(paths.ledger(current.ledgers[0])):
                return compare_and_set.LEAVE
            taken = current.ledgers[0]
            return Chain(current.ledgers[1:], [*current.deleting, taken]).encode()

        def forget(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            current = Chain.of(payload) if payload is not None else Chain()
            if taken not in current.deleting:
                return compare_and_set.LEAVE
            return Chain(current.ledgers, [left for left in current.deleting if left != taken]).encode()

        await compare_and_set.change(store, CHAINS + chain, take, clock=self.clock, randomness=self.chance)
        if taken is None:
            return
        await self.delete(client, taken)
        await compare_and_set.change(store, CHAINS + chain, forget, clock=self.clock, randomness=self.chance)
        self.world.count("deleted by the admin")

    async def _recover(self, client: LedgerClient, chain: str) -> None:
        value = self.world.metadata.value(CHAINS + chain)
        listed = Chain.of(stored_payload(value)).ledgers if value is not None else []
        if listed:
            await client.recover(listed[-1])
            self.world.count("recovered by the admin")
