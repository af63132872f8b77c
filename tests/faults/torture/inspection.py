"""Inspect ledgers after all faults have healed and no broker runs: return what is not as it should be yet.

Each ledger is known to a topic, or to a cursor of one. On a cluster it is also closed, or can be; and every bookie of
an entry's write quorum has that entry. Nothing is left of ledgers that were being created or deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from magnetar_bookie import paths
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_metadata.location import open_metadata
from magnetar_protos import ledger_pb2
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.randomness import SystemRandomness
from tests.faults.ledger_inspection import lacking, metadata_of
from tests.faults.ledger_workload import QUICK
from tests.faults.torture.orphans import ledgers_in

__all__ = ["inspect", "unrest"]

_AGAIN_S = 0.2


async def inspect(metadata: str, bookies: Sequence[str], within_s: float) -> tuple[int, str]:
    """Return the number of ledgers, and what is still not as it should be after that time."""
    clock = SystemClock()
    store = await open_metadata(metadata, clock)
    try:
        if not bookies:
            ledgers = await ledgers_in(store)
            return len(ledgers.living), f"nobody knows of the ledgers {ledgers.orphans}" if ledgers.orphans else ""
        transport = GrpcTransport()
        client = LedgerClient(store, transport, clock, SystemRandomness(), QUICK)
        whole: dict[int, ledger_pb2.LedgerMetadata] = {}
        try:
            await client.start()
            deadline = time.monotonic() + within_s
            while (left := await unrest(client, bookies, whole)) and time.monotonic() < deadline:
                await asyncio.sleep(_AGAIN_S)
            return len(whole), left
        finally:
            await client.close()
            await transport.close()
    finally:
        await store.close()


async def unrest(client: LedgerClient, bookies: Sequence[str], whole: dict[int, ledger_pb2.LedgerMetadata]) -> str:
    """Return one problem; empty: there is none. `whole` has the ledgers that an earlier look found whole, with their
    metadata: they are not read again.
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
