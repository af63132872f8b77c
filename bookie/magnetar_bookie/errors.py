"""What can go wrong with ledgers.

    LedgerError
    ├── NoSuchLedger          the metadata store has none with this id
    ├── LedgerDeleted         it was deleted
    ├── LedgerNotClosed       what was asked is possible on a closed ledger only
    ├── NoSuchEntry           above the last entry that may be read
    ├── Unreadable            no replica could give the entry: `reasons` says what each answered
    ├── AddFailed             of a writer: this add and all later ones failed
    │   ├── LedgerFenced      somebody recovers the ledger, or has closed it: the writer has lost it
    │   ├── NotEnoughBookies  too few bookies take entries; `reasons`: why each that is missing is not taken
    │   ├── MetadataUnknown   whether an ensemble change was made could not be found out
    │   └── WriterClosed      the writer was closed by its owner before
    ├── CloseLost             the writer's close was not the one that counts: what failed may be in the ledger
    ├── OutcomeNotKnown       a change of the ledger's metadata was perhaps made: ask again
    ├── RecoveryUndecided     too few bookies could say whether an entry exists: try again when more are back
    ├── TooManyPending        `append` without room: wait for `room`
    ├── ClientClosed          the ledger client was closed by its owner meanwhile
    ├── EnsembleOutdated      a chosen bookie is being decommissioned: nothing was done, choose again
    ├── IntentSwept           the ledger took too long to be claimed and is being deleted: make another
    └── BookieRefused         a bookie will not start: `WipedBookie`, `DecommissionedBookie`, `ForeignDisk`

An add that failed may be in the ledger or not, until the ledger is closed: if the writer's own `close` returns, no
failed add will ever be read; if that raises `CloseLost`, nobody can say.
"""

from __future__ import annotations

from collections.abc import Sequence


class LedgerError(Exception):
    """Whatever goes wrong with a ledger."""


class NoSuchLedger(LedgerError):
    """The metadata store has no ledger with this id."""


class LedgerDeleted(LedgerError):
    """The ledger was deleted."""


class LedgerNotClosed(LedgerError):
    """Possible on a closed ledger only."""


class NoSuchEntry(LedgerError):
    """Above the last entry that may be read."""


class Unreadable(LedgerError):
    """No replica could give the entry."""

    def __init__(
        self, message: str, reasons: dict[str, str], *, settled: bool = False, entry_id: int | None = None
    ) -> None:
        super().__init__(message)
        # The entry that could not be read; None: it is about no entry.
        self.entry_id = entry_id
        # What each bookie answered.
        self.reasons = reasons
        # The entry is lost: every replica answered that it has no good record, and no copy is in flight any more.
        self.settled = settled


class AddFailed(LedgerError):
    """This add failed, and with it all later ones."""


class LedgerFenced(AddFailed):
    """Somebody recovers the ledger or has closed it."""


class NotEnoughBookies(AddFailed):
    """Too few bookies take entries."""

    def __init__(self, message: str, reasons: dict[str, str] | None = None) -> None:
        super().__init__(message)
        # Where a ledger could not be made: why each bookie that is not taken is not.
        self.reasons = reasons or {}


class MetadataUnknown(AddFailed):
    """Whether an ensemble change was made could not be found out."""


class WriterClosed(AddFailed):
    """The writer was closed by its owner before."""


class CloseLost(LedgerError):
    """The writer's close was not the one that counts: the fate of failed adds is unknown."""


class OutcomeNotKnown(LedgerError):
    """A change of the ledger's metadata was perhaps made."""


class RecoveryUndecided(LedgerError):
    """Too few bookies could say whether an entry exists."""


class TooManyPending(LedgerError):
    """`append` was called without room."""


class ClientClosed(LedgerError):
    """The ledger client was closed by its owner meanwhile."""


class EnsembleOutdated(LedgerError):
    """Nothing was changed: one of the chosen bookies is being decommissioned. Read the cookies again, and choose again.

    A bookie whose decommission was cancelled since its cookie was read is refused once as well.
    """

    def __init__(self, message: str, bookie_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.bookie_ids = list(bookie_ids)


class IntentSwept(LedgerError):
    """The ledger was not claimed in time and is being deleted."""


class BookieRefused(LedgerError):
    """A bookie will not start."""


class WipedBookie(BookieRefused):
    """The metadata store knows this bookie with another instance id than its disk, or its disk is empty."""


class DecommissionedBookie(BookieRefused):
    """The disk belongs to a bookie that was decommissioned."""


class ForeignDisk(BookieRefused):
    """The disk belongs to another bookie."""
