"""The rules by which ledgers of a topic's log are retained: by a policy, and without a durable subscription."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from magnetar_broker.managed_ledger.ledger_lifetime_rules import (
    NO_RETENTION,
    RetentionPolicy,
    RetentionWithoutSubscription,
    deletable_by_policy,
    deletable_ledgers,
)
from magnetar_broker.managed_ledger.ledger_lifetime_settings import (
    create_retention_policy,
    create_retention_without_subscription,
)
from magnetar_broker.managed_ledger.ledger_list import LedgerList, ListChange, ListedLedger
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.catalog_pb2 import Policies, Retention

_HOUR = RetentionWithoutSubscription(3_600_000, None)
_FOR_EVER = RetentionWithoutSubscription(None, None)
_AT_ONCE = RetentionWithoutSubscription(0, None)


def a_list(*closed_ms: int, is_open: bool = True, unsubscribed_up_to: int = 0) -> LedgerList:
    """Ledgers 1, 2, … of ten entries and 100 bytes, closed then; and one more that is open, with 30 bytes."""
    ledgers = [
        ListedLedger(number, True, 10, 100, bytes_before=7_000 + 100 * number, closed_ms=closed)
        for number, closed in enumerate(closed_ms, start=1)
    ]
    if is_open:
        open_id = len(closed_ms) + 1
        ledgers.append(ListedLedger(open_id, False, 3, 30, bytes_before=7_000 + 100 * open_id))
    return LedgerList("i", ledgers, unsubscribed_up_to=unsubscribed_up_to)


def deletable(
    ledger_list: LedgerList, up_to: Position | None, retention: RetentionWithoutSubscription, now_ms: int
) -> list[int]:
    return list(deletable_ledgers(ledger_list, up_to, retention, now_ms))


def test_a_ledger_is_retained_for_its_time_from_when_it_was_closed() -> None:
    """RET-1: neither a millisecond less nor more; and the open ledger in any case."""
    ledger_list = a_list(1_000, 2_000, 500_000)
    for now_ms, expected in (
        (0, []),
        (3_600_999, []),
        (3_601_000, [1]),
        (3_601_999, [1]),
        (3_602_000, [1, 2]),
        (4_099_999, [1, 2]),
        (4_100_000, [1, 2, 3]),
        (10**12, [1, 2, 3]),
    ):
        assert deletable(ledger_list, None, _HOUR, now_ms) == expected
    assert deletable(ledger_list, None, _FOR_EVER, 10**15) == []


def test_with_0_minutes_closed_ledgers_go_at_once() -> None:
    """RET-1: Pulsar's way, also where the clock of the broker that closed a ledger was ahead."""
    for retention in (_AT_ONCE, NO_RETENTION):
        assert deletable(a_list(1_000, 9_000), None, retention, 1_000) == [1, 2]


def test_ledgers_go_from_the_front_only() -> None:
    """RET-3: the second ledger's time is over first, since another broker's clock was behind."""
    assert deletable(a_list(9_000_000, 1_000), None, _HOUR, 5_000_000) == []
    assert deletable(a_list(9_000_000, 1_000), None, _HOUR, 12_600_000) == [1, 2]


def test_the_oldest_ledgers_go_when_the_size_is_exceeded() -> None:
    """RET-1: the first bound that is exceeded counts. The open ledger's bytes count, and it stays."""
    ledger_list = a_list(1_000, 2_000, 3_000)
    for max_bytes, expected in ((330, []), (329, [1]), (230, [1]), (229, [1, 2]), (100, [1, 2, 3]), (0, [1, 2, 3])):
        assert deletable(ledger_list, None, RetentionWithoutSubscription(None, max_bytes), 3_000) == expected
        assert deletable(ledger_list, None, RetentionWithoutSubscription(3_600_000, max_bytes), 3_000) == expected
    assert deletable(ledger_list, None, RetentionWithoutSubscription(3_600_000, 10**9), 3_602_000) == [1, 2]
    assert deletable(a_list(1_000, is_open=False), None, RetentionWithoutSubscription(None, 0), 1_000) == [1]


class _Counted(list[ListedLedger]):
    looks = 0

    def __iter__(self) -> Iterator[ListedLedger]:
        for one in super().__iter__():
            self.looks += 1
            yield one

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


def test_a_check_looks_at_few_ledgers() -> None:
    """RET-3: each topic is checked every second, however many ledgers it has."""
    ledger_list = a_list(*range(10_000), unsubscribed_up_to=5_000)
    ledger_list.ledgers = ledgers = _Counted(ledger_list.ledgers)
    end = Position(10_001, 2)
    assert deletable(ledger_list, end, RetentionWithoutSubscription(3_600_000, 10**9), 10_000) == []
    assert list(deletable_by_policy(ledger_list, end, RetentionPolicy(3_600_000, 10**9), 10_000)) == []
    assert ledgers.looks < 50


def test_ledgers_acknowledged_by_the_subscription_are_deletable() -> None:
    """RET-1: without retention, where no ledger was written before the subscription."""
    ledger_list = a_list(1_000, 2_000, 3_000)
    for up_to, expected in (
        (Position(1, 8), []),
        (Position(1, 9), [1]),
        (Position(2, 9), [1, 2]),
        (Position(4, 2), [1, 2, 3]),
    ):
        for retention in (_HOUR, _FOR_EVER, RetentionWithoutSubscription(None, 0)):
            assert deletable(ledger_list, up_to, retention, 3_000) == expected


def test_ledgers_from_before_the_first_subscription_keep_their_remaining_time() -> None:
    """RET-1: whatever is acknowledged; those behind them need the subscription alone, and wait for the front."""
    ledger_list = a_list(1_000, 2_000, 3_000, unsubscribed_up_to=2)
    end = Position(4, 2)
    assert deletable(ledger_list, end, _HOUR, 3_600_999) == []
    assert deletable(ledger_list, end, _HOUR, 3_601_000) == [1]
    assert deletable(ledger_list, end, _HOUR, 3_602_000) == [1, 2, 3]
    assert deletable(ledger_list, Position(2, 9), _HOUR, 3_602_000) == [1, 2]
    # What is not acknowledged stays when its time is over, too.
    assert deletable(ledger_list, Position(1, 9), _HOUR, 10**12) == [1]
    assert deletable(ledger_list, Position(1, 8), _HOUR, 10**12) == []
    # Without a subscription all of them count again.
    assert deletable(ledger_list, None, _HOUR, 3_602_000) == [1, 2]


def test_the_backlog_of_a_subscription_does_not_count_for_the_size() -> None:
    """RET-1: else the ledgers from before it would lose their time."""
    ledger_list = a_list(1_000, 2_000, 3_000, unsubscribed_up_to=2)
    assert deletable(ledger_list, Position(4, 2), RetentionWithoutSubscription(None, 200), 3_000) == []
    assert deletable(ledger_list, Position(4, 2), RetentionWithoutSubscription(None, 199), 3_000) == [1]
    assert deletable(ledger_list, Position(4, 2), RetentionWithoutSubscription(None, 99), 3_000) == [1, 2, 3]


def test_the_mark_covers_the_open_ledger_grows_only_and_is_stored() -> None:
    """RET-1: another broker reads it from the topic's node."""
    ledger_list, node = LedgerList("i"), pb.ManagedLedgerNode(incarnation="i")

    def change(change: ListChange) -> None:
        ledger_list.encode(change, node)
        ledger_list.apply(change, node)

    ledger_list.mark_unsubscribed()
    assert ledger_list.unsubscribed_up_to == 0
    change(ListChange(new_ledger=7))
    assert LedgerList.decode(node).unsubscribed_up_to == 0
    ledger_list.mark_unsubscribed()
    change(ListChange())
    assert LedgerList.decode(node).unsubscribed_up_to == ledger_list.unsubscribed_up_to == 7
    ledger_list.set_closed(5)
    change(ListChange(empty=7))
    ledger_list.mark_unsubscribed()
    change(ListChange(new_ledger=9))
    assert LedgerList.decode(node).unsubscribed_up_to == 7


def test_the_options_are_the_bounds() -> None:
    """RET-1: 7 days and no size by default; -1 is no bound, and nothing between -1 and 0 is one."""
    assert create_retention_without_subscription(ManagedLedgerSettings()) == RetentionWithoutSubscription(
        604_800_000, None
    )
    for minutes, size_mb, expected in (
        (-1, -1, _FOR_EVER),
        (0, -1, _AT_ONCE),
        (60, 3, RetentionWithoutSubscription(3_600_000, 3 * 1_048_576)),
        (0.5, 0, RetentionWithoutSubscription(30_000, 0)),
    ):
        options = ManagedLedgerSettings(
            default_retention_without_subscription_minutes=minutes,
            default_retention_without_subscription_size_mb=size_mb,
        )
        assert create_retention_without_subscription(options) == expected
    for name in ("minutes", "size_mb"):
        for value in (-0.5, -2, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"default_retention_without_subscription_{name}"):
                ManagedLedgerSettings(**{f"default_retention_without_subscription_{name}": value})  # type: ignore[arg-type]


def test_a_policy_retains_acknowledged_ledgers_by_time_and_size() -> None:
    """RET-2: a ledger goes when one of the bounds is exceeded. Of the size at least that much is left, of all ledgers
    together. With a bound of 0 nothing is retained, and without one the other decides."""
    ledger_list = a_list(1_000, 2_000, 3_000, unsubscribed_up_to=3)  # three of 100 bytes, and the current one of 30
    for acknowledged in (None, Position(4, 2)):
        for time_ms, min_bytes, now_ms, expected in (
            (None, None, 10**15, []),
            (3_600_000, None, 3_600_999, []),
            (3_600_000, None, 3_601_000, [1]),
            (3_600_000, None, 3_602_000, [1, 2]),
            (None, 231, 10**15, []),
            (None, 230, 3_000, [1]),
            (None, 131, 3_000, [1]),
            (None, 130, 3_000, [1, 2]),
            (None, 30, 3_000, [1, 2, 3]),
            (3_600_000, 231, 3_601_000, [1]),
            (3_600_000, 130, 3_000, [1, 2]),
            (0, None, 3_000, [1, 2, 3]),
            (0, 10**9, 3_000, [1, 2, 3]),
            (None, 0, 3_000, [1, 2, 3]),
            (3_600_000, 0, 3_000, [1, 2, 3]),
        ):
            policy = RetentionPolicy(time_ms, min_bytes)
            assert list(deletable_by_policy(ledger_list, acknowledged, policy, now_ms)) == expected
            assert policy.retains == (time_ms != 0 and min_bytes != 0)


def test_a_policy_deletes_nothing_that_a_subscription_needs() -> None:
    """RET-2: also if both bounds are exceeded; and the bytes of the backlog count for the size."""
    ledger_list = a_list(1_000, 2_000, 3_000)
    assert list(deletable_by_policy(ledger_list, Position(1, 9), RetentionPolicy(0, 0), 10**12)) == [1]
    assert list(deletable_by_policy(ledger_list, Position(2, 8), RetentionPolicy(1, 1), 10**12)) == [1]
    assert list(deletable_by_policy(ledger_list, Position(0, -1), RetentionPolicy(1, 1), 10**12)) == []


@pytest.mark.parametrize(
    ("retention", "expected"),
    [
        (None, None),
        (Retention(time_minutes=60, size_mb=-1), RetentionPolicy(3_600_000, None)),
        (Retention(time_minutes=-1, size_mb=5), RetentionPolicy(None, 5 * 1_048_576)),
        (Retention(time_minutes=-1, size_mb=-1), RetentionPolicy(None, None)),
        (Retention(time_minutes=10, size_mb=1), RetentionPolicy(600_000, 1_048_576)),
        # Nothing is retained, and `create_retention_without_subscription` has the rule.
        (Retention(), None),
    ],
)
def test_a_policy_replaces_the_default_without_subscription(
    retention: Retention | None, expected: RetentionPolicy | None
) -> None:
    """RET-1, RET-2: also a policy that retains nothing."""
    policies = Policies() if retention is None else Policies(retention=retention)
    for settings in (BrokerServiceSettings(), BrokerServiceSettings(default_retention_time_in_minutes=7)):
        applied = LiveSettings(settings, policies, are_known=True).current
        if retention is None and settings.default_retention_time_in_minutes:
            assert create_retention_policy(applied) == RetentionPolicy(7 * 60_000, 0)
        else:
            assert create_retention_policy(applied) == expected
        assert create_retention_without_subscription(applied) == (
            RetentionWithoutSubscription(604_800_000, None) if retention is None else NO_RETENTION
        )
