"""The ensemble that a ledger is being written to: which of its slots take entries, and how it changes.

A slot is in one of four conditions:

    present ──fails──► failed ──a replacement──► being replaced ──the metadata says so──► present
              ▲          │                      │      ▲
              └──────────┼──── refused ─────────┘      │
                         └──none──► absent ────────────┘  when the placement has a bookie for it again

- **present**: its bookie is sent every entry of which it is to hold a copy;
- **failed**: its bookie failed, and nobody has dealt with that yet. It is sent nothing more;
- **being replaced**: the metadata is being changed. Nothing completes meanwhile. The change is refused where one of
  the new bookies is being decommissioned: then others are chosen;
- **absent**: nobody could take its place. It stays listed, is sent nothing, and what its bookie acknowledged counts on:
  that is on its disk.

Slots that are replaced are named by the change itself. Comparing ensembles would miss the bookie that returns to the
slot that it left, and yet lacks what was added in between.

One change is under way at a time. Bookies that fail during it are dealt with after it, before anything completes.

A present bookie may also **lag**: it takes entries, but has more bytes to answer than it may. Lag alone fails it only
where the ledger can do without it: every write set that its slot is in keeps an ack quorum of present bookies that do
not lag (`dispensable`). A ledger that needs a lagging bookie goes on with it and adds nothing more until it has caught
up (`held_up_by`). If lag failed it there, its adds would fail, and the ledger that the owner makes next would need the
same bookie, which still has the entries of the former ledger to write: no ledger would ever store anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from magnetar_bookie.read.striping import Fragment, Striping

__all__ = ["Change", "Choose", "Ensemble"]

# A bookie for one slot, given who is in the others; None: there is none.
Choose = Callable[[Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """The metadata is to say that from the fragment's first entry on the ledger is written to its bookies."""

    fragment: Fragment
    # In order.
    replaced: tuple[int, ...]

    @property
    def named(self) -> list[str]:
        """The bookies that the change puts into slots."""
        return [self.fragment.bookies[slot] for slot in self.replaced]


class Ensemble:
    """The slots of one ledger's last fragment."""

    def __init__(self, striping: Striping, bookies: Sequence[str]) -> None:
        assert len(bookies) == striping.ensemble_size
        self._striping = striping
        self.bookies = list(bookies)
        self._slots = {bookie_id: slot for slot, bookie_id in enumerate(bookies)}
        # Ordered sets; disjoint.
        self._failed: dict[int, None] = {}
        self._absent: dict[int, None] = {}
        # Somebody may be there for an absent slot.
        self._refill = False
        # An ordered set of present slots.
        self._lagging: dict[int, None] = {}
        self.changing: Change | None = None

    def slot_of(self, bookie_id: str) -> int | None:
        return self._slots.get(bookie_id)

    @property
    def absent(self) -> list[int]:
        return list(self._absent)

    @property
    def all_present(self) -> bool:
        return not (self._failed or self._absent)

    def present(self, slot: int) -> bool:
        return slot not in self._failed and slot not in self._absent

    def fail(self, bookie_id: str) -> bool:
        """Whether this says anything new."""
        slot = self._slots.get(bookie_id)
        if slot is None or not self.present(slot):
            return False
        self._failed[slot] = None
        self._lagging.pop(slot, None)
        return True

    def set_lagging(self, bookie_id: str, lags: bool) -> None:
        """Notes whether the bookie is over its lag bound."""
        slot = self._slots.get(bookie_id)
        if slot is None or not self.present(slot):
            return
        if lags:
            self._lagging[slot] = None
        else:
            self._lagging.pop(slot, None)

    def dispensable(self) -> list[str]:
        """The lagging bookies that every write set can do without."""
        return [self.bookies[slot] for slot in self._lagging if self._can_do_without(slot)]

    def _can_do_without(self, slot: int) -> bool:
        striping = self._striping
        write_sets = map(striping.write_set, range(striping.ensemble_size))
        return all(sum(map(self._keeps_up, slots)) >= striping.ack_quorum for slots in write_sets if slot in slots)

    def _keeps_up(self, slot: int) -> bool:
        return self.present(slot) and slot not in self._lagging

    @property
    def held_up_by(self) -> list[str]:
        """The bookies that lag and take entries still."""
        return [self.bookies[slot] for slot in self._lagging]

    def refill_absent_slots(self) -> None:
        """Bookies came: absent slots are looked at again by the next `begin_change`."""
        self._refill = bool(self._absent)

    def begin_change(self, first_entry_id: int, choose: Choose) -> Change | None:
        """Deals with all failed slots. The change that is to be made known, if there is one."""
        assert self.changing is None
        if not (self._failed or self._refill):
            return None
        wanting = sorted({**self._failed, **self._absent} if self._refill else self._failed)
        self._refill = False
        bookies = list(self.bookies)
        replaced = []
        for slot in wanting:
            chosen = choose([bookie_id for other, bookie_id in enumerate(bookies) if other != slot])
            if chosen is not None:
                bookies[slot] = chosen
                replaced.append(slot)
        # Those being replaced count as absent as well until they are.
        self._absent.update(self._failed)
        self._failed.clear()
        if not replaced:
            return None
        self.changing = Change(Fragment(first_entry_id, tuple(bookies)), tuple(replaced))
        return self.changing

    def abort_change(self) -> None:
        """The metadata will not have it: the slots wait for other bookies."""
        change = self.changing
        assert change is not None
        self.changing = None
        for slot in change.replaced:
            del self._absent[slot]
            self._failed[slot] = None

    def commit_change(self) -> Change:
        """The metadata has it."""
        change = self.changing
        assert change is not None
        self.changing = None
        self.bookies = list(change.fragment.bookies)
        self._slots = {bookie_id: slot for slot, bookie_id in enumerate(self.bookies)}
        for slot in change.replaced:
            del self._absent[slot]
        return change

    def find_short_write_set(self) -> list[int] | None:
        """The slots of a write set that has too few present ones for an ack quorum; None: all have enough."""
        if self.all_present:
            return None
        for start in range(self._striping.ensemble_size):
            slots = self._striping.write_set(start)
            if sum(map(self.present, slots)) < self._striping.ack_quorum:
                return slots
        return None
