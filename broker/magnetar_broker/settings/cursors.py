"""What can be set about cursors."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["CursorSettings"]


class CursorSettings(Configuration):
    # Maximum number of times per second that a cursor is saved while no consumer waits for the result of an
    # acknowledgement. If one waits, the cursor is saved at once.
    managed_ledger_default_mark_delete_rate_limit: float = Field(default=1.0, gt=0)
    # Records of a cursor's ledger after which the cursor begins another one. Each ledger's first record holds the whole
    # cursor.
    managed_ledger_cursor_max_entries_per_ledger: int = Field(default=50_000, gt=0)
    # Bytes of a cursor's ledger, after its first record, at which the cursor begins another one; at least four times
    # that record's size.
    managed_ledger_cursor_max_size_per_ledger_bytes: int = Field(default=1_048_576, gt=0)
    # Seconds without a change after which a cursor without individual acknowledgements deletes its ledger; its position
    # is in the metadata store. 0: never.
    managed_ledger_cursor_idle_time_seconds: float = Field(default=300.0, ge=0)
    # Maximum number of durable subscriptions of one topic. 1000 names of the maximum length are what the metadata store
    # lists at a time.
    max_subscriptions_per_topic: int = Field(default=1000, gt=0)
