"""What can be set about cursors."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["CursorOptions"]


class CursorOptions(Configuration):
    # So often a second a cursor is saved while nobody waits for a receipt; who waits is not held up by it.
    managed_ledger_default_mark_delete_rate_limit: float = Field(default=1.0, gt=0)
    # A cursor's ledger has at most so many records before another begins, with all there is to know in its first.
    managed_ledger_cursor_max_entries_per_ledger: int = Field(default=50_000, gt=0)
    # And so many bytes besides that first record, or four times its size if that is more.
    managed_ledger_cursor_max_size_per_ledger_bytes: int = Field(default=1_048_576, gt=0)
    # A cursor that has not changed for so long, and has no holes, gives its ledger up: its node says all. 0: never.
    managed_ledger_cursor_idle_time_seconds: float = Field(default=300.0, ge=0)
    # A thousand names of the largest size are what the metadata store lists at a time.
    max_subscriptions_per_topic: int = Field(default=1000, gt=0)
