"""Write sets and quorums, against every case there is up to five bookies."""

from __future__ import annotations

from itertools import combinations

import pytest

from magnetar_bookie.read.striping import Fragment, Striping, find_fragment

ALL = [
    Striping(ensemble, write, ack)
    for ensemble in range(1, 6)
    for write in range(1, ensemble + 1)
    for ack in range(1, write + 1)
]


@pytest.mark.parametrize("striping", ALL, ids=str)
def test_fencing_and_negative_reads_leave_no_ack_quorum(striping: Striping) -> None:
    """CHK-7: coverage is (cohort - AQ) + 1: no ack quorum is left, and with one bookie less there might be one."""
    slots = range(striping.ensemble_size)
    write_sets = [set(striping.write_set(entry)) for entry in slots]
    ack_quorums = [set(acked) for write_set in write_sets for acked in combinations(write_set, striping.ack_quorum)]
    for fenced in combinations(slots, striping.fence_coverage):
        assert all(quorum & set(fenced) for quorum in ack_quorums)
    for write_set in write_sets:
        for absent in combinations(write_set, striping.read_coverage):
            assert all(quorum & set(absent) for quorum in ack_quorums if quorum <= write_set)
        too_few = combinations(sorted(write_set), striping.read_coverage - 1)
        assert all(any(not quorum & set(absent) for quorum in ack_quorums if quorum <= write_set) for absent in too_few)
    if striping.ensemble_size == striping.write_quorum:
        too_few = combinations(slots, striping.fence_coverage - 1)
        assert all(any(not quorum & set(fenced) for quorum in ack_quorums) for fenced in too_few)


@pytest.mark.parametrize("striping", ALL, ids=str)
def test_every_entry_has_as_many_copies_as_the_write_quorum(striping: Striping) -> None:
    for entry in range(12):
        write_set = striping.write_set(entry)
        assert len(set(write_set)) == striping.write_quorum
        assert write_set[0] == entry % striping.ensemble_size
        held = [slot for slot in range(striping.ensemble_size) if striping.holds(slot, entry)]
        assert held == sorted(write_set)


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0)])
def test_impossible_quorums_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="ensemble"):
        Striping(*sizes)


def test_an_entry_lies_in_the_last_fragment_that_begins_at_or_below_it() -> None:
    fragments = [Fragment(0, ("a",)), Fragment(5, ("b",)), Fragment(6, ("c",))]
    assert [find_fragment(fragments, entry).bookies[0] for entry in (0, 4, 5, 6, 100)] == list("aabcc")
    with pytest.raises(ValueError, match="no fragment"):
        find_fragment([], 0)
