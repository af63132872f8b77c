"""Read the metadata of all ledgers, several nodes at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeAlias

from magnetar_bookie import paths
from magnetar_bookie.client.ledger_store import LedgerStore
from magnetar_bookie.core import ledger_metadata
from magnetar_bookie.core.ledger_metadata import LedgerMetadata
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue
from magnetar_metadata.store import MetadataStore

__all__ = ["ReadNode", "decode_ledger_node", "read_ledger_nodes"]

# A node that can't be decoded is yielded as its error, so that the other nodes are read as well.
ReadNode: TypeAlias = compare_and_set.StoredValue | ForeignValue | None
_READ_AHEAD: Final = 16


async def read_ledger_nodes(ledgers: LedgerStore) -> AsyncIterator[tuple[int, ReadNode]]:
    """Yield the ids of all ledgers, in order, with their nodes. None: the node was deleted in the meantime."""
    ahead: list[int] = []
    async for ledger_id in ledgers.ledger_ids():
        ahead.append(ledger_id)
        if len(ahead) == _READ_AHEAD:
            for one, node in await _read_nodes(ledgers.store, ahead):
                yield one, node
            ahead = []
    for one, node in await _read_nodes(ledgers.store, ahead):
        yield one, node


def decode_ledger_node(node: compare_and_set.StoredValue | ForeignValue) -> tuple[LedgerMetadata, int]:
    """Return the metadata, and the node's version. Raises `ForeignValue` or `LedgerError` if it can't be decoded."""
    if isinstance(node, ForeignValue):
        raise node
    return ledger_metadata.decode(node.payload), node.version


async def _read_nodes(store: MetadataStore, ledger_ids: Sequence[int]) -> list[tuple[int, ReadNode]]:
    # All reads are awaited: if one fails, none of the others is left without an owner.
    reads = (compare_and_set.read(store, paths.ledger(one)) for one in ledger_ids)
    found: list[tuple[int, ReadNode]] = []
    for ledger_id, node in zip(ledger_ids, await asyncio.gather(*reads, return_exceptions=True), strict=True):
        if isinstance(node, BaseException) and not isinstance(node, ForeignValue):
            raise node
        found.append((ledger_id, node))
    return found
