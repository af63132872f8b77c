"""Cursors of a fake log in a small cluster with a manual clock, and their nodes in the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker import paths
from magnetar_broker.cursors.cursor_deletion import delete_cursors
from magnetar_broker.cursors.cursor_nodes import CursorNodes
from magnetar_broker.cursors.cursor_table import CursorLog, CursorTable
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import ABSENT
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from tests.unit.bookie.patience import passing_time
from tests.unit.bookie.small_cluster import SmallCluster, running_small_cluster
from tests.unit.broker.fake_log import FakeLogPositions

__all__ = ["CursorScene", "open_cursors", "running_cursor_scene", "wait_for_first_attempts"]

OPTIONS = CursorSettings()


class CursorScene:
    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster
        self.clock = cluster.clock
        self.log = FakeLogPositions((5, 100))
        self.options = OPTIONS
        self._openings = 0

    async def client(self, session_timeout_s: float = 10.0) -> LedgerClient:
        """Return the ledger client of another process."""
        cluster = self.cluster
        # Each has its own seed: changes of a node by different processes are distinguished by their tokens.
        chance = SeededRandomness(f"client {len(cluster.clients)}")
        store = cluster.server.connect(session_timeout_s)
        client = LedgerClient(store, cluster.transport, cluster.clock, chance, cluster.settings)
        cluster.clients.append(client)
        await client.start()
        return client

    async def open(self, client: LedgerClient | None = None) -> CursorTable:
        """Open the cursors as the topic's next owner."""
        self._openings += 1
        await self.make_topic()
        table = await open_cursors(
            self.log, client or await self.client(), self.options, self.clock, SeededRandomness(self._openings)
        )
        await wait_for_first_attempts(table)
        return table

    async def make_topic(self) -> None:
        """Create the node of the log's incarnation unless it exists."""
        store, path = self.cluster.server.connect(), self._incarnation_path
        if await store.get(path) is None:
            await store.put(path, b"", ABSENT)

    async def delete_topic(self) -> None:
        """Delete the topic's cursors and the node of its incarnation, as another broker does."""
        client = await self.client()
        chance = SeededRandomness(f"deletion of {self.log.incarnation}")
        await delete_cursors(self.log.name, self.log.incarnation, client, self.clock, chance)
        await client.ledgers.store.delete(self._incarnation_path, 0)

    @property
    def _incarnation_path(self) -> str:
        return paths.incarnation(self.log.name, self.log.incarnation)

    async def node(self, name: str) -> CursorNode | None:
        store = self.cluster.server.connect()
        stored = await compare_and_set.read(store, paths.cursor(self.log.name, name))
        return CursorNode.FromString(stored.payload) if stored else None

    async def ledgers(self, but: int = 0) -> list[int]:
        """Return the ledgers that are not deleted, without `but`."""
        ledgers = self.cluster.client.ledgers
        return [one async for one in ledgers.ledger_ids() if one != but and await self._exists(one)]

    async def _exists(self, ledger_id: int) -> bool:
        return (await self.cluster.client.ledgers.read_metadata(ledger_id)).state is not LedgerState.TOMBSTONE

    async def intents(self) -> list[int]:
        return await self.cluster.client.ledgers.list_ledger_ids("/ledger-intents")

    async def delete_former_ledgers(self, table: CursorTable, now: float = 0.0) -> None:
        """Run housekeeping until no former ledger is left."""
        for cursor in table.durable_cursors():
            while (await self.known(cursor.name)).deleting:
                table.tick(now)
                await self.turns()

    async def known(self, name: str) -> CursorNode:
        node = await self.node(name)
        assert node is not None
        return node

    async def turns(self, count: int = 200) -> None:
        """Run all callbacks that need no time."""
        for _ in range(count):
            await asyncio.sleep(0)


async def open_cursors(
    log: CursorLog, client: LedgerClient, settings: CursorSettings, clock: Clock, randomness: Randomness
) -> CursorTable:
    """Claim and open the cursors of a log, as opening its topic does."""
    nodes = CursorNodes(log.name, client, clock, randomness)
    await nodes.claim(log.incarnation, lambda: log.ownership_checks)
    table = CursorTable(log, client, settings, clock, randomness, nodes)
    await table.open_all()
    return table


async def wait_for_first_attempts(table: CursorTable) -> None:
    """Wait until each cursor is open, or one attempt to open it has failed."""
    while any(unopened.task is not None and unopened.problem is None for unopened in table._opener.unopened_cursors()):
        await asyncio.sleep(0)


@asynccontextmanager
async def running_cursor_scene(
    bookies: int = 4, options: LedgerClientSettings | None = None
) -> AsyncIterator[CursorScene]:
    """Yield cursors in a cluster that has started. Time passes on its clock whenever nothing else happens."""
    async with running_small_cluster(bookies, options) as cluster, passing_time(cluster.clock):
        yield CursorScene(cluster)


def entries(ledger_id: int, *ids: int) -> list[tuple[int, int, int]]:
    return [(ledger_id, entry_id, entry_id) for entry_id in ids]


def at(ledger_id: int, entry_id: int) -> Position:
    return Position(ledger_id, entry_id)
