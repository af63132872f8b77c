"""The bytes that a log stores after a position."""

from __future__ import annotations

import pytest

from magnetar_broker.managed_ledger.ledger_list import ListedLedger
from magnetar_broker.managed_ledger.stored_sizes import StoredSizes
from magnetar_broker.position import EARLIEST, Position

SIZES = StoredSizes(
    [
        ListedLedger(3, is_closed=True, entries=4, length_bytes=400),
        ListedLedger(5, is_closed=True, entries=2, length_bytes=10),
        ListedLedger(9),
    ]
)


@pytest.mark.parametrize(
    ("ledger_id", "entry_id", "expected"),
    [(3, -1, 410), (3, 0, 310), (3, 3, 10), (3, 99, 10), (4, 7, 10), (5, 0, 5), (5, 1, 0), (9, -1, 0), (10, 0, 0)],
)
def test_a_ledgers_entries_count_as_equally_large(ledger_id: int, entry_id: int, expected: int) -> None:
    assert SIZES.after(Position(ledger_id, entry_id)) == expected


def test_an_empty_log_stores_nothing() -> None:
    assert SIZES.after(EARLIEST) == 410
    assert StoredSizes([]).after(EARLIEST) == 0
