"""A cursor's ledger: made with a snapshot at its beginning, appended to, read when the cursor is opened.

The snapshot is durable before the ledger is recorded as the cursor's, so every ledger that a cursor points at begins
with a whole one. How a record looks is cursors/cursor_record.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import aclosing

from magnetar_bookie.errors import LedgerDeleted, LedgerError, NoSuchLedger, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.striping import Striping
from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor_record import BadCursorRecord, apply_record
from magnetar_broker.errors import BrokerError, DamagedCursor
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["CursorLedger", "damaged_cursor", "delete_all_ledgers", "fence_ledger", "read_cursor_ledger"]

_log = logging.getLogger(__name__)


class CursorLedger:
    """One that is written."""

    __slots__ = ("_snapshot_bytes", "bytes", "entries", "made", "writer")

    def __init__(self, made: NewLedger, writer: LedgerWriter) -> None:
        self.made = made
        self.writer = writer
        self.entries = 0
        self.bytes = 0
        self._snapshot_bytes = 0

    @classmethod
    async def begin(
        cls, client: LedgerClient, striping: Striping, purpose: str, snapshot: Iterable[bytes]
    ) -> CursorLedger:
        """Returns when the snapshot is durable. Raises what `LedgerClient.create` does, and `AddFailed`."""
        # Nobody tails it, and a recovery finds its last entry anyway: three calls less for each save.
        ledger = cls(*await client.create(striping, purpose, explicit_lac=False))
        try:
            await ledger.add(snapshot)
        except BaseException:
            ledger.writer.abandon()
            raise
        ledger._snapshot_bytes = ledger.bytes
        return ledger

    async def add(self, records: Iterable[bytes]) -> None:
        """Returns when they are durable. Raises `AddFailed`."""
        for record in records:
            await self.writer.add(record)
            self.entries += 1
            self.bytes += len(record)

    def is_long(self, max_entries: int, max_bytes: int) -> bool:
        """It takes longer to read than a new one would take to write."""
        since = self.bytes - self._snapshot_bytes
        return self.entries >= max_entries or since >= max(max_bytes, 4 * self._snapshot_bytes)


async def read_cursor_ledger(client: LedgerClient, ledger_id: int, state: AckState, whose: str) -> None:
    """Fence the ledger and apply its records to `state`. The caller calls `settle`.

    Raises `BrokerError`; `DamagedCursor` where a record is damaged on all bookies. A ledger that is gone restores
    nothing.
    """
    try:
        reader = await client.open_with_recovery(ledger_id)
        async with aclosing(reader.batches()) as batches:
            async for _, records in batches:
                for record in records:
                    apply_record(state, record)
    except (NoSuchLedger, LedgerDeleted) as error:
        _log.error(
            "%s continues from %s, its position in the metadata store: its later state was lost with ledger %d (%s)",
            whose, state.mark_delete, ledger_id, error,
        )  # fmt: skip
    except BadCursorRecord as error:
        raise damaged_cursor(whose, f"its ledger {ledger_id} has an invalid record: {error}") from error
    except (LedgerError, MetadataError) as error:
        if isinstance(error, Unreadable) and error.is_lost:
            raise damaged_cursor(whose, str(error)) from error
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, f"{whose} can't be opened now: {error}") from error


def damaged_cursor(whose: str, reason: str) -> DamagedCursor:
    return DamagedCursor(
        f"{whose} is damaged, and its acknowledgements are unknown: {reason}. Reset the subscription to a "
        "message or a time, or delete it (`magnetar subscriptions reset`, `magnetar subscriptions "
        "delete`); other subscriptions are not affected"
    )


async def delete_all_ledgers(client: LedgerClient, ledger_ids: list[int], whose: str) -> None:
    """Delete all of them that can be deleted now. Raises `BrokerError` where any is left: call it again."""
    left = len(ledger_ids) - len(await delete_ledgers(client, ledger_ids))
    if left:
        raise BrokerError(
            ErrorCode.METADATA_ERROR, f"{left} of {len(ledger_ids)} ledgers of {whose} were not deleted: try again"
        )


async def fence_ledger(client: LedgerClient, ledger_id: int) -> None:
    """Before a topic's ledger is deleted: a broker that has lost the topic, and does not know it, gets no answer to
    further writes, as far as the ledger's bookies can be reached. Raises `MetadataError`."""
    try:
        await client.recover(ledger_id)
    except LedgerError as error:
        _log.warning("Ledger %d is deleted without having been closed: %s", ledger_id, error)
