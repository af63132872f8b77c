"""The schedule of nacked entries."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magnetar._acknowledging.negative_acks import NackSchedule


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.floats(0, 5)), max_size=40), st.floats(0.1, 3))
def test_each_nacked_entry_is_due_once_and_never_early(nacked: list[tuple[int, int, float]], step_s: float) -> None:
    """CON-5"""
    nacks: NackSchedule[int] = NackSchedule(0.5)
    first: dict[tuple[int, tuple[int, int]], float] = {}
    for owner, number, due_s in nacked:
        nacks.add_entry(owner, (1, number), due_s)
        first.setdefault((owner, (1, number)), due_s)
    now_s = 0.0
    while (next_s := nacks.next_due_s()) is not None:
        now_s = max(now_s + step_s, next_s)
        for owner, positions in nacks.pop_due(now_s).items():
            assert positions == sorted(set(positions))
            for position in positions:
                assert first.pop((owner, position)) <= now_s
    assert not first


def test_entries_of_a_forgotten_partition_are_not_due() -> None:
    nacks: NackSchedule[Any] = NackSchedule(1.0)
    nacks.add_entry("a", (1, 1), 5.0)
    nacks.add_entry("b", (1, 1), 7.0)
    nacks.forget_partition("a")
    assert nacks.next_due_s() == 7.0
    assert nacks.pop_due(100.0) == {"b": [(1, 1)]}
    nacks.add_entry("a", (1, 1), 9.0)
    assert nacks.pop_due(100.0) == {"a": [(1, 1)]}
