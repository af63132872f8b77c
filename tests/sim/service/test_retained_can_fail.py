"""The check of what topics without a durable subscription retain fires on what it forbids, and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.ledger_list import ListedLedger as ListedOne
from magnetar_broker.position import Position
from magnetar_protos import ledger_pb2
from magnetar_protos.cursor_pb2 import CursorNode
from magnetar_protos.managed_ledger_pb2 import DELETING, LIVE, ListedLedger, ManagedLedgerNode, TopicState
from tests.sim.invariants.history import Violation
from tests.sim.loop import new_loop
from tests.sim.service.retained import Retained

_TOPIC = "persistent://public/default/t"


class Scene:
    """Topic t with ledgers 7 and 8, closed at 1,000 ms and 2,000 ms, and 9, which is open. It is 5,000 ms."""

    def __init__(self, time_ms: int | None = 3_500, item: str = "RET-1") -> None:
        self.broker = new_loop().process("b")
        self.now_ms = 5_000
        self.ledgers = {
            7: ledger_pb2.LedgerMetadata(state=ledger_pb2.CLOSED, last_entry_id=3, closed_ms=1_000),
            8: ledger_pb2.LedgerMetadata(state=ledger_pb2.CLOSED, last_entry_id=3, closed_ms=2_000),
            9: ledger_pb2.LedgerMetadata(state=ledger_pb2.OPEN, last_entry_id=-1),
        }
        self.looked = 0
        self.item = item
        self.retained = Retained(time_ms, lambda _: self.now_ms, self.ledgers.get, self._look, item == "RET-2")
        self.listed(7, 8, 9)

    def _look(self, item: str) -> None:
        assert item in (self.item, "RET-3")
        self.looked += 1

    def listed(self, *ledgers: int, mark: int = 0, incarnation: str = "i", state: TopicState = LIVE) -> None:
        listed = [ListedLedger(ledger_id=ledger_id) for ledger_id in ledgers]
        node = ManagedLedgerNode(incarnation=incarnation, ledgers=listed, state=state, unsubscribed_up_to=mark)
        self.retained.topic_changed(_TOPIC, node, self.broker)

    def subscribed(self) -> None:
        self.retained.cursor_changed(_TOPIC, CursorNode(incarnation="i"))

    def leaves(self, *left: int, mark: int = 0, match: str) -> None:
        with pytest.raises(Violation, match=match):
            self.listed(*left, mark=mark)


def test_deletion_within_the_retention_time_is_detected() -> None:
    scene = Scene()
    scene.listed(8, 9)
    assert scene.looked == 1
    scene.leaves(9, match="ledger 8")
    scene = Scene(None)
    scene.now_ms = 10**12
    scene.leaves(8, 9, match="ledger 7")
    scene = Scene(0)
    scene.now_ms = 500  # another clock
    scene.listed(9)
    scene.leaves(match="not closed")


def test_with_a_subscription_the_mark_decides() -> None:
    for mark, left in ((0, (8, 9)), (7, (8, 9)), (7, (9,)), (8, (9,))):
        scene = Scene()
        scene.now_ms = 4_499
        scene.listed(7, 8, 9, mark=mark)
        scene.subscribed()
        if mark:
            scene.leaves(*left, mark=mark, match="ledger 7")
        else:
            scene.listed(*left)
        assert scene.looked == bool(mark)


def test_a_policy_covers_all_ledgers() -> None:
    scene = Scene(item="RET-2")
    scene.subscribed()
    scene.now_ms = 4_499
    scene.leaves(8, 9, match="ledger 7")
    scene = Scene(item="RET-2")
    scene.subscribed()
    scene.now_ms = 5_000
    scene.listed(8, 9)
    assert scene.looked == 1


@pytest.mark.parametrize(
    ("item", "mark", "slowest", "now_ms", "expected"),
    [
        ("RET-1", 0, None, 4_499, None),
        ("RET-1", 0, None, 4_500, 7),
        ("RET-1", 0, Position(7, 2), 10**9, None),
        ("RET-1", 0, Position(7, 3), 1_000, 7),
        ("RET-1", 7, Position(7, 3), 4_499, None),
        ("RET-2", 0, Position(7, 3), 4_499, None),
        ("RET-2", 0, Position(7, 3), 4_500, 7),
    ],
)
def test_a_ledger_that_nothing_needs_or_retains_is_overdue(
    item: str, mark: int, slowest: Position | None, now_ms: int, expected: int | None
) -> None:
    ledgers = LedgerList("i", [ListedOne(7, True, 4, closed_ms=1_000)], unsubscribed_up_to=mark)
    log = SimpleNamespace(
        ledger_list=ledgers,
        leases=SimpleNamespace(any_active=False),
        retention=SimpleNamespace(find_needed=lambda: None),
    )
    retained = Scene(item=item).retained
    assert retained.find_overdue(cast(Any, log), slowest, now_ms) == expected
    log.leases.any_active = True
    assert retained.find_overdue(cast(Any, log), slowest, now_ms) is None


@pytest.mark.parametrize("how", ["deleted", "missing", "another", "truncated", "empty"])
def test_deletion_for_other_reasons_is_not_checked(how: str) -> None:
    scene = Scene(None)
    left: Sequence[int] = (9,)
    if how == "deleted":
        scene.listed(state=DELETING)
    elif how == "missing":
        scene.retained.topic_changed(_TOPIC, None, scene.broker)
    elif how == "truncated":
        scene.retained.truncating("t")
    elif how == "empty":
        scene.ledgers[9].state = ledger_pb2.CLOSED
        left = (7, 8)
    scene.listed(*left, incarnation="j" if how == "another" else "i")
    assert scene.looked == 0
