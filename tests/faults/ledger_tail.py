"""Readers of a chain while it is written: one follows it and logs each entry; one reads back whole ledgers that the
chain's owner is about to delete. The owner waits for the latter.
"""

from __future__ import annotations

import contextlib
import zlib
from typing import Final

from magnetar_bookie.errors import LedgerDeleted, LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock
from tests.faults.ledger_history import Log
from tests.faults.ledger_owner import CHAINS, read_chain

__all__ = ["follow_chain", "read_back_chain"]

_PAUSE_S: Final = 0.3


async def follow_chain(client: LedgerClient, store: MetadataStore, chain: str, seen: Log, clock: Clock) -> None:
    """Read the chain from its first ledger on, for ever; `seen` gets each entry."""
    done = -1
    changed = store.watch(CHAINS + chain)
    try:
        while True:
            await changed.wait()
            following: int | None = done
            while following is not None:
                following = next((one for one in (await read_chain(store, chain)).ledgers if one > done), None)
                if following is not None:
                    await _tail(client, following, seen, clock)
                    done = following
    finally:
        changed.close()


async def read_back_chain(
    client: LedgerClient, store: MetadataStore, chain: str, keep: int, seen: Log, clock: Clock
) -> None:
    """Read each ledger that has `keep` others behind it from its first entry to its last; `seen` gets each."""
    done = -1
    changed = store.watch(CHAINS + chain)
    try:
        while True:
            await changed.wait()
            for ledger_id in (await read_chain(store, chain)).ledgers[:-keep]:
                if ledger_id > done:
                    await _read_back(client, ledger_id, seen, clock)
                    done = ledger_id
    finally:
        changed.close()


async def _read_back(client: LedgerClient, ledger_id: int, seen: Log, clock: Clock) -> None:
    """Until it has been read whole, or is no more."""
    while True:
        try:
            metadata = await client.ledgers.read_metadata(ledger_id, fresh=True)
            if metadata.state is LedgerState.CLOSED:
                assert metadata.last_entry_id is not None
                seen.say("reads", ledger_id, metadata.last_entry_id)
                reader = await client.open(ledger_id)
                async with contextlib.aclosing(reader.entries()) as entries:
                    async for entry_id, entry in entries:
                        seen.say("read", ledger_id, entry_id, len(entry), zlib.crc32(entry))
                seen.say("whole", ledger_id, metadata.last_entry_id)
                return
        except (NoSuchLedger, LedgerDeleted):
            return
        except LedgerError as error:
            seen.say("note", "could not read back", ledger_id, type(error).__name__, error)
        await clock.sleep(_PAUSE_S)


async def _tail(client: LedgerClient, ledger_id: int, seen: Log, clock: Clock) -> None:
    at = 0
    while True:
        try:
            reader = await client.open(ledger_id)
            async with contextlib.aclosing(reader.tail(at)) as entries:
                async for entry_id, entry in entries:
                    seen.say("saw", ledger_id, entry_id, len(entry), zlib.crc32(entry))
                    at = entry_id + 1
            return
        except (NoSuchLedger, LedgerDeleted):
            return
        except LedgerError as error:
            seen.say("note", "could not tail", ledger_id, type(error).__name__, error)
        await clock.sleep(_PAUSE_S)
