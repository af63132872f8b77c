"""Which bookies are lost, since when, and which ledgers are underreplicated or due for a check."""

from __future__ import annotations

from magnetar_bookie.auto_recovery.auditor_rules import CheckSchedule, bookies_to_replace
from magnetar_bookie.auto_recovery.lost_bookies import ClusterView, LostBookies
from magnetar_bookie.core.ledger_metadata import LedgerMetadata, LedgerState
from magnetar_bookie.read.striping import Fragment, Striping

ALL = ("b1", "b2", "b3")


def view(*alive: str, cookies: tuple[str, ...] = ALL, leaving: tuple[str, ...] = ()) -> ClusterView:
    return ClusterView(cookies=cookies, alive=alive, writable=alive, leaving=leaving)


def test_a_bookie_is_lost_when_it_was_away_for_the_delay() -> None:
    lost = LostBookies(10)
    lost.observe(view("b1", "b2"), 100)
    assert not lost.is_lost("b3", 109)
    assert lost.is_lost("b3", 110)
    assert not lost.is_lost_for("b3", 114, 5)
    assert lost.is_lost_for("b3", 115, 5)
    assert [lost.next_due(now, 5) for now in (100, 110, 115)] == [110, 115, None]


def test_lost_bookie_delay_restarts_after_bookie_returns() -> None:
    lost = LostBookies(10)
    lost.observe(view("b1", "b2"), 100)
    lost.observe(view("b1", "b2", "b3"), 105)
    lost.observe(view("b1", "b2"), 106)
    assert not lost.is_lost("b3", 115)
    assert lost.is_lost("b3", 116)


def test_one_that_leaves_is_lost_at_once_though_it_is_alive() -> None:
    lost = LostBookies(10)
    lost.observe(view(*ALL, leaving=("b2",)), 100)
    assert lost.is_lost("b2", 100)
    assert not lost.is_lost_for("b2", 104, 5)
    assert lost.is_lost_for("b2", 105, 5)


def test_one_without_a_cookie_is_lost_at_once_when_a_ledger_names_it() -> None:
    lost = LostBookies(10)
    lost.observe(view(*ALL), 100)
    assert not lost.is_lost("b9", 200)
    lost.observe_named(["b1", "b9"], 200)
    assert lost.is_lost("b9", 200)
    assert not lost.is_lost("b1", 1e9)
    # A cookie that vanishes ends the delay of a bookie that is away.
    lost.observe(view("b1", "b2"), 300)
    assert not lost.is_lost("b3", 301)
    lost.observe(view("b1", "b2", cookies=("b1", "b2")), 301)
    assert lost.is_lost("b3", 301)


def metadata(state: LedgerState, *fragments: tuple[str, ...]) -> LedgerMetadata:
    made = tuple(Fragment(5 * index, bookies) for index, bookies in enumerate(fragments))
    last = 5 * len(fragments) - 1 if state is LedgerState.CLOSED else -1
    return LedgerMetadata(state, Striping(2, 2, 1), b"key", made, last_entry_id=last)


def test_a_growing_fragment_counts_after_the_grace_time_only() -> None:
    lost = LostBookies(10)
    lost.observe(view("b1", "b2"), 100)
    closed = metadata(LedgerState.CLOSED, ("b1", "b2"), ("b2", "b3"))
    growing = metadata(LedgerState.OPEN, ("b1", "b2"), ("b2", "b3"))
    earlier = metadata(LedgerState.IN_RECOVERY, ("b1", "b3"), ("b1", "b2"))
    assert [bookies_to_replace(one, lost, 109, 5) for one in (closed, growing, earlier)] == [[], [], []]
    assert [bookies_to_replace(one, lost, 110, 5) for one in (closed, growing, earlier)] == [["b3"], [], ["b3"]]
    assert bookies_to_replace(growing, lost, 115, 5) == ["b3"]


def test_a_closed_ledger_is_checked_when_it_is_new_when_it_changed_and_from_time_to_time() -> None:
    checks = CheckSchedule(interval_s=100, retry_s=10)
    for ledger_id in (3, 1, 2):
        checks.add_ledger(ledger_id, 0)
    assert checks.due_ledgers(0, 2) == [1, 2]
    checks.record_complete(1, 0, 0)
    checks.record_incomplete(2, 0)
    assert checks.due_ledgers(0, 9) == [3]
    assert checks.due_ledgers(10, 9) == [3, 2]
    checks.record_complete(2, 0, 10)
    checks.record_complete(3, 0, 10)
    assert checks.due_ledgers(50, 9) == []
    assert checks.next_due() == 100
    checks.add_ledger(3, 1)
    assert checks.due_ledgers(50, 9) == [3]
    assert checks.due_ledgers(100, 9) == [3, 1]
    checks.retain_only([1, 3])
    assert checks.due_ledgers(1000, 9) == [3, 1]
    # A late result does not add a ledger that was removed.
    checks.record_complete(2, 0, 0)
    checks.record_incomplete(2, 0)
    assert checks.due_ledgers(1000, 9) == [3, 1]
