"""What a cluster's ledgers are like when all has healed and no broker runs any more: what is not as it should be yet.

Each ledger is known to a topic, or to a cursor of one; it is closed, or can be; and every bookie that is to have an
entry of it has that entry. Nothing is left of ledgers that were being made or deleted.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_bookie import paths
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.errors import LedgerError
from magnetar_protos import ledger_pb2
from tests.faults.ledger_inspection import lacking, metadata_of
from tests.faults.standalone_orphans import ledgers_in

__all__ = ["unrest"]


async def unrest(client: LedgerClient, bookies: Sequence[str], whole: dict[int, ledger_pb2.LedgerMetadata]) -> str:
    """One of these things; empty: all is as it should be.

    `whole` has the ledgers that were found so by an earlier look, and their metadata then: they are not read again.
    """
    store = client.ledgers.store
    await store.sync()
    if intents := await store.children(paths.INTENTS):
        return f"there are intents still: {intents}"
    if repairs := await store.children(paths.TASKS):
        return f"there are repairs still: {repairs}"
    ledgers = await ledgers_in(store)
    if ledgers.orphans:
        return f"nobody knows of the ledgers {ledgers.orphans}"
    for ledger_id in ledgers.living:
        metadata = await metadata_of(client, ledger_id)
        if metadata is None or metadata.state == ledger_pb2.TOMBSTONE:
            continue
        if metadata.state != ledger_pb2.CLOSED:
            try:
                await client.recover(ledger_id)
            except LedgerError as error:
                return f"ledger {ledger_id} can't be recovered: {error}"
            metadata = await metadata_of(client, ledger_id)
            if metadata is None or metadata.state != ledger_pb2.CLOSED:
                return f"ledger {ledger_id} was recovered, and is not closed"
        for fragment in metadata.fragments:
            for bookie in fragment.bookies:
                if bookie not in bookies:
                    return f"ledger {ledger_id} names {bookie}, which is not there"
        if whole.get(ledger_id) != metadata:
            if lacks := await lacking(client, ledger_id, metadata):
                return lacks
            whole[ledger_id] = metadata
    return ""
