"""The bytes that a log stores after a position."""

from __future__ import annotations

import pytest

from magnetar_broker.managed_ledger.ledger_list import ListedLedger
from magnetar_broker.managed_ledger.stored_sizes import count_bytes_after, find_position_before_bytes
from magnetar_broker.position import EARLIEST, Position
from magnetar_broker.settings.backlog_quotas import Quota
from magnetar_broker.topics.backlog_quota_rules import find_eviction_end

LEDGERS = [
    ListedLedger(3, is_closed=True, entries=4, length_bytes=400, bytes_before=1000),
    ListedLedger(5, is_closed=True, entries=2, length_bytes=10, bytes_before=1400),
    ListedLedger(9, bytes_before=1410),
]


@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "expected"),
    [(3, -1, 410), (3, 0, 310), (3, 3, 10), (3, 99, 10), (4, 7, 10), (5, 0, 5), (5, 1, 0), (9, -1, 0), (10, 0, 0)],
)
def test_a_ledgers_entries_count_as_equally_large(ledger_id: int, entry_id: int, expected: int) -> None:
    assert count_bytes_after(LEDGERS, Position(ledger_id, entry_id)) == expected


def test_an_empty_log_stores_nothing() -> None:
    assert count_bytes_after(LEDGERS, EARLIEST) == 410
    assert count_bytes_after([], EARLIEST) == 0
    assert find_position_before_bytes([], 7) == EARLIEST


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (999, (3, -1)),
        (410, (3, -1)),
        (409, (3, 0)),
        (310, (3, 0)),
        (309, (3, 1)),
        (10, (3, 3)),
        (9, (5, 0)),
        (4, (5, 1)),
        (0, (5, 1)),
    ],
)
def test_no_more_is_before_a_position_than_necessary(size_bytes: int, expected: tuple[int, int]) -> None:
    """RET-4: what is evicted goes by this position."""

    found = find_position_before_bytes(LEDGERS, size_bytes)
    assert found == Position(*expected)
    assert count_bytes_after(LEDGERS, found) <= size_bytes


@pytest.mark.parametrize(
    ("limit", "left"), [(1000, 410), (420, 410), (400, 310), (311, 310), (310, 210), (11, 10), (10, 5), (0, 0)]
)
def test_an_eviction_leaves_the_fewest_entries_that_are_not_below_its_target(limit: int, left: int) -> None:
    """RET-4: as Pulsar does, unless the backlog would still be at its quota."""

    end = find_eviction_end(LEDGERS, Quota(limit, "consumer_backlog_eviction"))
    assert count_bytes_after(LEDGERS, end) == left
