"""Rules of adds: when an add completes, which bookies are sent it again, and when all adds of a ledger fail.

Theory of operation
-------------------
Pending adds are the entries above the LAC, without gaps. Each has a mask: bit s is set when the bookie in slot s of the
current ensemble has the entry on its disk. Events (`mark_acked`, `mark_bookie_failed`, `fail`) are only noted. `decide`
then returns what follows from all of them. If the caller calls it once after all events of a turn of the event loop, no
add completes on the strength of an answer from before a failure that was noted in the same turn. `decide` applies these
rules in order:

    1. The ledger is lost, or a change failed: all pending adds fail, in order.
    2. A change is in flight: nothing happens.
    3. A slot failed, or an absent one is to be tried again, and a replacement is available: a change begins.
    4. Adds complete from the lowest on, as long as the lowest is stored by an ack quorum.
    5. A write set has too few present slots for an ack quorum: all other pending adds fail.

4 comes before 5, since an entry on the disks of an ack quorum stays there, whichever bookies fail later.

An answer counts whenever it arrives, if its bookie is in a slot of the entry's write set: it reports what is on the
bookie's disk. A repeated answer, or one about an entry that is not pending, changes nothing. A change clears the
replaced slots in all masks, and the new bookies are sent the pending entries.

No add completes during a change. So when the change is committed, the LAC is still the one from which its fragment's
first entry was derived.

Bookies that lag are in `ensemble`. Before `decide` the caller leaves those that the ledger can do without
(`Ensemble.unneeded_lagging_bookies`), and reports them as failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar_bookie.errors import AddFailed, NotEnoughBookies
from magnetar_bookie.ledger.ensemble_rules import ChooseReplacement, Ensemble, EnsembleChange
from magnetar_bookie.read.striping import Fragment, Striping

__all__ = ["Action", "Complete", "Fail", "PendingAdds", "Send"]


@dataclass(frozen=True, slots=True)
class Send:
    """Send these pending entries to the bookie in this slot."""

    slot: int
    entry_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete all adds up to this entry."""

    up_to: int


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail all pending adds and all later ones."""

    error: AddFailed


# EnsembleChange: publish it in the ledger's metadata.
Action = Complete | EnsembleChange | Fail


class PendingAdds:
    """The pending adds of one ledger."""

    __slots__ = (
        "_all_slots",
        "_choose",
        "_is_failure_reported",
        "_ledger_id",
        "_masks",
        "_striping",
        "ensemble",
        "failure",
        "fragment",
        "last_add_confirmed",
        "next_entry_id",
    )

    def __init__(
        self, ledger_id: int, striping: Striping, fragment: Fragment, next_entry_id: int, choose: ChooseReplacement
    ) -> None:
        self._ledger_id = ledger_id
        self._striping = striping
        self._choose = choose
        self.ensemble = Ensemble(striping, fragment.bookies)
        # The last fragment in the metadata.
        self.fragment = fragment
        self.next_entry_id = next_entry_id
        self.last_add_confirmed = next_entry_id - 1
        # Of the entries last_add_confirmed + 1 … next_entry_id - 1, in order: the slots that have the entry.
        self._masks: dict[int, int] = {}
        # All slots if each stores all entries (E = Qw), else None.
        is_striped = striping.ensemble_size > striping.write_quorum
        self._all_slots = None if is_striped else tuple(range(striping.ensemble_size))
        # Why all adds fail.
        self.failure: AddFailed | None = None
        self._is_failure_reported = False

    @property
    def blocking_bookies(self) -> list[str]:
        """The lagging bookies that the ledger needs. The caller adds nothing until they have caught up."""
        return [] if self.failure is not None else self.ensemble.lagging_bookies

    def add(self, first_entry_id: int, count: int) -> list[tuple[Sequence[int], int, int]]:
        """Add entries. Return what to send now: slots, the first entry, and the number of entries."""
        assert first_entry_id == self.next_entry_id, "entry ids have no gaps"
        assert self.failure is None, "after a failure no more entries are accepted"
        self.next_entry_id = first_entry_id + count
        entry_ids = range(first_entry_id, self.next_entry_id)
        self._masks.update(dict.fromkeys(entry_ids, 0))
        if self._all_slots is None:
            return [(self._present(self._striping.write_set(entry_id)), entry_id, 1) for entry_id in entry_ids]
        slots = self._all_slots if self.ensemble.all_present else self._present(self._all_slots)
        return [(slots, first_entry_id, count)]

    def _present(self, slots: Sequence[int]) -> Sequence[int]:
        ensemble = self.ensemble
        return slots if ensemble.all_present else [slot for slot in slots if ensemble.is_present(slot)]

    def mark_acked(self, bookie_id: str, first_entry_id: int, count: int) -> None:
        """Note that the bookie has these entries on its disk."""
        slot = self.ensemble.slots.get(bookie_id)
        if slot is None or self.failure is not None:
            return
        bit, masks = 1 << slot, self._masks
        low = max(first_entry_id, self.last_add_confirmed + 1)
        high = min(first_entry_id + count, self.next_entry_id)
        if self._all_slots is not None:
            for entry_id in range(low, high):
                masks[entry_id] |= bit
            return
        for entry_id in range(low, high):
            if self._striping.holds(slot, entry_id):
                masks[entry_id] |= bit

    def mark_bookie_failed(self, bookie_id: str) -> bool:
        """Note that nothing more can be expected of the bookie. Return False if that changes nothing."""
        return self.failure is None and self.ensemble.mark_failed(bookie_id)

    def fail(self, error: AddFailed) -> None:
        """Fail all adds: the ledger is lost, or its owner abandons it. The first error counts."""
        if self.failure is None:
            self.failure = error
            self._masks.clear()

    def commit_change(self) -> list[Send]:
        """End the change in flight, which the metadata have now. Return what the new bookies must be sent."""
        change = self.ensemble.commit_change()
        if self.failure is not None:
            return []
        assert change.fragment.first_entry_id == self.last_add_confirmed + 1, "an add completed during a change"
        self.fragment = change.fragment
        unchanged = ~sum(1 << slot for slot in change.replaced)
        for entry_id in self._masks:
            self._masks[entry_id] &= unchanged
        return [Send(slot, self._entries_of(slot)) for slot in change.replaced]

    def _entries_of(self, slot: int) -> list[int]:
        return [entry_id for entry_id in self._masks if self._striping.holds(slot, entry_id)]

    def decide(self) -> list[Action]:
        """Return what follows from all events since the last call."""
        if self.failure is not None:
            return self._report_failure()
        ensemble = self.ensemble
        if ensemble.change is not None:
            return []
        if not ensemble.all_present:
            change = ensemble.begin_change(self.last_add_confirmed + 1, self._choose)
            if change is not None:
                return [change]
        actions: list[Action] = []
        entry_id = self._find_last_complete()
        if entry_id > self.last_add_confirmed:
            self.last_add_confirmed = entry_id
            actions.append(Complete(entry_id))
        if not ensemble.all_present and (slots := ensemble.find_short_write_set()) is not None:
            self.fail(NotEnoughBookies(self._describe_shortage(slots)))
            actions += self._report_failure()
        return actions

    def _find_last_complete(self) -> int:
        """Drop the adds that are complete, and return the last of them."""
        masks, quorum = self._masks, self._striping.ack_quorum
        entry_id = self.last_add_confirmed + 1
        while entry_id < self.next_entry_id and masks[entry_id].bit_count() >= quorum:
            del masks[entry_id]
            entry_id += 1
        return entry_id - 1

    def _report_failure(self) -> list[Action]:
        if self._is_failure_reported or self.failure is None:
            return []
        self._is_failure_reported = True
        return [Fail(self.failure)]

    def _describe_shortage(self, slots: Sequence[int]) -> str:
        names, is_present = self.ensemble.bookies, self.ensemble.is_present
        present = [names[slot] for slot in slots if is_present(slot)]
        missing = [names[slot] for slot in slots if not is_present(slot)]
        return (
            f"ledger {self._ledger_id} needs {self._striping.ack_quorum} of every {len(slots)} bookies for "
            f"its adds, but of {', '.join(names[slot] for slot in slots)} only {len(present)} store them, and "
            f"no other bookie can replace {', '.join(missing)}: close the ledger, and create another one when "
            "more bookies are registered"
        )
