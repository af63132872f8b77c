"""What one consumer has, counted in stretches, against a count of each message."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.core.dispatch.in_order import InOrder
from magnetar_broker.core.position import Position


@given(
    st.sampled_from([3, 600, 5_000, 50_000]),
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 3)), max_size=200),
)
def test_stretches_count_no_less_than_there_is_and_little_more(most: int, steps: list[tuple[int, int]]) -> None:
    counted, exact, passed = InOrder(most), dict[int, int](), -1
    for number, (messages, behind) in enumerate(steps):
        counted.delivered(Position(1, number), messages)
        exact[number] = messages
        if behind:
            passed = max(passed, number - 2 * behind)
            counted.passed(Position(1, passed))
        left = sum(size for entry_id, size in exact.items() if entry_id > passed)
        # Of the stretch that the place is in, those before it.
        assert left <= counted.messages <= left + max(most // 500 + 400, 0)
        assert counted.full == (counted.messages >= most)
    counted.passed(Position(1, len(steps)))
    assert counted.messages == 0
