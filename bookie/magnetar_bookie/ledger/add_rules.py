"""The rules of adding: when an add completes, who is sent what again, and when all of it fails.

Theory of operation
-------------------
Pending adds are the entries above the LAC, without gaps. For each there is a mask: bit s is set when slot s of the
present ensemble has the entry on its disk. Events only note what they say (`acked`, `bookie_failed`, `lose`); `settle`
then looks at all of it and says what follows. So whoever calls `settle` once after all events at hand has seen every
failure before anything completes on the strength of an answer from before it:

    1. the ledger is lost, or a change failed: everything pending fails, in order;
    2. a change is under way: nothing;
    3. slots have failed, or may be refilled, and the placement has somebody: a change begins;
    4. adds complete from the lowest id on, as long as the lowest one has an ack quorum;
    5. a write set has too few slots left that take entries: the rest fails.

4 comes before 5 since what is on an ack quorum's disks stays there, whoever fails then.

An answer counts whenever it comes, as long as its bookie is in the ensemble in a slot that is to hold the entry: it
tells what is on that bookie's disk. Told twice, or of an entry that has completed or never was, it changes nothing.
A change takes the slots that it replaces out of all masks, and has the pending entries sent to who is there now.

Nothing completes during a change, so the LAC that its fragment was made from is still the LAC when it is made.

Bookies that lag are noted, too (`set_lagging`). Before it calls `settle` the caller asks which of them the ledger can
do without (`dispensable`), leaves those, and reports them as failed. The rule is in
bookie/magnetar_bookie/ledger/ensemble_rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar_bookie.errors import AddFailed, NotEnoughBookies
from magnetar_bookie.ledger.ensemble_rules import Change, Choose, Ensemble
from magnetar_bookie.read.striping import Fragment, Striping

__all__ = ["Action", "Complete", "Fail", "PendingAdds", "Send"]


@dataclass(frozen=True, slots=True)
class Send:
    """These pending entries go to the bookie in this slot, again or for the first time."""

    slot: int
    entry_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Complete:
    """All adds up to this one have completed."""

    up_to: int


@dataclass(frozen=True, slots=True)
class Fail:
    """All pending adds fail, and all later ones."""

    error: AddFailed


Action = Complete | Change | Fail


class PendingAdds:
    """One ledger's pending adds."""

    def __init__(
        self, ledger_id: int, striping: Striping, fragment: Fragment, next_entry_id: int, choose: Choose
    ) -> None:
        self._ledger_id = ledger_id
        self._striping = striping
        self._choose = choose
        self._ensemble = Ensemble(striping, fragment.bookies)
        # The last fragment, as the metadata has it.
        self.fragment = fragment
        self.next_entry_id = next_entry_id
        self.last_add_confirmed = next_entry_id - 1
        # last_add_confirmed + 1 … next_entry_id - 1, in order, and which slots have each.
        self._masks: dict[int, int] = {}
        # With E = Qw every slot holds every entry.
        self._all_slots = tuple(range(striping.ensemble_size)) if self._every_slot_holds_all() else None
        self.failed: AddFailed | None = None
        self._failure_told = False

    def _every_slot_holds_all(self) -> bool:
        return self._striping.ensemble_size == self._striping.write_quorum

    @property
    def changing(self) -> bool:
        return self._ensemble.changing is not None

    @property
    def absent(self) -> list[int]:
        """Slots that nobody could be found for."""
        return self._ensemble.absent

    def add(self, entry_id: int) -> Sequence[int]:
        """A new add. Returns the slots whose bookies are to be sent it now."""
        assert entry_id == self.next_entry_id, "entry ids have no gaps"
        assert self.failed is None, "a failed pipeline accepts no more entries"
        self._masks[entry_id] = 0
        self.next_entry_id = entry_id + 1
        slots = self._all_slots or self._striping.write_set(entry_id)
        return slots if self._ensemble.all_present else [slot for slot in slots if self._ensemble.present(slot)]

    def add_run(self, first_entry_id: int, count: int) -> list[tuple[Sequence[int], int, int]]:
        """New adds. Returns what is to be sent now: the slots, and which entries go to them (the first, how many)."""
        if self._all_slots is None:
            entry_ids = range(first_entry_id, first_entry_id + count)
            return [(self.add(entry_id), entry_id, 1) for entry_id in entry_ids]
        assert first_entry_id == self.next_entry_id, "entry ids have no gaps"
        assert self.failed is None, "a failed pipeline accepts no more entries"
        self.next_entry_id = first_entry_id + count
        self._masks.update(dict.fromkeys(range(first_entry_id, self.next_entry_id), 0))
        slots: Sequence[int] = self._all_slots
        if not self._ensemble.all_present:
            slots = [slot for slot in slots if self._ensemble.present(slot)]
        return [(slots, first_entry_id, count)]

    def acked(self, bookie_id: str, first_entry_id: int, count: int) -> None:
        """The bookie has these entries on its disk."""
        slot = self._ensemble.slot_of(bookie_id)
        if slot is None:
            return
        bit, masks = 1 << slot, self._masks
        low = max(first_entry_id, self.last_add_confirmed + 1)
        high = min(first_entry_id + count, self.next_entry_id)
        if self.failed is not None:
            return
        if self._all_slots is not None:
            for entry_id in range(low, high):
                masks[entry_id] |= bit
            return
        for entry_id in range(low, high):
            if self._striping.holds(slot, entry_id):
                masks[entry_id] |= bit

    def bookie_failed(self, bookie_id: str) -> bool:
        """Nothing more can be expected of it. Whether that is news of a bookie of this ensemble."""
        return self.failed is None and self._ensemble.fail(bookie_id)

    def set_lagging(self, bookie_id: str, lags: bool) -> None:
        """The bookie is over its lag bound, or has caught up."""
        self._ensemble.set_lagging(bookie_id, lags)

    def dispensable(self) -> list[str]:
        """The lagging bookies that the ledger can do without. The caller leaves them and calls `bookie_failed`."""
        return [] if self.failed is not None else self._ensemble.dispensable()

    @property
    def held_up_by(self) -> list[str]:
        """The lagging bookies that the ledger goes on with: it adds nothing more until they have caught up."""
        return [] if self.failed is not None else self._ensemble.held_up_by

    def refill_absent_slots(self) -> None:
        """Absent slots may be filled again."""
        self._ensemble.refill_absent_slots()

    def lose(self, error: AddFailed) -> None:
        """The ledger is lost, or given up. The first reason stays."""
        if self.failed is None:
            self.failed = error
            self._masks.clear()

    def abort_change(self) -> None:
        """The metadata will not have the change that is under way: the next `settle` chooses other bookies."""
        self._ensemble.abort_change()

    def commit_change(self) -> list[Send]:
        """The metadata has the change that is under way."""
        change = self._ensemble.commit_change()
        if self.failed is not None:
            return []
        assert change.fragment.first_entry_id == self.last_add_confirmed + 1, "an add completed during a change"
        self.fragment = change.fragment
        kept = ~sum(1 << slot for slot in change.replaced)
        for entry_id in self._masks:
            self._masks[entry_id] &= kept
        return [Send(slot, self._held_by(slot)) for slot in change.replaced]

    def _held_by(self, slot: int) -> list[int]:
        return [entry_id for entry_id in self._masks if self._striping.holds(slot, entry_id)]

    def settle(self) -> list[Action]:
        """What follows from all that was noted. To be called again after each event, or after several."""
        if self.failed is not None:
            return self._tell_failure()
        if self._ensemble.changing is not None:
            return []
        change = self._ensemble.begin_change(self.last_add_confirmed + 1, self._choose)
        if change is not None:
            return [change]
        actions: list[Action] = []
        entry_id = self._complete()
        if entry_id > self.last_add_confirmed:
            self.last_add_confirmed = entry_id
            actions.append(Complete(entry_id))
        short = self._ensemble.find_short_write_set()
        if short is not None:
            self.lose(NotEnoughBookies(self._too_few(short)))
            actions += self._tell_failure()
        return actions

    def _complete(self) -> int:
        masks, quorum = self._masks, self._striping.ack_quorum
        entry_id = self.last_add_confirmed + 1
        while entry_id < self.next_entry_id and masks[entry_id].bit_count() >= quorum:
            del masks[entry_id]
            entry_id += 1
        return entry_id - 1

    def _tell_failure(self) -> list[Action]:
        if self._failure_told or self.failed is None:
            return []
        self._failure_told = True
        return [Fail(self.failed)]

    def _too_few(self, slots: Sequence[int]) -> str:
        names = self._ensemble.bookies
        left = [names[slot] for slot in slots if self._ensemble.present(slot)]
        away = [names[slot] for slot in slots if not self._ensemble.present(slot)]
        return (
            f"ledger {self._ledger_id} needs {self._striping.ack_quorum} of every {len(slots)} bookies for "
            f"its adds, but of {', '.join(names[slot] for slot in slots)} only {len(left)} store them, and "
            f"no other bookie can replace {', '.join(away)}: close the ledger, and create another one when "
            "more bookies are registered"
        )
