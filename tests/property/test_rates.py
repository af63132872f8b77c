"""Rates of publishes and dispatches: what passes in any window of time, and that all who wait get their turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar_broker.settings.rates import NO_RATE, Rate
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_broker.topics.token_bucket import RateBuckets
from magnetar_testing.clock import ManualClock

_rates = st.builds(
    Rate,
    messages=st.one_of(st.just(0), st.integers(1, 5_000)),
    bytes=st.one_of(st.just(0), st.integers(1, 500_000)),
    period_seconds=st.integers(1, 60),
)
# Seconds until a batch is offered, its messages and its bytes.
_batches = st.lists(
    st.tuples(st.floats(0, 30), st.integers(1, 1_000), st.integers(1, 100_000)), min_size=1, max_size=60
)


@given(_rates, _batches)
def test_rate_holds_over_any_window(rate: Rate, batches: list[tuple[float, int, int]]) -> None:
    """RET-4: at most the rate times the window, a burst and the last batch passes; and when nothing may pass, the
    reported wait is exact, so that what waits passes as soon as the rate allows it."""
    buckets, now = RateBuckets(), 5.0
    buckets.change(rate, now)
    passed: list[tuple[float, int, int]] = []
    for pause, messages, size_bytes in batches:
        now += pause
        wait = buckets.seconds_until_allowed(now)
        if wait > 0:
            assert min(buckets.get_allowance(now + wait * 0.99)) <= 0
            now += wait
        assert min(buckets.get_allowance(now + 1e-6)) > 0
        buckets.consume(messages, size_bytes, now)
        passed.append((now, messages, size_bytes))
    for limit, column in ((rate.messages, 1), (rate.bytes, 2)):
        for first in range(len(passed)):
            for last in range(first, len(passed)):
                window = passed[first : last + 1]
                seconds = window[-1][0] - window[0][0]
                most = limit * seconds / rate.period_seconds + max(limit, 1) + max(one[column] for one in window)
                assert not limit or sum(one[column] for one in window) <= most + 0.01


@given(
    st.integers(1, 1_000),
    st.lists(st.lists(st.integers(1, 2_000), max_size=12), min_size=1, max_size=8),
)
def test_everyone_gets_turns_at_the_rate(per_second: int, work: list[list[int]]) -> None:
    """RET-4: nobody overtakes one that waits, everything passes in the end, and not later than the rate requires."""
    clock = ManualClock()
    limit = RateLimit("the rate", lambda: Rate(per_second), clock)
    began = clock.monotonic()
    # All that has passed, in order: who, its messages and the time.
    passed: list[tuple[int, int, float]] = []
    turns: list[int] = []

    class Worker:
        def __init__(self, number: int) -> None:
            self.number = number
            self.left = list(work[number])

        def run(self) -> None:
            turns.append(self.number)
            while self.left:
                if limit.must_wait():
                    limit.wait_for_turn(self.run)
                    return
                messages = self.left.pop(0)
                limit.record_passed(messages, 1)
                passed.append((self.number, messages, clock.monotonic()))

    workers = [Worker(number) for number in range(len(work))]
    for worker in workers:
        worker.run()
    total = sum(map(sum, work))
    while any(worker.left for worker in workers):
        assert clock.seconds_to_next_call() is not None, "it waits without a timer"
        clock.advance(0.05)
        assert clock.monotonic() - began < total / per_second + 2
    for at, (_, _, passed_at) in enumerate(passed):
        before = sum(messages for _, messages, _ in passed[:at])
        # Each begins as soon as the rate allows it, within the interval of turns.
        assert passed_at - began <= max(0.0, (before + 1 - per_second) / per_second) + 0.02
    for at, number in enumerate(turns):
        again = next((later for later in range(at + 1, len(turns)) if turns[later] == number), None)
        if again is not None:  # all others that wait have had a turn in between
            waiting = {one for one in turns[again:] if one != number and one in turns[:at]}
            assert waiting <= set(turns[at + 1 : again])


def test_a_change_of_the_rate_takes_effect() -> None:
    """RET-4: also without a report of it; and without a rate nothing waits."""
    clock, rate, turns = ManualClock(), Rate(1), list[str]()
    limit = RateLimit("the rate", lambda: rate, clock)
    limit.get_allowance()
    limit.record_passed(1_000, 1)
    assert limit.must_wait()
    assert limit.describe_reached() == "the rate is at its maximum of 1 messages a second"
    for name in ("first", "second"):
        limit.wait_for_turn(lambda name=name: turns.append(name))  # type: ignore[misc]
    clock.advance(100)
    assert turns == []
    rate = Rate(bytes=10, period_seconds=2)
    clock.advance(0.5)
    assert turns == ["first", "second"]
    limit.record_passed(1, 11)
    assert limit.describe_reached() == "the rate is at its maximum of 10 bytes in 2 seconds"
    limit.wait_for_turn(lambda: turns.append("third"))
    rate = NO_RATE
    limit.follow_rate_change()
    assert turns[2:] == ["third"]
    assert not limit.must_wait()
    assert limit.describe_reached() == ""
