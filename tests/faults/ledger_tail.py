"""A reader that follows a chain while it is written, and says each entry that it sees."""

from __future__ import annotations

import contextlib
import zlib
from typing import Final

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.errors import LedgerDeleted, LedgerError, NoSuchLedger
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock
from tests.faults.ledger_history import Log
from tests.faults.ledger_owner import CHAINS, read_chain

__all__ = ["follow_chain"]

_PAUSE_S: Final = 0.3


async def follow_chain(client: LedgerClient, store: MetadataStore, chain: str, seen: Log, clock: Clock) -> None:
    """Reads the chain from its first ledger on, and whatever follows, for ever; `seen` is told each entry."""
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
