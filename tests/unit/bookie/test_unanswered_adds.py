"""The memory that unanswered adds take, the lag bound, and for which add the timeout runs."""

from __future__ import annotations

from magnetar_bookie.ledger.unanswered_adds import UnansweredAdds
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

# What one add of `RECORD` counts.
RECORD = b"r" * 100
ONE = 100 + ENTRY_OVERHEAD_BYTES


def adds(count: int, max_bytes: int = 10**9) -> UnansweredAdds:
    """Entries 0 … count - 1 of ledger 1."""
    unanswered = UnansweredAdds(max_bytes)
    unanswered.add_records(1, 0, [RECORD] * count)
    return unanswered


def test_memory_is_counted_per_add_and_not_by_payload_alone() -> None:
    """CHK-66, CHK-68: many small records take more than their bytes."""
    unanswered = adds(3)
    assert unanswered.bytes == 3 * ONE
    unanswered.add_records(1, 2, [RECORD, RECORD])  # entry 2 is sent again, and counts once
    assert unanswered.bytes == 4 * ONE
    unanswered.mark_answered(1, 0, 2, 0.0)
    unanswered.mark_answered(1, 0, 2, 0.0)
    assert unanswered.bytes == 2 * ONE
    unanswered.mark_answered(2, 2, 2, 0.0)
    unanswered.mark_answered(1, 3, 2**32 - 1, 0.0)
    assert unanswered.bytes == ONE
    unanswered.mark_answered(1, 2, 1, 0.0)
    assert not unanswered
    assert unanswered.bytes == 0


def test_a_bookie_lags_above_the_bound_and_until_half_of_it_is_answered() -> None:
    """CHK-66"""
    unanswered = adds(4, max_bytes=4 * ONE)
    lags = [unanswered.is_lagging]
    unanswered.add_records(2, 0, [RECORD])
    lags.append(unanswered.is_lagging)
    for entry_id in range(3):
        unanswered.mark_answered(1, entry_id, 1, 0.0)
        lags.append(unanswered.is_lagging)
    assert lags == [False, True, True, True, False]


def test_ledgers_that_are_dropped_take_no_memory_and_are_not_waited_for() -> None:
    unanswered = adds(4, max_bytes=4 * ONE)
    unanswered.add_records(2, 0, [RECORD])
    unanswered.mark_sent(1, 0, 2, 1.0)
    unanswered.mark_sent(2, 0, 1, 2.0)
    assert unanswered.is_lagging
    assert list(unanswered.ledger_ids) == [1, 2]
    unanswered.drop_ledgers(lambda ledger_id: ledger_id == 1, 5.0)
    assert (unanswered.bytes, unanswered.is_lagging, list(unanswered.ledger_ids)) == (ONE, False, [2])
    assert (unanswered.has_sent_adds, unanswered.oldest_since) == (True, 5.0)
    unanswered.drop_ledgers(lambda ledger_id: ledger_id == 2, 6.0)
    assert not unanswered.has_sent_adds


def test_timeout_starts_when_oldest_add_is_handed_over() -> None:
    """CHK-66: the time in line does not count."""
    unanswered = adds(4)
    assert not unanswered.has_sent_adds
    unanswered.mark_sent(1, 0, 2, 7.0)
    unanswered.mark_sent(1, 2, 4, 8.0)
    assert (unanswered.has_sent_adds, unanswered.oldest_since) == (True, 7.0)
    unanswered.mark_answered(1, 2, 2, 9.0)  # out of order: the oldest is waited for still
    assert (unanswered.has_sent_adds, unanswered.oldest_since) == (True, 7.0)
    unanswered.mark_answered(1, 0, 1, 10.0)
    assert (unanswered.has_sent_adds, unanswered.oldest_since) == (True, 10.0)
    unanswered.mark_answered(1, 1, 1, 11.0)
    assert not unanswered.has_sent_adds


def test_the_time_out_does_not_run_while_older_adds_are_answered() -> None:
    """CHK-66: a slow disk that answers is slow; an add whose answer is lost becomes the oldest, and is found."""
    unanswered = adds(10)
    for entry_id in range(10):
        unanswered.mark_sent(1, entry_id, entry_id + 1, 1.0)
    for entry_id in range(9):
        if entry_id != 4:
            unanswered.mark_answered(1, entry_id, 1, 10.0 + entry_id)
    assert unanswered.oldest_since == 13.0
    unanswered.mark_answered(1, 4, 1, 30.0)
    assert (unanswered.has_sent_adds, unanswered.oldest_since) == (True, 30.0)
    unanswered.mark_answered(1, 9, 1, 31.0)
    assert not unanswered.has_sent_adds
    unanswered.add_records(1, 10, [RECORD])
    unanswered.mark_sent(1, 10, 11, 40.0)
    assert unanswered.oldest_since == 40.0


def test_nothing_is_left_when_all_is_cleared() -> None:
    unanswered = adds(4, max_bytes=ONE)
    unanswered.mark_sent(1, 0, 4, 1.0)
    unanswered.clear()
    assert (unanswered.bytes, unanswered.is_lagging, unanswered.has_sent_adds, bool(unanswered)) == (
        0,
        False,
        False,
        False,
    )
