"""The plan for the repair of one ledger: which slots to copy to which bookies.

A slot is the position of a bookie in a fragment's ensemble; the striping determines which entries it holds.

What repair may change
----------------------
Entries of a closed ledger, and of all fragments before the last one of another ledger, are confirmed and final. They
may be copied to any bookie at any time, and a bookie may be replaced when all entries of its slot are on the new
bookie's disk. The last fragment of a ledger that is not closed is never changed (protocol.md has the reason). If its
bookie has been lost for the grace period, the ledger is recovered, which closes it, and a new plan is made. A live
writer loses its ledger then, so this is done only if it helps: another bookie can replace the lost one, or the lost one
can't return.

What a plan contains
--------------------
`steps` are independent: if the worker dies between two of them, the ledger has more replicas than before. `stuck` lists
what can't be done, and why. A plan without either, and without `recover`, means that the ledger is fully replicated. A
plan depends only on the current metadata and bookies. There is nothing to resume, and no plan waits. Each step
completes one slot for good, so the repair ends.

If `everything` is set, slots with available bookies are planned, too. Such a bookie may lack entries, since an ack
quorum was enough, or have damaged or lost them.

When a repair task is needed
----------------------------
A fault that no plan would repair must not become a repair task. The task would end at once, the next check would find
the same fault and write the task again, and so on. `LedgerMetadata.list_final_entries` applies the limits above to a
single bookie: a damaged entry above the end of a closed ledger, or on a bookie that the fragment no longer names, needs
no repair.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from magnetar_bookie.auto_recovery.lost_bookies import ClusterView
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.striping import Fragment, Striping

__all__ = [
    "EntryRun",
    "RepairPlan",
    "SlotRepair",
    "choose_repair_target",
    "count_slot_entries",
    "describe_no_replacement",
    "group_in_runs",
    "list_final_slots",
    "list_sources",
    "missing_entries",
    "plan_repair",
]

# Chooses a bookie for the ensemble (first argument) out of the candidates (second), or returns None.
Choose = Callable[[Sequence[str], Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class SlotRepair:
    """Copy all entries of a fragment's slot to `target`, then name it there if another bookie is the current one."""

    first_entry_id: int
    last_entry_id: int
    slot: int
    # The bookie that the metadata names.
    current: str
    target: str

    @property
    def replaces(self) -> bool:
        return self.target != self.current

    def with_target(self, target: str) -> SlotRepair:
        return replace(self, target=target)


def list_final_slots(metadata: LedgerMetadata) -> list[SlotRepair]:
    """Return the slots of all fragments whose entries are final, each with its current bookie as the target."""
    found = []
    for index, fragment in enumerate(metadata.fragments):
        last = metadata.last_entry_of_fragment(index)
        if last is not None:
            first = fragment.first_entry_id
            found += [SlotRepair(first, last, slot, bookie, bookie) for slot, bookie in enumerate(fragment.bookies)]
    return found


@dataclass(frozen=True, slots=True)
class RepairPlan:
    # Recover the ledger, then make a new plan.
    recover: bool = False
    steps: list[SlotRepair] = field(default_factory=list)
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
    """Return a plan that replaces the `lost` bookies. Those lost for the grace period are in `overdue` as well."""
    plan = RepairPlan()
    usable = [bookie for bookie in view.writable if bookie not in lost]
    for index, fragment in enumerate(metadata.fragments):
        last = metadata.last_entry_of_fragment(index)
        if last is not None:
            _plan_fragment(plan, fragment, last, view, usable, lost, choose, everything=everything)
        elif to_replace := [bookie for bookie in fragment.bookies if bookie in lost]:
            reason = _why_not_recovered(fragment, to_replace, view, usable, overdue)
            if reason is None:
                return RepairPlan(recover=True)
            plan.stuck.append(reason)
    return plan


def _why_not_recovered(
    fragment: Fragment, to_replace: Sequence[str], view: ClusterView, usable: Sequence[str], overdue: Container[str]
) -> str | None:
    """Return why an open ledger with lost bookies is not recovered now, or None if it is."""
    names = ", ".join(to_replace)
    due = [bookie for bookie in to_replace if bookie in overdue]
    if not due:
        return f"the ledger is open, and its writer still has time to replace {names} itself"
    spare = any(bookie not in fragment.bookies for bookie in usable)
    if spare or any(bookie not in view.cookies for bookie in due):
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
    # The ensemble after the plan, so that two lost bookies of one fragment don't get the same replacement.
    ensemble = list(fragment.bookies)
    for slot, current in enumerate(fragment.bookies):
        step = SlotRepair(fragment.first_entry_id, last, slot, current, current)
        if current in lost:
            target = choose_repair_target(ensemble, fragment, usable, choose)
            if target is None:
                plan.stuck.append(describe_no_replacement(step))
            else:
                ensemble[slot] = target
                plan.steps.append(step.with_target(target))
        elif everything:
            if current in view.alive:
                plan.steps.append(step)
            else:
                plan.stuck.append(f"bookie {current} is not registered: its entries of the ledger can't be checked")


def choose_repair_target(
    ensemble: Sequence[str], fragment: Fragment, usable: Sequence[str], choose: Choose
) -> str | None:
    candidates = [bookie for bookie in usable if bookie not in ensemble and bookie not in fragment.bookies]
    return choose(ensemble, candidates) if candidates else None


def describe_no_replacement(step: SlotRepair) -> str:
    return (
        f"no bookie can replace {step.current} for entries {step.first_entry_id} to {step.last_entry_id}: "
        "add a bookie that accepts entries and holds no other replica of them"
    )


def count_slot_entries(striping: Striping, slot: int, first: int, last: int) -> int:
    """Return how many of the entries from `first` to `last` the slot holds."""
    cycles, rest = divmod(max(0, last - first + 1), striping.ensemble_size)
    return cycles * striping.write_quorum + sum(striping.holds(slot, first + offset) for offset in range(rest))


def missing_entries(
    striping: Striping, slot: int, first: int, last: int, held: Iterable[tuple[int, int]]
) -> Iterator[int]:
    """Yield the slot's entries from `first` to `last` that are in none of the ranges `held`.

    The ranges come from a bookie's answer: they may be unordered, overlap, or be empty.
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
class EntryRun:
    """The entries first, first + step … last, which one request reads."""

    first: int
    last: int
    step: int

    def __contains__(self, entry_id: int) -> bool:
        return self.first <= entry_id <= self.last and (entry_id - self.first) % self.step == 0


def group_in_runs(striping: Striping, entry_ids: Sequence[int]) -> list[EntryRun]:
    """Group the entries in few runs without other entries. A bookie's striped entries are one ensemble size apart."""
    step = 1 if striping.ensemble_size == striping.write_quorum else striping.ensemble_size
    runs: list[EntryRun] = []
    for entry_id in sorted(entry_ids, key=lambda entry_id: (entry_id % step, entry_id)):
        before = runs[-1] if runs else None
        if before is not None and entry_id - before.last == step:
            runs[-1] = EntryRun(before.first, entry_id, step)
        else:
            runs.append(EntryRun(entry_id, entry_id, step))
    return runs


def list_sources(metadata: LedgerMetadata, step: SlotRepair, entry_id: int, alive: Container[str]) -> list[str]:
    """Return the bookies that may have the entry, in the order in which they are read.

    These are the other bookies of the write set, then the slot's current bookie (one that is being decommissioned
    still serves reads), then former bookies. A record has its ids and a checksum, so a wrong one is detected, whichever
    bookie sent it. Unregistered bookies are last: some of them can be reached all the same.
    """
    index = next(i for i, fragment in enumerate(metadata.fragments) if fragment.first_entry_id == step.first_entry_id)
    ensemble = metadata.fragments[index].bookies
    write_set = [ensemble[slot] for slot in metadata.striping.write_set(entry_id) if slot != step.slot]
    candidates = dict.fromkeys((*write_set, step.current, *metadata.former_bookies))
    candidates.pop(step.target, None)
    return sorted(candidates, key=lambda bookie: bookie not in alive)
