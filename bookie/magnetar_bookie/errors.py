"""The errors of ledgers.

    LedgerError
    ├── NoSuchLedger          there is no ledger with this id
    ├── LedgerDeleted         the ledger was deleted
    ├── NoSuchEntry           the entry is above the last one that may be read
    ├── Unreadable            no replica returned the entry; `reasons` has the answer of each bookie
    ├── AddFailed             an add failed, and with it all later ones of its writer
    │   ├── LedgerFenced      the writer lost the ledger: another client recovers it, or has closed it
    │   ├── NotEnoughBookies  too few bookies accept entries; `reasons` has the reason of each other one
    │   ├── MetadataUnknown   unknown whether an ensemble change was stored
    │   └── WriterClosed      the writer was closed by its owner
    ├── CloseLost             another client closed the ledger first: entries whose add failed may be in it
    ├── OutcomeNotKnown       unknown whether a change of the ledger's metadata was stored: try again
    ├── RecoveryUndecided     too few bookies answered whether an entry exists: try again when more are registered
    ├── TooManyPending        `append` without capacity: call `wait_for_capacity`
    ├── ClientClosed          the ledger client was closed by its owner
    ├── EnsembleOutdated      a chosen bookie is being decommissioned: nothing was done, choose again
    ├── LedgerNotClaimed      the ledger was not claimed in time and is being deleted: create another one
    └── BookieRefused         the bookie must not start: `WipedBookie`, `DecommissionedBookie`, `ForeignDisk`

An entry whose add failed may be in the ledger or not, until the ledger is closed. If the writer's own `close` returns,
no such entry will ever be read; if it raises `CloseLost`, that is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence


class LedgerError(Exception):
    """The base of all errors of ledgers."""


class NoSuchLedger(LedgerError):
    """A ledger id that the metadata store does not have."""


class LedgerDeleted(LedgerError):
    """A ledger that was deleted."""


class NoSuchEntry(LedgerError):
    """An entry above the last one that may be read."""


class Unreadable(LedgerError):
    """An entry that no replica returned."""

    def __init__(
        self, message: str, reasons: dict[str, str], *, is_lost: bool = False, entry_id: int | None = None
    ) -> None:
        super().__init__(message)
        # None: the error is not about one entry.
        self.entry_id = entry_id
        # The answer of each bookie.
        self.reasons = reasons
        # Every replica answered that it has no valid record, and no copy is in flight any more.
        self.is_lost = is_lost


class AddFailed(LedgerError):
    """A failed add, with which all later ones of its writer fail."""


class LedgerFenced(AddFailed):
    """A ledger that another client recovers or has closed."""


class NotEnoughBookies(AddFailed):
    """A ledger for which too few bookies accept entries."""

    def __init__(self, message: str, reasons: dict[str, str] | None = None) -> None:
        super().__init__(message)
        # If a ledger could not be created: why each bookie was not chosen.
        self.reasons = reasons or {}


class MetadataUnknown(AddFailed):
    """An ensemble change that may have been stored or not."""


class WriterClosed(AddFailed):
    """An add on a writer that was closed by its owner."""


class CloseLost(LedgerError):
    """A ledger that another client closed before its writer: entries whose add failed may be in it or not."""


class OutcomeNotKnown(LedgerError):
    """A change of a ledger's metadata that may have been stored or not."""


class RecoveryUndecided(LedgerError):
    """A recovery in which too few bookies answered whether an entry exists."""


class TooManyPending(LedgerError):
    """A call of `append` without capacity."""


class ClientClosed(LedgerError):
    """A call that ended because the ledger client was closed by its owner."""


class EnsembleOutdated(LedgerError):
    """An ensemble with a bookie that is being decommissioned: nothing was changed. Read the cookies and choose again.

    Also raised once for a bookie whose decommission was cancelled since its cookie was read.
    """

    def __init__(self, message: str, bookie_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.bookie_ids = list(bookie_ids)


class LedgerNotClaimed(LedgerError):
    """A new ledger that was not claimed in time and is being deleted."""


class BookieRefused(LedgerError):
    """A bookie that must not start."""


class WipedBookie(BookieRefused):
    """A bookie whose disk is empty, or has another instance id than the metadata store."""


class DecommissionedBookie(BookieRefused):
    """A disk of a bookie that was decommissioned."""


class ForeignDisk(BookieRefused):
    """A disk of another bookie."""
