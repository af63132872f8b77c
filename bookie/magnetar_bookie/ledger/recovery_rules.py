"""The rules by which a recovery finds the end of a ledger. See protocol.md, "Recovery", for why they hold.

`FenceAnswers` hears which slots of the last fragment are fenced, until no ack quorum can form among the rest. Then
`RecoveryReads` hears what the slots' bookies answer to recovery reads, and decides entry by entry, from the first that
may be unconfirmed:

    one record             the entry is kept
    Qw - Qa + 1 times no   no ack quorum ever had it: the ledger ends before it
    a damaged one, and     the others of the write set have answered no, damaged or unknown: the entry is kept, and lost
    nobody has a record
    otherwise              undecided: who gave no answer is asked again

Only "no such entry" is a no. A time-out, limbo and other failures are not, and are kept for the message of a recovery
that has to give up. Damage is no "no" either: the bookie had the entry, so an ack quorum may have had it, and
the ledger must not end before it. When no bookie of the write set is left that could give the record, waiting changes
nothing: the entry counts as stored, and costs itself alone. A decision is made once: what is heard of a decided entry
later is not looked at.

Each slot is read by itself, from where it stands, at most `window_entries` beyond the oldest kept record that was not
taken yet, and not beyond the first undecided entry while the records held take `window_bytes` of memory: a slot that
lags or hangs holds nobody up, and memory has a bound. Entries that are decided when a slot's turn comes are not read
from it.
"""

from __future__ import annotations

from collections import deque

from magnetar_bookie.read.read_answer import MissingReason, ReadEntries
from magnetar_bookie.read.record import NO_ENTRY
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_wire.entry_memory import count_entry_memory

__all__ = ["FenceAnswers", "RecoveryReads", "first_to_recover"]


class FenceAnswers:
    """Who of the last fragment's ensemble is fenced."""

    def __init__(self, striping: Striping) -> None:
        self._coverage = striping.fence_coverage
        self._fenced: dict[int, None] = {}
        # The highest answered: each is a true lower bound.
        self.last_add_confirmed = NO_ENTRY

    def fenced(self, slot: int, last_add_confirmed: int) -> None:
        self._fenced[slot] = None
        self.last_add_confirmed = max(self.last_add_confirmed, last_add_confirmed)

    @property
    def covered(self) -> bool:
        """No ack quorum is left among those that are not fenced."""
        return len(self._fenced) >= self._coverage


def first_to_recover(last_fragment: Fragment, last_add_confirmed: int) -> int:
    """A fragment begins above a LAC of the writer's: all before it was completed, whatever the bookies know of that."""
    return max(last_add_confirmed, last_fragment.first_entry_id - 1) + 1


class RecoveryReads:
    """What the slots have answered, and what follows from it."""

    def __init__(self, striping: Striping, first_entry_id: int, *, window_entries: int, window_bytes: int) -> None:
        self._striping = striping
        self._window_entries = window_entries
        self._window_bytes = window_bytes
        # The first entry that is not decided.
        self.undecided = first_entry_id
        # Once the end is found: the ledger's last entry.
        self.last_entry_id: int | None = None
        # Kept records to be taken, in order: those of the entries right below `undecided`. None: the entry is lost.
        self._kept: deque[tuple[int, bytes | None]] = deque()
        # Good records of `undecided` and above.
        self._found: dict[int, bytes] = {}
        self._held_bytes = 0
        # Of `undecided` and above, by entry and slot: no, or why there was no answer.
        self._said: dict[int, dict[int, MissingReason | str]] = {}
        # From where each slot is to be read on.
        self._next = [first_entry_id] * striping.ensemble_size

    def ask(self, slot: int) -> tuple[int, int] | None:
        """The first and the last entry to read from this slot now; None: nothing, until something changes.

        A slot has one read under way at a time, and every read ends with `answered` or `not_answered`.
        """
        if self.last_entry_id is not None:
            return None
        first = max(self._next[slot], self.undecided)
        while not self._striping.holds(slot, first):
            first += 1
        last = self.undecided - len(self._kept) + self._window_entries - 1
        full = self._held_bytes >= self._window_bytes and (bool(self._kept) or first > self.undecided)
        return None if first > last or full else (first, last)

    def needs(self, slot: int) -> bool:
        """Return whether the slot must be asked for the undecided entry, for the first time or again."""
        asked = self.ask(slot)
        return (asked is not None and asked[0] == self.undecided) or self.is_answer_missing(slot)

    def answered(self, slot: int, read: ReadEntries) -> None:
        self._next[slot] = read.next_entry_id
        for entry_id, found in read.entries.items():
            if self._open(slot, entry_id):
                if isinstance(found, MissingReason):
                    self._say(slot, entry_id, found)
                elif entry_id not in self._found:
                    self._found[entry_id] = found
                    self._held_bytes += count_entry_memory([found])
        self._decide()

    def not_answered(self, slot: int, first: int, last: int, reason: str) -> None:
        """A read from `first` to `last` came to nothing."""
        self._next[slot] = last + 1
        for entry_id in range(max(first, self.undecided), last + 1):
            if self._open(slot, entry_id):
                self._say(slot, entry_id, reason)

    def is_answer_missing(self, slot: int) -> bool:
        """The slot was asked for the entry on which all waits, and gave no answer: `ask_again`, after a pause."""
        return (
            self.last_entry_id is None
            and self._next[slot] > self.undecided
            and self._striping.holds(slot, self.undecided)
            and self._said.get(self.undecided, {}).get(slot) is not MissingReason.ABSENT
        )

    def ask_again(self, slot: int) -> None:
        if self.is_answer_missing(slot):
            self._next[slot] = self.undecided

    @property
    def next_is_lost(self) -> bool:
        """What `take` returns next has no record."""
        return bool(self._kept) and self._kept[0][1] is None

    def take(self) -> tuple[int, bytes | None] | None:
        """The next kept entry and its record, in order; without a record where it is lost."""
        if not self._kept:
            return None
        entry_id, record = self._kept.popleft()
        if record is not None:
            self._held_bytes -= count_entry_memory([record])
        return entry_id, record

    @property
    def done(self) -> bool:
        """The end is found and every kept record taken."""
        return self.last_entry_id is not None and not self._kept

    @property
    def held_bytes(self) -> int:
        """The memory of the records that were read and not taken."""
        return self._held_bytes

    @property
    def has_kept(self) -> bool:
        """There is a record for `take`."""
        return bool(self._kept)

    def answers(self) -> dict[int, str]:
        """What each slot of the undecided entry's write set said of it."""
        said = self._said.get(self.undecided, {})
        return {
            slot: answer.value if isinstance(answer, MissingReason) else answer
            for slot in self._striping.write_set(self.undecided)
            for answer in (said.get(slot, "it has not answered"),)
        }

    def _open(self, slot: int, entry_id: int) -> bool:
        """The slot's word on this entry counts, and is still of use."""
        return self.last_entry_id is None and entry_id >= self.undecided and self._striping.holds(slot, entry_id)

    def _say(self, slot: int, entry_id: int, said: MissingReason | str) -> None:
        """Note an answer, or why there was none.

        A no stays one: the bookie was fenced before it said so. Damage stays, unless a no follows. A failure to answer
        does not revoke an earlier answer.
        """
        by_slot = self._said.setdefault(entry_id, {})
        known = by_slot.get(slot)
        if isinstance(known, MissingReason) and not isinstance(said, MissingReason):
            return
        if known is not MissingReason.ABSENT and (known is not MissingReason.DAMAGED or said is MissingReason.ABSENT):
            by_slot[slot] = said

    def _decide(self) -> None:
        while (record := self._found.pop(self.undecided, None)) is not None or self._is_lost(self.undecided):
            self._kept.append((self.undecided, record))
            self._said.pop(self.undecided, None)
            self.undecided += 1
        if self.last_entry_id is None and self._noes(self.undecided) >= self._striping.read_coverage:
            self.last_entry_id = self.undecided - 1
            self._held_bytes -= count_entry_memory([*self._found.values()])
            self._found.clear()

    def _noes(self, entry_id: int) -> int:
        return sum(said is MissingReason.ABSENT for said in self._said.get(entry_id, {}).values())

    def _is_lost(self, entry_id: int) -> bool:
        """No bookie can give its record any more, and an ack quorum may have had it."""
        said = self._said.get(entry_id, {})
        return (
            MissingReason.DAMAGED in said.values()
            and self._noes(entry_id) < self._striping.read_coverage
            and all(isinstance(said.get(slot), MissingReason) for slot in self._striping.write_set(entry_id))
        )
