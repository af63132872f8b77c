"""Shares of a stream's bound on undecided entries (server/grpc/stream_budget.py)."""

from __future__ import annotations

import pytest

from magnetar_broker.server.grpc.stream_budget import StreamBudget

BOUND = 64_000
QUARTER = BOUND // 4


def fill(budget: StreamBudget, own_bytes: int, step_bytes: int = 1) -> int:
    """Let a producer send until it is paused; return its bytes."""
    while budget.has_share(own_bytes):
        own_bytes += step_bytes
        budget.used_bytes += step_bytes
    return own_bytes


def test_single_producer_gets_half_of_the_stream_budget() -> None:
    assert fill(StreamBudget(BOUND), 0) == BOUND // 2


@pytest.mark.parametrize("count", range(1, 20))
def test_producers_that_fill_up_together_get_equal_shares(count: int) -> None:
    budget = StreamBudget(BOUND)
    own = [0] * count
    while any(budget.has_share(one) for one in own):
        for number in range(count):
            if budget.has_share(own[number]):
                own[number] += 1
                budget.used_bytes += 1
    assert max(own) - min(own) <= 1
    assert abs(own[0] - 3 * QUARTER * 2 / (2 * count + 1)) <= count
    assert budget.used_bytes < 3 * QUARTER


def test_producers_that_fill_up_one_after_another_leave_the_last_quarter_and_a_first_entry_for_each() -> None:
    budget = StreamBudget(BOUND)
    for _ in range(100):
        before = max(budget.used_bytes, 0)
        assert budget.has_share(0)
        own = fill(budget, 0)
        unused = max(3 * QUARTER - before, 0)
        assert abs(own - unused * 2 / 3) <= 1
    assert budget.used_bytes <= 3 * QUARTER + 100
    assert not budget.full


def test_a_producer_with_nothing_undecided_has_a_share_of_a_full_stream() -> None:
    budget = StreamBudget(BOUND)
    budget.used_bytes = BOUND
    assert budget.full
    assert budget.has_share(0)
    assert not budget.has_share(1)


def test_a_share_grows_when_others_are_decided() -> None:
    budget = StreamBudget(BOUND)
    own, other = fill(budget, 0), fill(budget, 0)
    assert not budget.has_share(own)
    budget.used_bytes -= other
    own -= 1
    budget.used_bytes -= 1
    assert budget.has_share(own)
