"""Rules of ensembles: how bookies are chosen, and how the ensemble of a ledger that is written changes.

`Ensemble` is the state of the last fragment's slots. Each slot is in one of four states:

    present ──fails──► failed ──replacement found──► being replaced ──metadata changed──► present
              ▲          │                             │      ▲
              └──────────┼────────── refused ──────────┘      │
                         └──no replacement──► absent ─────────┘  when another bookie is available

- **present**: the slot's bookie is sent every entry of the slot's write sets.
- **failed**: its bookie failed, and is sent nothing more. The next `begin_change` replaces it.
- **being replaced**: the metadata is being changed, and no add completes until it is. If a new bookie is being
  decommissioned, the change is refused, and other bookies are chosen.
- **absent**: no bookie could replace the failed one. That one stays in the ensemble and is sent nothing. Its earlier
  acknowledgements count, since those entries are on its disk.

A change names the slots that it replaces. Comparing the old ensemble with the new one would miss a bookie that returns
to the slot that it had left, although it lacks what was added in between.

Only one change is in flight at a time. Bookies that fail during it are replaced by the next one, before any add
completes.

A present bookie may also **lag**: it stores entries, but has more unanswered bytes than it may have. It is treated as
failed only if the ledger can do without it, that is if each of its write sets still has an ack quorum of present
bookies that don't lag (`unneeded_lagging_bookies`). Otherwise the ledger continues with the bookie, and adds nothing
until it has caught up. If lag alone failed a needed bookie, its adds would fail, and the ledger that the owner creates
next would need the same bookie, which is still busy with the entries of the previous one: no ledger would ever store
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar_bookie.read.striping import Fragment, Striping

if TYPE_CHECKING:
    from magnetar_wire.randomness import Randomness

__all__ = ["ChooseReplacement", "Ensemble", "EnsembleChange", "choose_ensemble", "choose_replacement"]

# Returns a bookie for one slot, given the bookies of the other slots; None: no bookie is available.
ChooseReplacement = Callable[[Sequence[str]], str | None]


def choose_ensemble(size: int, candidates: Sequence[str], randomness: Randomness) -> list[str]:
    """Return `size` of the candidates at random, or all of them if there are fewer."""
    chosen = list(candidates)
    randomness.shuffle(chosen)
    return chosen[:size]


def choose_replacement(others: Sequence[str], candidates: Sequence[str], randomness: Randomness) -> str | None:
    """Return one of the candidates for a slot, at random; None: all of them are in `others`, the other slots."""
    left = [candidate for candidate in candidates if candidate not in others]
    return randomness.choice(left) if left else None


@dataclass(frozen=True, slots=True)
class EnsembleChange:
    """A change of the ledger's metadata: from the fragment's first entry on, its bookies store the ledger."""

    fragment: Fragment
    # The slots with another bookie, in order.
    replaced: tuple[int, ...]

    @property
    def new_bookies(self) -> list[str]:
        """The bookies of the replaced slots."""
        return [self.fragment.bookies[slot] for slot in self.replaced]


class Ensemble:
    """The slots of a ledger's last fragment."""

    __slots__ = (
        "_absent",
        "_failed",
        "_striping",
        "_try_absent",
        "all_present",
        "bookies",
        "change",
        "lagging",
        "slots",
    )

    def __init__(self, striping: Striping, bookies: Sequence[str]) -> None:
        assert len(bookies) == striping.ensemble_size
        self._striping = striping
        self.bookies = list(bookies)
        self.slots = {bookie_id: slot for slot, bookie_id in enumerate(bookies)}
        # Ordered sets of slots, disjoint. Slots that are being replaced are in `_absent`.
        self._failed: dict[int, None] = {}
        self._absent: dict[int, None] = {}
        # Whether both are empty. A field, since each add looks at it.
        self.all_present = True
        # Bookies have become available since a replacement for the absent slots was last looked for.
        self._try_absent = False
        # An ordered set of present slots whose bookies lag.
        self.lagging: dict[int, None] = {}
        # The change in flight.
        self.change: EnsembleChange | None = None

    @property
    def absent_slots(self) -> list[int]:
        return list(self._absent)

    def is_present(self, slot: int) -> bool:
        return slot not in self._failed and slot not in self._absent

    def mark_failed(self, bookie_id: str) -> bool:
        """Note that the bookie failed. Return False if it is not in the ensemble or had failed before."""
        slot = self.slots.get(bookie_id)
        if slot is None or not self.is_present(slot):
            return False
        self._failed[slot] = None
        self.lagging.pop(slot, None)
        self.all_present = False
        return True

    def set_lagging(self, bookie_id: str, is_lagging: bool) -> None:
        """Note whether the bookie is over its lag bound."""
        slot = self.slots.get(bookie_id)
        if slot is None or not self.is_present(slot):
            return
        if is_lagging:
            self.lagging[slot] = None
        else:
            self.lagging.pop(slot, None)

    @property
    def lagging_bookies(self) -> list[str]:
        """The present bookies that lag."""
        return [self.bookies[slot] for slot in self.lagging]

    @property
    def unneeded_lagging_bookies(self) -> list[str]:
        """The lagging bookies that every write set can do without."""
        return [self.bookies[slot] for slot in self.lagging if self._can_do_without(slot)]

    def _can_do_without(self, slot: int) -> bool:
        striping = self._striping
        write_sets = map(striping.write_set, range(striping.ensemble_size))
        return all(sum(map(self._keeps_up, slots)) >= striping.ack_quorum for slots in write_sets if slot in slots)

    def _keeps_up(self, slot: int) -> bool:
        return self.is_present(slot) and slot not in self.lagging

    def retry_absent_slots(self) -> None:
        """Have the next `begin_change` look for replacements of absent slots again."""
        self._try_absent = bool(self._absent)

    def begin_change(self, first_entry_id: int, choose: ChooseReplacement) -> EnsembleChange | None:
        """Choose replacements for all failed slots. Return the change to publish; None: there is nothing to change.

        Failed slots without a replacement become absent.
        """
        assert self.change is None
        if not (self._failed or self._try_absent):
            return None
        to_replace = sorted({**self._failed, **self._absent} if self._try_absent else self._failed)
        self._try_absent = False
        bookies = list(self.bookies)
        replaced = []
        for slot in to_replace:
            chosen = choose([bookie_id for other, bookie_id in enumerate(bookies) if other != slot])
            if chosen is not None:
                bookies[slot] = chosen
                replaced.append(slot)
        self._absent.update(self._failed)
        self._failed.clear()
        if not replaced:
            return None
        self.change = EnsembleChange(Fragment(first_entry_id, tuple(bookies)), tuple(replaced))
        return self.change

    def abort_change(self) -> None:
        """End the change, which the metadata store refused. Its slots are failed again."""
        change = self.change
        assert change is not None
        self.change = None
        for slot in change.replaced:
            del self._absent[slot]
            self._failed[slot] = None

    def commit_change(self) -> EnsembleChange:
        """End the change, which the metadata have now. Its slots are present. Return it."""
        change = self.change
        assert change is not None
        self.change = None
        self.bookies = list(change.fragment.bookies)
        self.slots = {bookie_id: slot for slot, bookie_id in enumerate(self.bookies)}
        for slot in change.replaced:
            del self._absent[slot]
        self.all_present = not (self._failed or self._absent)
        return change

    def find_short_write_set(self) -> list[int] | None:
        """Return the slots of a write set with fewer present bookies than an ack quorum; None: there is none."""
        for start in range(self._striping.ensemble_size):
            slots = self._striping.write_set(start)
            if sum(map(self.is_present, slots)) < self._striping.ack_quorum:
                return slots
        return None
