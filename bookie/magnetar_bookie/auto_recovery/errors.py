"""The error of a repair that can't continue. The repair is retried later."""

from __future__ import annotations

from magnetar_bookie.errors import LedgerError

__all__ = ["CannotRepair"]


class CannotRepair(LedgerError):
    """A repair that can't continue now. The message says why, and is stored in the repair task."""
