"""The wheel of acknowledgement timeouts, against a set of messages."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from magnetar._acknowledging.ack_timeout_wheel import AckTimeoutWheel

# Batches of four messages have even entry ids; odd entries are single messages. Entries of several blocks and ledgers.
ENTRIES = [(ledger_id, entry_id) for ledger_id in (1, 2) for entry_id in (0, 1, 1022, 1023, 1024, 1025)]
POSITIONS = st.sampled_from(ENTRIES)
BITS = st.integers(1, 15)
STEPS = st.one_of(
    st.tuples(st.just("receive"), POSITIONS, BITS),
    st.tuples(st.just("acknowledge"), POSITIONS, BITS),
    st.tuples(st.just("put back"), POSITIONS, BITS),
    st.tuples(st.just("cumulative"), POSITIONS, st.integers(0, 3)),
    st.tuples(st.just("redeliver"), POSITIONS, BITS),
    st.tuples(st.just("pass"), POSITIONS, st.integers(1, 4)),
)


@given(st.lists(STEPS, max_size=60), st.integers(1, 5))
def test_exactly_the_entries_with_late_messages_are_late(
    steps: list[tuple[str, tuple[int, int], int]], timeout: int
) -> None:
    """(CON-6)"""
    wheel, now = AckTimeoutWheel(), 0
    # Received and unacknowledged messages, and when they are due; a message that is not of a batch has index 0.
    model: dict[tuple[tuple[int, int], int], int] = {}
    for kind, position, number in steps:
        is_batch = position[1] % 2 == 0
        indexes = [index for index in range(4) if number >> index & 1] if is_batch else [0]
        if kind == "receive":
            indexes = [index for index in indexes if (position, index) not in model]  # a message is received once
            bits = sum(1 << index for index in indexes)
            if bits and is_batch:
                wheel.add_messages(position, bits, now + timeout)
            elif bits:
                wheel.add_entry(position, now + timeout)
            model.update({(position, index): now + timeout for index in indexes})
        elif kind == "acknowledge":
            if is_batch and number < 15:
                wheel.remove_messages(position, number)
            else:
                wheel.remove_entry(position)
                indexes = list(range(4))
            _remove(model, [(position, index) for index in indexes])
        elif kind == "put back":
            if position in {one for one, _ in model}:
                wheel.return_messages(position, number if is_batch else 0)
                _remove(model, [(position, index) for index in indexes])
        elif kind == "cumulative":
            wheel.remove_before(position)
            _remove(model, [one for one in model if one[0] < position])
            if is_batch:
                wheel.remove_messages(position, (2 << number) - 1)
                _remove(model, [(position, index) for index in range(number + 1)])
        elif kind == "redeliver":
            wheel.forget([position])
            _remove(model, [(position, index) for index in range(4)])
        else:
            now += number
            late = {one for (one, _), due in model.items() if due <= now}
            popped = wheel.pop_late(now)
            assert sorted(popped) == sorted(late)
            wheel.forget(popped)  # since they are redelivered
            _remove(model, [one for one in model if one[0] in late])
        assert bool(wheel) == bool(model)
    wheel.pop_late(now + timeout)
    assert not wheel


def _remove(model: dict[tuple[tuple[int, int], int], int], messages: list[tuple[tuple[int, int], int]]) -> None:
    for one in messages:
        model.pop(one, None)


def test_an_application_that_never_acknowledges_costs_a_few_bits_for_each_entry() -> None:
    """(CON-6)"""
    wheel = AckTimeoutWheel()
    tracemalloc.start()
    try:
        for entry_id in range(100_000):
            wheel.add_entry((1, entry_id), entry_id // 10_000)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert len(wheel.pop_late(4)) == 50_000
