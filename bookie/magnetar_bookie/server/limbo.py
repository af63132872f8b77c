"""Entering limbo: what a bookie does before it serves, when its storage can't say that everything is there.

At once, and before anything else is written, every ledger there can be is put into limbo: the storage tells of the loss
only until the bookie has written its own record. Then, when the metadata store can be asked, the limbo is narrowed to
the ledgers that there are: those with later ids were made after the loss. A bookie that crashes in between finds the
wide limbo at its next start, and narrows it then.
"""

from __future__ import annotations

from typing import Final

from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.server.bookie import Bookie

__all__ = ["narrow_limbo", "note_loss"]

_ALL_LEDGERS: Final = 2**64 - 1


async def note_loss(bookie: Bookie) -> None:
    if not bookie.storage.intact:
        await bookie.enter_limbo(_ALL_LEDGERS)


async def narrow_limbo(bookie: Bookie, ledgers: LedgerMetadataStore) -> None:
    if bookie.record.limbo_below == _ALL_LEDGERS:
        await bookie.narrow_limbo(await ledgers.last_ledger_id() + 1)
