"""Honest bookies, a metadata server and a ledger client on a manual clock; ledgers as a dead writer left them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, replace_last_fragment
from magnetar_bookie.read.striping import Fragment, Striping, find_fragment
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.errors import MetadataError
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.in_process_transport import InProcessTransport
from tests.registered_bookies import register_bookie
from tests.unit.bookie.honest_bookie import HonestBookie, record_of
from tests.unit.bookie.patience import patiently

T = TypeVar("T")


class SmallCluster:
    """Bookies b0, b1 … and one client."""

    def __init__(self, bookies: int = 4, settings: LedgerClientSettings | None = None) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.transport = InProcessTransport(self.clock)
        self.settings = settings or LedgerClientSettings(explicit_lac_interval_ms=0)
        self.bookies = {f"b{number}": HonestBookie(f"b{number}", self.clock) for number in range(bookies)}
        self.store = self.server.connect()
        self.client = self.another_client(self.store)
        self.clients = [self.client]

    def another_client(self, store: MemoryStore | None = None) -> LedgerClient:
        return LedgerClient(
            store or self.server.connect(), self.transport, self.clock, SeededRandomness(1), self.settings
        )

    def __getitem__(self, bookie_id: str) -> HonestBookie:
        return self.bookies[bookie_id]

    async def start(self) -> None:
        registry = self.server.connect()
        for bookie_id, bookie in self.bookies.items():
            await self.transport.listen(f"{bookie_id}:1", bookie)
            await register_bookie(registry, bookie_id, f"{bookie_id}:1")
        await self.client.start()

    async def close(self) -> None:
        for client in self.clients:
            with suppress(MetadataError):
                await client.close()

    async def make(self, striping: Striping, *fragments: Fragment) -> int:
        """A ledger with these fragments; by default one, on the first bookies."""
        first = fragments[0] if fragments else Fragment(0, tuple(self.bookies)[: striping.ensemble_size])
        made = await self.client.ledgers.create_ledger(
            first.bookies,
            striping,
            wanted_ensemble_size=striping.ensemble_size,
            purpose="a test",
            cookie_checks=[],
        )
        for fragment in fragments[1:]:
            await self.client.ledgers.change_metadata(made.ledger_id, partial(replace_last_fragment, fragment=fragment))
        return made.ledger_id

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return await self.client.ledgers.read_metadata(ledger_id, fresh=True)

    async def put(
        self, ledger_id: int, entry_ids: Sequence[int], *, without: Sequence[str] = (), confirmed: int | None = None
    ) -> None:
        """Each entry gets to its write set, but for these bookies. Each record's LAC is the entry before, or stated."""
        metadata = await self.metadata(ledger_id)
        for entry_id in entry_ids:
            fragment = find_fragment(metadata.fragments, entry_id)
            for slot in metadata.striping.write_set(entry_id):
                if fragment.bookies[slot] not in without:
                    self.bookies[fragment.bookies[slot]].keep(ledger_id, record_of(ledger_id, entry_id, confirmed))

    def holders(self, ledger_id: int, entry_id: int) -> list[str]:
        return [name for name, bookie in self.bookies.items() if entry_id in bookie.ledger(ledger_id).records]

    async def patiently(self, work: Coroutine[Any, Any, T]) -> T:
        return await patiently(self.clock, work)


@asynccontextmanager
async def running_small_cluster(
    bookies: int = 4, settings: LedgerClientSettings | None = None
) -> AsyncIterator[SmallCluster]:
    """Yield a cluster that has started, and close it."""
    cluster = SmallCluster(bookies, settings)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()
