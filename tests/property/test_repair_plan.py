"""Repair plans carried out on a model of a cluster: they restore all replicas from any state, and they end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import assume, given
from hypothesis import strategies as st

from magnetar_bookie.auto_recovery.ledger_repair_rules import (
    RepairPlan,
    SlotRepair,
    count_slot_entries,
    group_in_runs,
    list_sources,
    missing_entries,
    plan_repair,
    repairable_entries,
)
from magnetar_bookie.auto_recovery.lost_bookies import ClusterView
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState, with_bookie_replaced
from magnetar_bookie.read.striping import Fragment, Striping

BOOKIES = tuple(f"b{number}" for number in range(1, 8))


def write_set(striping: Striping, entry_id: int) -> list[int]:
    """Return the slots of an entry, computed without the code under test."""
    return [(entry_id + offset) % striping.ensemble_size for offset in range(striping.write_quorum)]


@dataclass
class Cluster:
    metadata: LedgerMetadata
    view: ClusterView
    lost: list[str]
    overdue: list[str]
    # By bookie: the entries that it holds.
    held: dict[str, set[int]]

    def should_hold(self) -> list[tuple[int, int, str, list[int]]]:
        """Return (fragment's first entry, slot, bookie, entries) of all slots whose entries are final."""
        metadata, found = self.metadata, []
        for index, fragment in enumerate(metadata.fragments):
            ends = [one.first_entry_id - 1 for one in metadata.fragments[1:]]
            ends += [metadata.last_entry_id] if metadata.state is LedgerState.CLOSED else []
            if index < len(ends):
                ids = range(fragment.first_entry_id, ends[index] + 1)
                for slot, bookie in enumerate(fragment.bookies):
                    entries = [one for one in ids if slot in write_set(metadata.striping, one)]
                    found.append((fragment.first_entry_id, slot, bookie, entries))
        return found

    def plan(self, *, everything: bool) -> RepairPlan:
        return plan_repair(
            self.metadata,
            self.view,
            self.lost,
            self.overdue,
            lambda _, candidates: candidates[0],
            everything=everything,
        )

    def recover(self) -> None:
        """Close the ledger before the last fragment, as if none of its entries was found."""
        first = self.metadata.last_fragment.first_entry_id
        fragments = tuple(one for one in self.metadata.fragments if one.first_entry_id < first)
        self.metadata = replace(self.metadata, state=LedgerState.CLOSED, last_entry_id=first - 1, fragments=fragments)

    def perform(self, step: SlotRepair) -> bool:
        """Copy the missing entries from registered bookies, and return whether all were found."""
        striping, alive = self.metadata.striping, self.view.alive
        held = [(one, one) for one in self.held[step.target]]
        for entry_id in missing_entries(striping, step.slot, step.first_entry_id, step.last_entry_id, held):
            sources = list_sources(self.metadata, step, entry_id, alive)
            assert step.target not in sources
            if not any(entry_id in self.held[one] for one in sources if one in alive):
                return False
            self.held[step.target].add(entry_id)
        if step.replaces:
            self.metadata = with_bookie_replaced(
                self.metadata, step.first_entry_id, step.slot, step.current, step.target
            )
        return True


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    striping = Striping(size, write, draw(st.integers(1, write)))
    firsts = sorted({0, *draw(st.lists(st.integers(1, 12), max_size=2))})
    fragments = tuple(Fragment(first, tuple(draw(st.permutations(BOOKIES))[:size])) for first in firsts)
    state = draw(st.sampled_from([LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED]))
    last = firsts[-1] + draw(st.integers(0, 6)) if state is LedgerState.CLOSED else -1
    metadata = LedgerMetadata(state, striping, b"key", fragments, last_entry_id=last)
    alive = tuple(draw(st.lists(st.sampled_from(BOOKIES), unique=True).map(sorted)))
    leaving = tuple(draw(st.lists(st.sampled_from(BOOKIES), unique=True, max_size=2).map(sorted)))
    cookies = tuple(one for one in BOOKIES if one in alive or draw(st.booleans()))
    writable = tuple(one for one in alive if one not in leaving and draw(st.integers(0, 3)))
    lost = [one for one in BOOKIES if one in leaving or (one not in alive and draw(st.booleans()))]
    overdue = [one for one in lost if draw(st.booleans())]
    view = ClusterView(cookies, alive, writable, (), leaving)
    cluster = Cluster(metadata, view, lost, overdue, {one: set() for one in BOOKIES})
    for _, _, bookie, entries in cluster.should_hold():
        cluster.held[bookie].update(one for one in entries if draw(st.integers(0, 3)))
    return cluster


@given(clusters(), st.booleans())
def test_repair_restores_all_replicas_or_reports_why_not(cluster: Cluster, everything: bool) -> None:
    """CHK-29: one plan, and another one after a recovery. What they can't repair has a reason."""
    everything = everything or not any(one in cluster.lost for one in cluster.metadata.bookies())
    plan = cluster.plan(everything=everything)
    if plan.recover:
        cluster.recover()
        plan = cluster.plan(everything=everything)
        assert not plan.recover
    firsts = [one.first_entry_id for one in cluster.metadata.fragments]
    failed = [step for step in plan.steps if not cluster.perform(step)]
    if plan.stuck or failed:
        assert all(plan.stuck)
        return
    for _, slot, bookie, entries in cluster.should_hold():
        assert bookie not in cluster.lost
        if everything:
            assert cluster.held[bookie].issuperset(entries), (slot, bookie)
    # Nothing is left to do.
    again = cluster.plan(everything=False)
    assert (again.recover, again.steps, again.stuck) == (False, [], [])
    assert [one.first_entry_id for one in cluster.metadata.fragments] == firsts


@given(clusters())
def test_repair_skips_the_last_fragment_of_open_ledgers(cluster: Cluster) -> None:
    """CHK-62: no step concerns the last fragment of a ledger that is not closed."""
    assume(cluster.metadata.state is not LedgerState.CLOSED)
    growing = cluster.metadata.last_fragment
    for everything in (False, True):
        plan = cluster.plan(everything=everything)
        assert all(step.last_entry_id < growing.first_entry_id for step in plan.steps)
        if plan.recover:
            due = [one for one in growing.bookies if one in cluster.overdue]
            spare = [one for one in cluster.view.writable if one not in growing.bookies and one not in cluster.lost]
            assert due
            assert spare or any(one not in cluster.view.cookies for one in due)


@given(clusters())
def test_only_entries_that_a_plan_covers_are_repairable(cluster: Cluster) -> None:
    """CHK-29: a fault that no plan repairs gets no task: it would be found again and again."""
    available = replace(cluster, view=replace(cluster.view, alive=BOOKIES), lost=[], overdue=[])
    striping, steps = cluster.metadata.striping, available.plan(everything=True).steps
    deleted = replace(cluster.metadata, state=LedgerState.TOMBSTONE)
    for bookie in BOOKIES:
        covered = {
            entry_id
            for step in steps
            if step.target == bookie
            for entry_id in range(step.first_entry_id, step.last_entry_id + 1)
            if step.slot in write_set(striping, entry_id)
        }
        assert repairable_entries(cluster.metadata, bookie, range(30)) == sorted(covered)
        assert repairable_entries(deleted, bookie, range(30)) == []


@given(clusters())
def test_no_fragment_names_a_bookie_twice(cluster: Cluster) -> None:
    plan = cluster.plan(everything=True)
    for first in {step.first_entry_id for step in plan.steps}:
        fragment = next(one for one in cluster.metadata.fragments if one.first_entry_id == first)
        named = list(fragment.bookies)
        for step in plan.steps:
            if step.first_entry_id == first:
                named[step.slot] = step.target
        assert len(set(named)) == len(named)
        assert all(step.target in cluster.view.writable for step in plan.steps if step.replaces)


@given(st.data())
def test_missing_entries_of_a_slot_exclude_held_ranges(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 5))
    write = data.draw(st.integers(1, size))
    striping = Striping(size, write, 1)
    slot = data.draw(st.integers(0, size - 1))
    first = data.draw(st.integers(0, 10))
    last = first + data.draw(st.integers(-1, 20))
    numbers = st.integers(0, 40)
    held = data.draw(st.lists(st.tuples(numbers, numbers), max_size=4))
    should = [one for one in range(first, last + 1) if slot in write_set(striping, one)]
    lacks = [one for one in should if not any(low <= one <= high for low, high in held)]
    assert list(missing_entries(striping, slot, first, last, held)) == lacks
    assert count_slot_entries(striping, slot, first, last) == len(should)
    runs = group_in_runs(striping, lacks)
    assert sorted(one for run in runs for one in range(run.first, run.last + 1, run.step)) == lacks
    assert all(one in run for run in runs for one in range(run.first, run.last + 1, run.step))
