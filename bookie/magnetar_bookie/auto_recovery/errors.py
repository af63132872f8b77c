"""What keeps a repair from going on. Nothing is lost by it: it is tried again."""

from __future__ import annotations

from magnetar_bookie.errors import LedgerError

__all__ = ["CannotRepair"]


class CannotRepair(LedgerError):
    """Not now: the message says why, and stands in the task."""
