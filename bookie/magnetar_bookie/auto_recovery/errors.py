"""The errors of auto-recovery.

LedgerError
├─ CannotRepair          a repair can't continue now; it is retried later
│  ├─ TargetFailed       the bookie that entries are copied to did not store them
│  └─ ReadOnlyTarget     the bookie lacks entries, and accepts none
├─ NoSuchBookie          no bookie of the cluster has this id
├─ NotLeaving            there is no decommission to cancel
└─ CannotDecommission    too few other bookies would be left
"""

from __future__ import annotations

from magnetar_bookie.errors import LedgerError

__all__ = ["CannotDecommission", "CannotRepair", "NoSuchBookie", "NotLeaving", "ReadOnlyTarget", "TargetFailed"]


class CannotRepair(LedgerError):
    """A repair can't continue now. The message gives the reason, and is stored in the repair task."""


class TargetFailed(CannotRepair):
    """The bookie that entries are copied to did not store them."""


class ReadOnlyTarget(CannotRepair):
    """The bookie lacks entries, and is read-only."""


class NoSuchBookie(LedgerError):
    """No bookie with this id belongs to the cluster."""


class NotLeaving(LedgerError):
    """There is no decommission that could be cancelled: none was started, or it is complete."""


class CannotDecommission(LedgerError):
    """Without this bookie there would be too few for its ledgers."""
