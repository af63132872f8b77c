"""Going through the nodes of all ledgers, several read at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeAlias

from magnetar_bookie import paths
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue
from magnetar_metadata.store import MetadataStore

__all__ = ["ReadNode", "decoded", "ledger_nodes"]

# A node that another writer's bytes stand in must not keep anybody from the others.
ReadNode: TypeAlias = compare_and_set.StoredValue | ForeignValue | None
_READ_AHEAD: Final = 16


async def ledger_nodes(ledgers: LedgerMetadataStore) -> AsyncIterator[tuple[int, ReadNode]]:
    """In order; None: deleted during the walk."""
    ahead: list[int] = []
    async for ledger_id in ledgers.ledger_ids():
        ahead.append(ledger_id)
        if len(ahead) == _READ_AHEAD:
            for one, stored in await _read_all(ledgers.store, ahead):
                yield one, stored
            ahead = []
    for one, stored in await _read_all(ledgers.store, ahead):
        yield one, stored


def decoded(read: compare_and_set.StoredValue | ForeignValue) -> tuple[LedgerMetadata, int]:
    """With the node's version. Raises `ForeignValue` or `LedgerError` where it can't be read."""
    if isinstance(read, ForeignValue):
        raise read
    return ledger_metadata.decode_metadata(read.payload), read.version


async def _read_all(store: MetadataStore, ledger_ids: Sequence[int]) -> list[tuple[int, ReadNode]]:
    # All are waited for: none goes on without an owner when another fails.
    reads = (compare_and_set.read(store, paths.ledger(one)) for one in ledger_ids)
    found: list[tuple[int, ReadNode]] = []
    for ledger_id, stored in zip(ledger_ids, await asyncio.gather(*reads, return_exceptions=True), strict=True):
        if isinstance(stored, BaseException) and not isinstance(stored, ForeignValue):
            raise stored
        found.append((ledger_id, stored))
    return found
