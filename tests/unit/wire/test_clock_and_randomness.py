from __future__ import annotations

import asyncio

from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.randomness import SystemRandomness


def test_a_manual_clock_makes_due_calls_at_their_time_and_in_order() -> None:
    clock = ManualClock(time_ms=5_000, monotonic=10.0)
    seen: list[tuple[str, float, int]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic(), clock.time_ms()))

    clock.call_later(2.0, lambda: note("second"))
    clock.call_later(1.0, lambda: note("first"))
    clock.call_later(2.0, lambda: note("third"))
    clock.call_later(1.5, lambda: note("never")).cancel()
    clock.call_later(9.0, lambda: note("later"))
    clock.advance(3.0)
    assert seen == [("first", 11.0, 6_000), ("second", 12.0, 7_000), ("third", 12.0, 7_000)]
    assert (clock.monotonic(), clock.time_ms()) == (13.0, 8_000)


def test_a_call_made_due_by_a_call_runs_in_the_same_advance() -> None:
    clock, seen = ManualClock(), list[float]()
    clock.call_later(1.0, lambda: clock.call_later(1.0, lambda: seen.append(clock.monotonic())))
    clock.advance(5.0)
    assert seen == [1002.0]


def test_a_jump_moves_the_wall_clock_only() -> None:
    clock = ManualClock(time_ms=1_000, monotonic=1.0)
    clock.jump(-500)
    assert (clock.time_ms(), clock.monotonic()) == (500, 1.0)


async def test_a_sleep_ends_when_the_clock_has_advanced() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(1.0))
    await asyncio.sleep(0)
    clock.advance(0.9)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(0.1)
    await sleeper
    cancelled = asyncio.create_task(clock.sleep(1.0))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    clock.advance(2.0)  # nobody is woken


async def test_the_system_clock_has_both_times() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    called = asyncio.Event()
    clock.call_later(0.0, called.set)
    await called.wait()
    await clock.sleep(0.001)
    assert clock.monotonic() > before
    assert clock.time_ms() > 1_700_000_000_000


def drawn(randomness: SeededRandomness) -> list[object]:
    items = list(range(10))
    randomness.shuffle(items)
    return [randomness.random(), randomness.below(1000), randomness.token(8), randomness.choice("abcdef"), items]


def test_the_same_seed_gives_the_same_draws() -> None:
    assert drawn(SeededRandomness(7)) == drawn(SeededRandomness(7))
    assert drawn(SeededRandomness(7)) != drawn(SeededRandomness("eight"))


def test_draws_of_the_system_differ() -> None:
    assert SystemRandomness().token(16) != SystemRandomness().token(16)
    assert all(0 <= SystemRandomness().below(3) < 3 for _ in range(50))


def test_a_manual_clock_returns_the_time_to_the_next_call() -> None:
    clock = ManualClock()
    assert clock.seconds_to_next_call() is None
    cancelled = clock.call_later(2, lambda: None)
    clock.call_later(5, lambda: None)
    assert clock.seconds_to_next_call() == 2
    cancelled.cancel()
    assert clock.seconds_to_next_call() == 5
    clock.advance(5)
    assert clock.seconds_to_next_call() is None
