"""The ledgers that a bookie holds in memory: their state, with all changes that are pending.

A change is pending until its group is durable. A ledger without pending changes can be loaded from the storage again,
so the least recently used ones are evicted when there are too many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from magnetar_bookie.server.group_commit_rules import CommitGroup
from magnetar_bookie.storage.interface import LedgerData

__all__ = ["LedgerReplica", "LedgerView", "ReplicaCache"]

# Maximum number of ledgers with pending changes that one eviction skips.
_MAX_SKIPPED: Final = 8


class LedgerView(Protocol):
    """The part of `LedgerStorage` that the rules read. It answers at once."""

    def get_ledger(self, ledger_id: int) -> LedgerData | None: ...

    def get_last_entry_id(self, ledger_id: int) -> int: ...

    def has_entry(self, ledger_id: int, entry_id: int) -> bool: ...


@dataclass(slots=True)
class LedgerReplica:
    """One ledger, as it will be when all pending changes are durable."""

    data: LedgerData
    # The highest entry that is stored or pending.
    highest_entry_id: int
    # The storage has a `LedgerData` of this ledger, or one is pending.
    is_known: bool
    # The highest entry when the ledger was loaded. It was durable.
    loaded_highest_entry_id: int = -1
    # Pending records: entry id → record and the group that it is in.
    pending: dict[int, tuple[bytes, CommitGroup]] = field(default_factory=dict)
    # The last group that changes `data`, until it is durable.
    changing_group: CommitGroup | None = None
    # The highest durable LAC; None until the record of `loaded_highest_entry_id` has been read.
    last_add_confirmed: int | None = None
    # The highest durable LAC without that record's.
    lac_without_loaded: int = -1

    @property
    def is_pending(self) -> bool:
        return bool(self.pending) or self.changing_group is not None

    def raise_lac(self, last_add_confirmed: int) -> bool:
        """Note a durable LAC. Return whether it is higher than before: the LAC never falls."""
        before = self.lac_without_loaded if self.last_add_confirmed is None else self.last_add_confirmed
        if last_add_confirmed <= before:
            return False
        self.lac_without_loaded = last_add_confirmed
        if self.last_add_confirmed is not None:
            self.last_add_confirmed = last_add_confirmed
        return True


class ReplicaCache:
    def __init__(self, storage: LedgerView, max_ledgers: int) -> None:
        self._storage = storage
        self._max_ledgers = max_ledgers
        # The most recently used one is the last.
        self._ledgers: dict[int, LedgerReplica] = {}

    def __len__(self) -> int:
        return len(self._ledgers)

    def get(self, ledger_id: int) -> LedgerReplica | None:
        """Return the ledger, loaded if necessary. None: the bookie doesn't know it, and nothing is cached."""
        replica = self._ledgers.pop(ledger_id, None)
        if replica is None:
            data = self._storage.get_ledger(ledger_id)
            if data is None:
                return None
            replica = self._load(ledger_id, data, is_known=True)
        self._ledgers[ledger_id] = replica
        return replica

    def get_cached(self, ledger_id: int) -> LedgerReplica | None:
        """Return the ledger if it is in memory. A ledger with pending changes always is."""
        return self._ledgers.get(ledger_id)

    def get_or_create(self, ledger_id: int) -> LedgerReplica:
        """Return the ledger, a new one if the bookie doesn't know it: the caller is about to change it."""
        replica = self.get(ledger_id)
        if replica is None:
            replica = self._ledgers[ledger_id] = self._load(ledger_id, LedgerData(), is_known=False)
        return replica

    def _load(self, ledger_id: int, data: LedgerData, *, is_known: bool) -> LedgerReplica:
        self._evict_idle()
        highest = self._storage.get_last_entry_id(ledger_id)
        return LedgerReplica(
            data,
            highest,
            is_known,
            loaded_highest_entry_id=highest,
            # Without entries there is only the explicit LAC.
            last_add_confirmed=data.last_add_confirmed if highest < 0 else None,
            lac_without_loaded=data.last_add_confirmed,
        )

    def _evict_idle(self) -> None:
        skipped: dict[int, LedgerReplica] = {}
        while len(self._ledgers) >= self._max_ledgers and len(skipped) < _MAX_SKIPPED:
            ledger_id = next(iter(self._ledgers))
            replica = self._ledgers.pop(ledger_id)
            if replica.is_pending:
                skipped[ledger_id] = replica
        self._ledgers.update(skipped)
