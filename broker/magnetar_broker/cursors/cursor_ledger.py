"""A cursor's ledger: created with a snapshot, extended with changes, and read when the cursor is opened.

The snapshot is durable before the cursor's node points at the ledger. So each ledger that a node points at begins with
a complete state. cursor_record.py has the format of its entries.
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
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["CursorLedger", "damaged_cursor", "read_cursor_ledger"]

_log = logging.getLogger(__name__)


class CursorLedger:
    """A ledger to which a cursor's changes are added."""

    __slots__ = ("_bytes", "_entries", "_snapshot_bytes", "new_ledger", "writer")

    def __init__(self, new_ledger: NewLedger, writer: LedgerWriter) -> None:
        self.new_ledger = new_ledger
        self.writer = writer
        self._entries = 0
        self._bytes = 0
        self._snapshot_bytes = 0

    @classmethod
    async def create(
        cls, client: LedgerClient, striping: Striping, purpose: str, snapshot: Iterable[bytes]
    ) -> CursorLedger:
        """Create a ledger, and return when the snapshot is durable.

        Raises what `LedgerClient.create` raises, and `AddFailed`.
        """
        # No reader tails it, and recovery finds its last entry without the LAC: this saves three calls per save.
        ledger = cls(*await client.create(striping, purpose, explicit_lac=False))
        try:
            await ledger.add_records(snapshot)
        except BaseException:
            ledger.writer.abandon()
            raise
        ledger._snapshot_bytes = ledger._bytes
        return ledger

    async def add_records(self, records: Iterable[bytes]) -> None:
        """Add records, and return when they are durable. Raises `AddFailed`."""
        for record in records:
            await self.writer.add(record)
            self._entries += 1
            self._bytes += len(record)

    def is_full(self, max_entries: int, max_bytes: int) -> bool:
        """Whether a snapshot in a new ledger is better than further changes in this one, which make it slow to read."""
        changed_bytes = self._bytes - self._snapshot_bytes
        return self._entries >= max_entries or changed_bytes >= max(max_bytes, 4 * self._snapshot_bytes)


async def read_cursor_ledger(client: LedgerClient, ledger_id: int, state: AckState, description: str) -> None:
    """Fence the ledger and apply its records to `state`. The caller calls `AckState.match_log` then.

    Raises `BrokerError`; `DamagedCursor` if a record is damaged on all bookies. A ledger that was deleted restores
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
            description, state.mark_delete, ledger_id, error,
        )  # fmt: skip
    except BadCursorRecord as error:
        raise damaged_cursor(description, f"its ledger {ledger_id} has an invalid record: {error}") from error
    except (LedgerError, MetadataError) as error:
        if isinstance(error, Unreadable) and error.is_lost:
            raise damaged_cursor(description, str(error)) from error
        raise BrokerError(ErrorCode.PERSISTENCE_ERROR, f"{description} can't be opened now: {error}") from error


def damaged_cursor(description: str, reason: str) -> DamagedCursor:
    return DamagedCursor(
        f"{description} is damaged, and its acknowledgements are unknown: {reason}. Reset the subscription to a "
        "message or a time, or delete it (`magnetar subscriptions reset`, `magnetar subscriptions "
        "delete`); other subscriptions are not affected"
    )
