"""Rules by which a recovery finds the end of a ledger. protocol.md, "Recovery", has the proof.

`FenceAnswers` counts the fenced slots of the last fragment, until the others can't form an ack quorum. Then
`RecoveryReads` gets the answers of the slots' bookies to recovery reads, and decides entry by entry, from the first one
that may be unconfirmed:

    one valid record                     the entry is recovered
    Qw - Qa + 1 answers "absent"         no ack quorum ever had the entry: the ledger ends before it
    no valid record, a damaged one, and  the entry is recovered without a record: it is lost
    an answer of each other bookie
    otherwise                            undecided: bookies that did not answer are read again

Only "absent" means that the bookie never had the entry. Timeouts, limbo and other failures don't. They are recorded for
the error of a recovery that fails. Damage doesn't either: the bookie had the entry, so an ack quorum may have had it,
and the ledger must not end before it. If no bookie of the write set can return the record any more, waiting changes
nothing: only this entry is lost. A decision is final: later answers about a decided entry are ignored.

Each slot is read independently. It is read up to `window_entries` beyond the oldest recovered entry that was not
popped, and not beyond the first undecided entry while the held records take `window_bytes` of memory or more. So a slow
slot delays no other, and memory is bounded. Entries that are decided before a slot is read there are skipped.
"""

from __future__ import annotations

from collections import deque

from magnetar_bookie.read.read_answer import MissingReason, ReadEntries
from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_wire.entry_memory import count_entry_memory

__all__ = ["FenceAnswers", "RecoveryReads", "first_to_recover"]


class FenceAnswers:
    """The slots of the last fragment that are fenced."""

    def __init__(self, striping: Striping) -> None:
        self._coverage = striping.fence_coverage
        self._fenced: dict[int, None] = {}
        # The highest LAC in the answers, each of which is a true lower bound.
        self.last_add_confirmed = NO_ENTRY

    def add_answer(self, slot: int, last_add_confirmed: int) -> None:
        """Note that the slot is fenced."""
        self._fenced[slot] = None
        self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)

    @property
    def are_enough(self) -> bool:
        """Whether the slots that are not fenced can't form an ack quorum."""
        return len(self._fenced) >= self._coverage


def first_to_recover(last_fragment: Fragment, last_add_confirmed: int) -> int:
    """Return the first entry that may be unconfirmed.

    A fragment begins above an LAC of the writer, which the bookies may not know.
    """
    return max(last_add_confirmed, last_fragment.first_entry_id - 1) + 1


class RecoveryReads:
    """The answers of the slots to recovery reads, and the decisions about entries."""

    def __init__(self, striping: Striping, first_entry_id: int, *, window_entries: int, window_bytes: int) -> None:
        self._striping = striping
        self._window_entries = window_entries
        self._window_bytes = window_bytes
        # The first undecided entry.
        self.undecided = first_entry_id
        # The last entry of the ledger; None: not found yet.
        self.last_entry_id: int | None = None
        # Recovered entries that were not popped, in order: those right below `undecided`. None: the entry is lost.
        self._recovered: deque[tuple[int, bytes | None]] = deque()
        # Valid records of `undecided` and above.
        self._found: dict[int, bytes] = {}
        # The memory of the records in both.
        self.held_bytes = 0
        # Of `undecided` and above, by entry and slot: why the slot returned no record.
        self._missing: dict[int, dict[int, MissingReason | str]] = {}
        # By slot: the entry from which it is read next.
        self._next = [first_entry_id] * striping.ensemble_size

    def next_range(self, slot: int) -> tuple[int, int] | None:
        """Return the first and the last entry to read from this slot now; None: nothing until something changes.

        A slot has one read in flight at a time. Each ends with `add_answer` or `add_failure`.
        """
        if self.last_entry_id is not None:
            return None
        first = max(self._next[slot], self.undecided)
        while not self._striping.holds(slot, first):
            first += 1
        last = self.undecided - len(self._recovered) + self._window_entries - 1
        is_full = self.held_bytes >= self._window_bytes and (bool(self._recovered) or first > self.undecided)
        return None if first > last or is_full else (first, last)

    def needs(self, slot: int) -> bool:
        """Return whether the slot must be read from the undecided entry on, for the first time or again."""
        entries = self.next_range(slot)
        return (entries is not None and entries[0] == self.undecided) or self.is_answer_missing(slot)

    def add_answer(self, slot: int, read: ReadEntries) -> None:
        """Note an answer of a slot."""
        self._next[slot] = read.next_entry_id
        for entry_id, found in read.entries.items():
            if self._counts(slot, entry_id):
                if isinstance(found, MissingReason):
                    self._note_missing(slot, entry_id, found)
                elif entry_id not in self._found:
                    self._found[entry_id] = found
                    self.held_bytes += count_entry_memory([found])
        self._decide()

    def add_failure(self, slot: int, first: int, last: int, reason: str) -> None:
        """Note that a read from `first` to `last` failed."""
        self._next[slot] = last + 1
        for entry_id in range(max(first, self.undecided), last + 1):
            if self._counts(slot, entry_id):
                self._note_missing(slot, entry_id, reason)

    def is_answer_missing(self, slot: int) -> bool:
        """Return whether a read of the undecided entry from this slot did not help: `retry` it after a pause."""
        return (
            self.last_entry_id is None
            and self._next[slot] > self.undecided
            and self._striping.holds(slot, self.undecided)
            and self._missing.get(self.undecided, {}).get(slot) is not MissingReason.ABSENT
        )

    def retry(self, slot: int) -> None:
        """Have the undecided entry read from this slot again, if that may help."""
        if self.is_answer_missing(slot):
            self._next[slot] = self.undecided

    @property
    def next_is_lost(self) -> bool:
        """Whether the next recovered entry has no record."""
        return bool(self._recovered) and self._recovered[0][1] is None

    def pop_recovered(self) -> tuple[int, bytes | None] | None:
        """Remove the next recovered entry and return it with its record; the record of a lost entry is None."""
        if not self._recovered:
            return None
        entry_id, record = self._recovered.popleft()
        if record is not None:
            self.held_bytes -= count_entry_memory([record])
        return entry_id, record

    @property
    def has_recovered(self) -> bool:
        """Whether `pop_recovered` returns an entry."""
        return bool(self._recovered)

    @property
    def is_done(self) -> bool:
        """Whether the end is found and all recovered entries are popped."""
        return self.last_entry_id is not None and not self._recovered

    def describe_answers(self) -> dict[int, str]:
        """Return what each slot of the undecided entry's write set answered about it."""
        missing = self._missing.get(self.undecided, {})
        return {
            slot: reason.value if isinstance(reason, MissingReason) else reason
            for slot in self._striping.write_set(self.undecided)
            for reason in (missing.get(slot, "it has not answered"),)
        }

    def _counts(self, slot: int, entry_id: int) -> bool:
        """Return whether an answer of the slot about this entry counts, and is still of use."""
        return self.last_entry_id is None and entry_id >= self.undecided and self._striping.holds(slot, entry_id)

    def _note_missing(self, slot: int, entry_id: int, reason: MissingReason | str) -> None:
        """Note why the slot returned no record.

        "Absent" is final, since the bookie was fenced before it answered. "Damaged" is replaced only by "absent". A
        failed read does not revoke an earlier answer.
        """
        by_slot = self._missing.setdefault(entry_id, {})
        known = by_slot.get(slot)
        if isinstance(known, MissingReason) and not isinstance(reason, MissingReason):
            return
        if known is not MissingReason.ABSENT and (known is not MissingReason.DAMAGED or reason is MissingReason.ABSENT):
            by_slot[slot] = reason

    def _decide(self) -> None:
        while (record := self._found.pop(self.undecided, None)) is not None or self._is_lost(self.undecided):
            self._recovered.append((self.undecided, record))
            self._missing.pop(self.undecided, None)
            self.undecided += 1
        if self.last_entry_id is None and self._count_absent(self.undecided) >= self._striping.read_coverage:
            self.last_entry_id = self.undecided - 1
            self.held_bytes -= count_entry_memory([*self._found.values()])
            self._found.clear()

    def _count_absent(self, entry_id: int) -> int:
        return sum(reason is MissingReason.ABSENT for reason in self._missing.get(entry_id, {}).values())

    def _is_lost(self, entry_id: int) -> bool:
        """Return whether no bookie can return the record any more, although an ack quorum may have had the entry."""
        missing = self._missing.get(entry_id, {})
        return (
            MissingReason.DAMAGED in missing.values()
            and self._count_absent(entry_id) < self._striping.read_coverage
            and all(isinstance(missing.get(slot), MissingReason) for slot in self._striping.write_set(entry_id))
        )
