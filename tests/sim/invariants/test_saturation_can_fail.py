"""CHK-66: the checks of saturation report histories with a violation, and accept others."""

from __future__ import annotations

import pytest

from magnetar_protos.ledger_pb2 import OPEN, LedgerIntent, LedgerMetadata
from tests.sim.invariants import Checker
from tests.sim.invariants.history import History, Violation
from tests.sim.invariants.saturation import check_unanswered, ledger_listed, topic_opened
from tests.sim.loop import new_loop
from tests.sim.service.memory_watch import check_log, check_stream, check_topic


class Scene:
    """A log whose process lists one ledger after the other."""

    def __init__(self) -> None:
        self.now = 0.0
        self.history = History(lambda: self.now)
        self.loop = new_loop()
        self.process = self.loop.process("broker")
        self.ledgers = 0

    def lists(self, count: int, every_s: float, *, stores: int = 0, fails: bool = True) -> None:
        for _ in range(count):
            self.now += every_s
            self.ledgers += 1
            ledger = self.history.ledger(self.ledgers)
            ledger.maker = self.process
            ledger_listed(self.history, "t", self.ledgers)
            ledger.payloads = [b"x"] * (stores + fails)
            ledger.acked = stores - 1


def test_ledgers_in_vain_one_after_the_other_are_seen() -> None:
    with pytest.raises(Violation, match="and 0 entries were stored") as raised:
        Scene().lists(100, 0.02)
    assert raised.value.item == "66"


def test_a_ledger_for_each_stored_entry_is_seen() -> None:
    """CHK-66: each of them fails after its first entry was acknowledged."""
    with pytest.raises(Violation, match="each after one that failed") as raised:
        Scene().lists(100, 0.02, stores=1)
    assert raised.value.item == "66"


def test_failed_ledgers_are_seen_however_many_entries_they_store() -> None:
    """CHK-66"""
    with pytest.raises(Violation, match="each after one that failed"):
        Scene().lists(100, 0.02, stores=10)


def test_failed_ledgers_that_follow_each_other_slowly_but_for_long_are_seen() -> None:
    """CHK-66: 11 within 5 s are no violation, and 61 within 60 s are one."""
    scene = Scene()
    scene.lists(61, 0.5)
    with pytest.raises(Violation, match="got 61 ledgers within 30") as raised:
        scene.lists(1, 0.5)
    assert raised.value.item == "66"


@pytest.mark.parametrize(("every_s", "most"), [(0.1, 20), (0.5, 60)])
def test_failed_ledgers_of_a_cursor_are_seen_when_they_are_created(every_s: float, most: int) -> None:
    """CHK-66: no cursor's node ever points at them. Those of other cursors do not count."""
    now = 0.0
    checker = Checker(lambda: now)
    by = new_loop().process("broker")

    def create(ledger_id: int, purpose: str) -> None:
        head = bytes(10)
        intent = LedgerIntent(purpose=purpose)
        checker.metadata_changed(f"/ledger-intents/{ledger_id:016x}", head + intent.SerializeToString(), by)
        metadata = LedgerMetadata(state=OPEN)
        checker.metadata_changed(f"/ledgers/{ledger_id:016x}", head + metadata.SerializeToString(), by)

    for number in range(most + 1):
        now += every_s
        create(2 * number + 1, "cursor 's' of t")
        create(2 * number + 2, f"cursor 's{number % 10}' of u")
    now += every_s
    with pytest.raises(Violation, match=f"cursor 's' of t got {most + 1} ledgers") as raised:
        create(1_000, "cursor 's' of t")
    assert raised.value.item == "66"


def test_a_topic_that_is_opened_again_may_fail_a_few_ledgers_more() -> None:
    """CHK-66: only for openings by the process that creates the ledgers, and within the window."""
    scene = Scene()
    topic_opened(scene.history, "t", scene.process)
    scene.now = 6.0
    for number in range(3):
        topic_opened(scene.history, "t", scene.process)
        topic_opened(scene.history, "t", scene.loop.process(f"broker{number}"))
        topic_opened(scene.history, "u", scene.process)
    scene.lists(33, 0.02)
    with pytest.raises(Violation, match="got 33 ledgers") as raised:
        scene.lists(1, 0.02)
    assert raised.value.item == "66"


def test_ledgers_that_are_closed_whole_may_follow_each_other_fast() -> None:
    Scene().lists(100, 0.02, stores=1, fails=False)


def test_ledgers_in_vain_may_be_made_seldom_and_by_others() -> None:
    scene = Scene()
    scene.lists(100, 1.1)
    for number in range(30):
        scene.process = scene.loop.process(f"broker{number}")
        scene.lists(5, 0.02)


def test_unanswered_bytes_above_the_bound_are_detected() -> None:
    scene = Scene()
    scene.history.longest_payload = 1_300
    check_unanswered(scene.history, "b0", 10_000 + 2 * 3 * 2_000, 10_000, open_ledgers=1, max_pending=3)
    with pytest.raises(Violation) as raised:
        check_unanswered(scene.history, "b0", 10_000 + 2 * 3 * 2_000 + 1, 10_000, open_ledgers=1, max_pending=3)
    assert raised.value.item == "66"


def test_new_entries_for_a_bookie_that_lags_are_seen_and_resent_ones_are_not() -> None:
    """CHK-66"""
    checker = Checker(lambda: 0.0)
    for entry_id in range(3):
        checker.appended(1, entry_id, b"x")
    checker.sent_to_lagging("b0", 1, 2)
    with pytest.raises(Violation, match="b0 lags, and is sent new entry 3") as raised:
        checker.sent_to_lagging("b0", 1, 3)
    assert raised.value.item == "66"


def test_full_stream_accepting_a_message_is_detected() -> None:
    """CHK-66"""
    check_stream(1, 999, 1_000)
    with pytest.raises(Violation):
        check_stream(1, 1_000, 1_000)


def test_a_topic_that_holds_more_than_its_bound_and_a_message_is_seen() -> None:
    """CHK-66"""
    check_topic("t", 1_499, 1_000, longest_message_bytes=500)
    with pytest.raises(Violation):
        check_topic("t", 1_500, 1_000, longest_message_bytes=500)


def test_a_log_that_holds_more_than_its_bound_and_an_entry_is_seen() -> None:
    """CHK-66"""
    check_log("t", 1_563, 1_000, longest_entry_bytes=500)
    with pytest.raises(Violation):
        check_log("t", 1_564, 1_000, longest_entry_bytes=500)
