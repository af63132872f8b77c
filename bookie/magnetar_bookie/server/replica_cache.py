"""What a bookie has in mind of a ledger, and of which ledgers at a time.

All of it can be read from the storage again, so ledgers at which nothing is going on are forgotten, those used longest
ago first, when there are too many. What is in line for the disk is not in the storage yet, or not yet durable: that is
what a ledger is kept in mind for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar_bookie.server.group_commit_rules import CommitGroup
from magnetar_bookie.storage.interface import LedgerRecord

__all__ = ["LedgerReplica", "LedgerView", "ReplicaCache"]

# So many that are busy are passed over at a time, when one is to be forgotten.
_PASSED_OVER: Final = 8


class LedgerView(Protocol):
    """The part of LedgerStorage that the rules ask, at once and without waiting."""

    def ledger(self, ledger_id: int) -> LedgerRecord | None: ...

    def last_entry(self, ledger_id: int) -> int: ...

    def has(self, ledger_id: int, entry_id: int) -> bool: ...


@dataclass(slots=True)
class LedgerReplica:
    """One ledger, as it will be when all that is in line is durable."""

    record: LedgerRecord
    # No entry above this is held or in line.
    highest_entry_id: int
    # Whether the storage has a `LedgerRecord` of it, or one is in line.
    known: bool
    # The highest entry when the ledger came to mind. It was durable.
    loaded_highest: int = -1
    # In line: entry id → record and the group that it is in.
    pending: dict[int, tuple[bytes, CommitGroup]] = field(default_factory=dict)
    # The last group that changes `record`, until it is durable.
    changing: CommitGroup | None = None
    # The highest LAC that is durable; None until the record of `loaded_highest` was read.
    last_add_confirmed: int | None = None
    # The highest one without that record's: to be taken into account when that has been read.
    confirmed_since: int = -1

    @property
    def busy(self) -> bool:
        return bool(self.pending) or self.changing is not None

    def confirm(self, last_add_confirmed: int) -> bool:
        """This LAC is durable; whether it is news. It never falls."""
        known = self.confirmed_since if self.last_add_confirmed is None else self.last_add_confirmed
        if last_add_confirmed <= known:
            return False
        self.confirmed_since = last_add_confirmed
        if self.last_add_confirmed is not None:
            self.last_add_confirmed = last_add_confirmed
        return True


class ReplicaCache:
    def __init__(self, storage: LedgerView, max_ledgers: int) -> None:
        self._storage = storage
        self._max_ledgers = max_ledgers
        # The one used last is at the end.
        self._ledgers: dict[int, LedgerReplica] = {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def known(self, ledger_id: int) -> LedgerReplica | None:
        """The ledger, if the bookie was ever told of it: questions about others leave nothing behind."""
        replica = self._ledgers.pop(ledger_id, None)
        if replica is None:
            record = self._storage.ledger(ledger_id)
            if record is None:
                return None
            replica = self._load(ledger_id, record, known=True)
        self._ledgers[ledger_id] = replica
        return replica

    def in_mind(self, ledger_id: int) -> LedgerReplica | None:
        """The ledger, if it is in mind: one that has anything in line is."""
        return self._ledgers.get(ledger_id)

    def known_or_new(self, ledger_id: int) -> LedgerReplica:
        """The ledger, which is about to be told of."""
        replica = self.known(ledger_id)
        if replica is None:
            replica = self._ledgers[ledger_id] = self._load(ledger_id, LedgerRecord(), known=False)
        return replica

    def _load(self, ledger_id: int, record: LedgerRecord, *, known: bool) -> LedgerReplica:
        self._forget_some()
        highest = self._storage.last_entry(ledger_id)
        return LedgerReplica(
            record,
            highest,
            known,
            loaded_highest=highest,
            # Without entries the explicit LAC is all there is.
            last_add_confirmed=record.last_add_confirmed if highest < 0 else None,
            confirmed_since=record.last_add_confirmed,
        )

    def _forget_some(self) -> None:
        passed_over: dict[int, LedgerReplica] = {}
        while len(self._ledgers) >= self._max_ledgers and len(passed_over) < _PASSED_OVER:
            ledger_id = next(iter(self._ledgers))
            replica = self._ledgers.pop(ledger_id)
            if replica.busy:
                passed_over[ledger_id] = replica
        self._ledgers.update(passed_over)
