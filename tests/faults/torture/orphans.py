"""Which ledgers there are that nobody knows of: looked up in the metadata store when no broker runs.

A ledger is a topic's, a cursor's, a schema's, what a deleted topic has left to its readers, or made and not recorded
yet: then its intent is there. One that is to be deleted stands where it was before, or is a tombstone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from magnetar_bookie.errors import NoSuchLedger
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.paths import INTENTS
from magnetar_broker import paths
from magnetar_metadata import compare_and_set
from magnetar_metadata.embedded.store import open_embedded
from magnetar_metadata.store import MetadataStore
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_protos.managed_ledger_pb2 import LeasedRemains, LedgerPage, ManagedLedgerNode
from magnetar_protos.schema_pb2 import SchemaNode
from magnetar_wire.clock import SystemClock
from magnetar_wire.randomness import SystemRandomness

__all__ = ["Ledgers", "ledgers_in", "ledgers_of"]


class Ledgers:
    def __init__(self, living: list[int], named: set[int], made: int) -> None:
        self.living = living
        # How many were ever made.
        self.made = made
        self.orphans = [ledger_id for ledger_id in living if ledger_id not in named]


async def ledgers_of(folder: Path) -> Ledgers:
    """Return the ledgers of a standalone; `folder` is its data folder."""
    clock = SystemClock()
    async with await open_embedded(folder / "metadata", clock) as store:
        return await ledgers_in(store)


async def ledgers_in(store: MetadataStore) -> Ledgers:
    """Return the ledgers of a store, while no process creates any."""
    ledgers = LedgerMetadataStore(store, SystemClock(), SystemRandomness())
    living = [one async for one in ledgers.ledger_ids() if await _is_retained(ledgers, one)]
    named = set(await ledgers.list_ledger_ids(INTENTS))
    async for topic in _topics(store, paths.TOPICS):
        named.update(await _named_by(store, topic))
    async for topic in _topics(store, paths.SCHEMAS):
        schema = await compare_and_set.read(store, topic)
        assert schema is not None
        node = SchemaNode.FromString(schema.payload)
        named.update([*(version.ledger_id for version in node.versions), *node.deleting])
    for name in await store.children(paths.LEASED_LEDGERS):
        remains = await compare_and_set.read(store, f"{paths.LEASED_LEDGERS}/{name}")
        assert remains is not None
        named.update(LeasedRemains.FromString(remains.payload).ledger_ids)
    return Ledgers(living, named, await ledgers.last_ledger_id())


async def _is_retained(ledgers: LedgerMetadataStore, ledger_id: int) -> bool:
    try:
        return (await ledgers.read_metadata(ledger_id)).state is not LedgerState.TOMBSTONE
    except NoSuchLedger:  # bookies are done with it by now
        return False


async def _topics(store: MetadataStore, root: str) -> AsyncIterator[str]:
    for tenant in await store.children(root):
        for namespace in await store.children(f"{root}/{tenant}"):
            for domain in await store.children(f"{root}/{tenant}/{namespace}"):
                folder = f"{root}/{tenant}/{namespace}/{domain}"
                for topic in await store.children(folder):
                    yield f"{folder}/{topic}"


async def _named_by(store: MetadataStore, topic: str) -> list[int]:
    stored = await compare_and_set.read(store, topic)
    assert stored is not None
    node = ManagedLedgerNode.FromString(stored.payload)
    named = [listed.ledger_id for listed in node.ledgers] + list(node.deleting)
    for number in await store.children(f"{topic}/pages"):
        page = await compare_and_set.read(store, f"{topic}/pages/{number}")
        assert page is not None
        named += [listed.ledger_id for listed in LedgerPage.FromString(page.payload).ledgers]
    for name in await store.children(f"{topic}/cursors"):
        cursor = await compare_and_set.read(store, f"{topic}/cursors/{name}")
        assert cursor is not None
        held = CursorNode.FromString(cursor.payload)
        named += [held.ledger_id, *held.deleting]
    return named
