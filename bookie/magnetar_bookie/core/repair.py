"""What one ledger needs so that every slot holds all that it should: the plan, and what lies in which slot.

What may be touched
-------------------
Entries of a closed ledger, and of the fragments before the last of one that is not closed, are confirmed and final:
they may be copied anywhere at any time, and a bookie may be replaced once all that its slot holds is on the other's
disk. The last fragment of a ledger that is not closed is never touched (protocol.md says why): if its bookie has been
lost for the grace time, the ledger is recovered, which closes it, and is planned anew. That costs a live writer its
ledger, so it is done only where it helps: another bookie could take the place, or the one that is named will never
return.

What a plan holds
-----------------
`steps`, each by itself safe and complete: whoever dies between two of them leaves a ledger that is better than
before. `stuck` says what can't be done, and why. With neither, and nothing to recover, the ledger is whole. A plan is a
function of what is seen now: there is nothing to resume, and it never waits. So it ends: each step makes one slot whole
for good.

With `everything` the slots whose bookies are there are gone through as well: a bookie may lack entries (an ack quorum
was enough), have them damaged, or have lost them.

When a task is worth writing
----------------------------
A fault that a plan would not mend must not become a repair task: the task ends at once, the next look at the same fault
writes it again, and so on for ever. `repairable_entries` applies the limits above to a single bookie: a damaged entry
above the end of a closed ledger, or on a bookie that the fragment no longer names, needs no repair.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from magnetar_bookie.core.lost_bookies import ClusterView
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.read.striping import Fragment, Striping

__all__ = [
    "FillSlot",
    "RepairPlan",
    "Run",
    "entries_of_slot",
    "missing_entries",
    "plan_repair",
    "repairable_entries",
    "runs",
    "settled_slots",
    "sources",
]

# Names a bookie for the ensemble out of the candidates, or None.
Choose = Callable[[Sequence[str], Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class FillSlot:
    """Has `target` hold all that this slot of a fragment should, and then stand there if another is `listed`."""

    first_entry_id: int
    last_entry_id: int
    slot: int
    listed: str
    target: str

    @property
    def replaces(self) -> bool:
        return self.target != self.listed

    def at(self, target: str) -> FillSlot:
        return replace(self, target=target)


def settled_slots(metadata: LedgerMetadata) -> list[FillSlot]:
    """Each slot of each fragment whose entries are final, with its present bookie."""
    found = []
    for index, fragment in enumerate(metadata.fragments):
        last = metadata.last_entry_of_fragment(index)
        if last is not None:
            first = fragment.first_entry_id
            found += [FillSlot(first, last, slot, bookie, bookie) for slot, bookie in enumerate(fragment.bookies)]
    return found


def repairable_entries(metadata: LedgerMetadata, bookie_id: str, entry_ids: Iterable[int]) -> list[int]:
    """Return those of the entries that the bookie must hold and that repair may write to it."""
    if metadata.state is LedgerState.TOMBSTONE:
        return []
    slots = [step for step in settled_slots(metadata) if step.listed == bookie_id]
    return [
        entry_id
        for entry_id in entry_ids
        if any(
            step.first_entry_id <= entry_id <= step.last_entry_id and metadata.striping.holds(step.slot, entry_id)
            for step in slots
        )
    ]


@dataclass(frozen=True, slots=True)
class RepairPlan:
    # First recover the ledger, then plan anew.
    recover: bool = False
    steps: list[FillSlot] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)


def plan_repair(
    metadata: LedgerMetadata,
    view: ClusterView,
    lost: Container[str],
    overdue: Container[str],
    choose: Choose,
    *,
    everything: bool,
) -> RepairPlan:
    """`lost` bookies are to be replaced; those that have been so for the grace time are `overdue` as well."""
    plan = RepairPlan()
    usable = [bookie for bookie in view.writable if bookie not in lost]
    for index, fragment in enumerate(metadata.fragments):
        last = metadata.last_entry_of_fragment(index)
        if last is not None:
            _plan_fragment(plan, fragment, last, view, usable, lost, choose, everything=everything)
        elif gone := [bookie for bookie in fragment.bookies if bookie in lost]:
            reason = _why_not_recovered(fragment, gone, view, usable, overdue)
            if reason is None:
                return RepairPlan(recover=True)
            plan.stuck.append(reason)
    return plan


def _why_not_recovered(
    fragment: Fragment, gone: Sequence[str], view: ClusterView, usable: Sequence[str], overdue: Container[str]
) -> str | None:
    names = ", ".join(gone)
    waited = [bookie for bookie in gone if bookie in overdue]
    if not waited:
        return f"the ledger is open, and its writer still has time to replace {names} itself"
    spare = any(bookie not in fragment.bookies for bookie in usable)
    if spare or any(bookie not in view.cookies for bookie in waited):
        return None
    return f"the ledger is open, and no bookie can replace {names}: add a bookie"


def _plan_fragment(
    plan: RepairPlan,
    fragment: Fragment,
    last: int,
    view: ClusterView,
    usable: Sequence[str],
    lost: Container[str],
    choose: Choose,
    *,
    everything: bool,
) -> None:
    # As it will be: two lost bookies of one fragment are not given the same successor.
    ensemble = list(fragment.bookies)
    for slot, listed in enumerate(fragment.bookies):
        step = FillSlot(fragment.first_entry_id, last, slot, listed, listed)
        if listed in lost:
            target = successor(ensemble, fragment, usable, choose)
            if target is None:
                plan.stuck.append(no_successor(step))
            else:
                ensemble[slot] = target
                plan.steps.append(step.at(target))
        elif everything:
            if listed in view.alive:
                plan.steps.append(step)
            else:
                plan.stuck.append(f"bookie {listed} is not registered: its entries of the ledger can't be checked")


def successor(ensemble: Sequence[str], fragment: Fragment, usable: Sequence[str], choose: Choose) -> str | None:
    candidates = [bookie for bookie in usable if bookie not in ensemble and bookie not in fragment.bookies]
    return choose(ensemble, candidates) if candidates else None


def no_successor(step: FillSlot) -> str:
    return (
        f"no bookie can replace {step.listed} for entries {step.first_entry_id} to {step.last_entry_id}: "
        "add a bookie that accepts entries and holds no other replica of them"
    )


def entries_of_slot(striping: Striping, slot: int, first: int, last: int) -> int:
    """How many of the entries from `first` to `last` the slot holds."""
    cycles, rest = divmod(max(0, last - first + 1), striping.ensemble_size)
    return cycles * striping.write_quorum + sum(striping.holds(slot, first + place) for place in range(rest))


def missing_entries(
    striping: Striping, slot: int, first: int, last: int, held: Iterable[tuple[int, int]]
) -> Iterator[int]:
    """The entries from `first` to `last` that the slot should hold and that are in none of the ranges `held`.

    The ranges may come in any order, overlap, and be none: a bookie said them.
    """
    at = first
    for low, high in sorted(one for one in held if one[0] <= one[1]):
        for entry_id in range(at, min(low - 1, last) + 1):
            if striping.holds(slot, entry_id):
                yield entry_id
        at = max(at, high + 1)
    for entry_id in range(at, last + 1):
        if striping.holds(slot, entry_id):
            yield entry_id


@dataclass(frozen=True, slots=True)
class Run:
    """The entries first, first + step … last: what one read asks for."""

    first: int
    last: int
    step: int

    def __contains__(self, entry_id: int) -> bool:
        return self.first <= entry_id <= self.last and (entry_id - self.first) % self.step == 0


def runs(striping: Striping, entry_ids: Sequence[int]) -> list[Run]:
    """The entries as few runs, which hold no others. Striped entries lie on a bookie one ensemble size apart."""
    step = 1 if striping.ensemble_size == striping.write_quorum else striping.ensemble_size
    found: list[Run] = []
    for entry_id in sorted(entry_ids, key=lambda entry_id: (entry_id % step, entry_id)):
        before = found[-1] if found else None
        if before is not None and entry_id - before.last == step:
            found[-1] = Run(before.first, entry_id, step)
        else:
            found.append(Run(entry_id, entry_id, step))
    return found


def sources(metadata: LedgerMetadata, step: FillSlot, entry_id: int, alive: Container[str]) -> list[str]:
    """Who may have the entry, in the order in which they are to be asked.

    First the write set's others, then the one that is to be replaced (it may be leaving, and serve reads), then former
    bookies. A record proves itself, so it does not matter who gives it. Bookies that are not registered come last: some
    may be reached all the same.
    """
    index = next(i for i, fragment in enumerate(metadata.fragments) if fragment.first_entry_id == step.first_entry_id)
    ensemble = metadata.fragments[index].bookies
    write_set = [ensemble[slot] for slot in metadata.striping.write_set(entry_id) if slot != step.slot]
    candidates = dict.fromkeys((*write_set, step.listed, *metadata.former_bookies))
    candidates.pop(step.target, None)
    return sorted(candidates, key=lambda bookie: bookie not in alive)
