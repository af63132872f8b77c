"""How long a log waits before its next ledger, and that it says so."""

from __future__ import annotations

import pytest

from magnetar_broker.managed_ledger.ledger_backoff import LedgerBackoff
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from tests.unit.broker.log_scene import numbered, running_log_scene

WIDE = ManagedLedgerSettings(
    managed_ledger_default_ensemble_size=1,
    managed_ledger_default_write_quorum=1,
    managed_ledger_default_ack_quorum=1,
)


class FailingLedgers:
    """A log each of whose ledgers fails after it has served for some time."""

    def __init__(self, random: float = 0.0) -> None:
        self.backoff = LedgerBackoff()
        self.random = random
        self.now = 1_000.0
        self.created = 0

    def fail(self, served_s: float) -> float:
        """The next ledger is created, serves and fails. Return the pause after it."""
        self.now += self.backoff.pause_s(self.now)
        self.created += 1
        self.now += served_s
        self.backoff.count_failure(self.now, self.random)
        return self.backoff.pause_s(self.now)


def test_log_without_failed_ledgers_does_not_pause() -> None:
    assert LedgerBackoff().pause_s(0.0) == 0.0


def test_pauses_double_while_ledgers_fail_at_once() -> None:
    """CHK-66"""
    log = FailingLedgers()
    pauses = [log.fail(0.0) for _ in range(100)]
    assert pauses[0] == 0.0
    assert pauses[1:5] == pytest.approx([0.05, 0.15, 0.35, 0.75], rel=0.1)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(5.0)


@pytest.mark.parametrize("random", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("served_s", [0.0, 0.001, 0.05, 0.3, 1.0, 2.0, 4.9, 10.0])
def test_creation_rate_of_failing_ledgers_is_bounded(served_s: float, random: float) -> None:
    """CHK-66: at most 9 and one in 2.5 seconds."""
    log = FailingLedgers(random)
    began = log.now
    for _ in range(500):
        log.fail(served_s)
        assert log.created <= 9 + (log.now - began) / 2.5


def test_ledgers_that_serve_for_long_are_replaced_at_once() -> None:
    """STO-1: ordinary failures of bookies make no gap."""
    log = FailingLedgers()
    assert [log.fail(10.0) for _ in range(50)] == [0.0] * 50


def test_a_long_outage_is_forgiven_within_a_minute() -> None:
    log = FailingLedgers()
    for _ in range(1_000):
        log.fail(0.0)
    assert log.fail(20.0) < 1.0
    log.fail(40.0)
    assert log.fail(10.0) == 0.0


def test_a_pause_counts_from_the_failure() -> None:
    """An idle log that gets its next entry later does not pause."""
    log = FailingLedgers()
    for _ in range(10):
        log.fail(0.0)
    assert log.backoff.pause_s(log.now + 1.0) == pytest.approx(log.backoff.pause_s(log.now) - 1.0)
    assert log.backoff.pause_s(log.now + 5.0) == 0.0


async def test_ledgers_that_fail_in_vain_are_made_ever_more_seldom() -> None:
    """CHK-66, STO-1: the log says what it waits for, and goes on when the bookie takes entries again."""

    async with running_log_scene(bookies=1) as scene:
        log = await scene.open(options=WIDE)
        await scene.append(log, *numbered(2))
        (bookie,) = scene.bookies.values()
        bookie.failing.add("add")
        scene.outcomes.append(log, *numbered(3, 2))
        await scene.wait(lambda: "ledgers failed repeatedly" in log.waiting_for)
        assert log.stats().state == "waiting"
        listed: set[int] = set()

        def made() -> int:
            listed.update(one.ledger_id for one in log.stats().ledgers)
            return len(listed)

        began = scene.clock.monotonic()
        await scene.wait(lambda: made() > 0 and scene.clock.monotonic() > began + 60)
        assert 8 <= made() <= 30
        bookie.failing.clear()
        await scene.decided()
        assert log.waiting_for == ""
        assert await scene.payloads(log) == numbered(5)
        assert scene.lost == []


async def test_ledgers_that_each_store_an_entry_are_created_ever_more_seldom() -> None:
    """CHK-66: the bookie stores one entry of each ledger, and fails the next."""

    async with running_log_scene(bookies=1) as scene:
        log = await scene.open(options=WIDE)
        (bookie,) = scene.bookies.values()
        listed: set[int] = set()
        began, sent = scene.clock.monotonic(), 0
        while scene.clock.monotonic() < began + 60:
            bookie.failing.clear()
            await scene.append(log, *numbered(1, sent))
            bookie.failing.add("add")
            scene.outcomes.append(log, *numbered(1, sent + 1))
            current = log._appender.current_ledger
            await scene.wait(lambda: log._appender.current_ledger is not current)  # noqa: B023 (called at once)
            listed.update(one.ledger_id for one in log.stats().ledgers)
            sent += 2
        assert 8 <= len(listed) <= 33
        bookie.failing.clear()
        await scene.decided()
        assert await scene.payloads(log) == numbered(sent)


async def test_a_ledger_that_stored_something_is_replaced_at_once() -> None:
    """CHK-66, STO-1: a single failure makes no gap."""

    async with running_log_scene(bookies=2) as scene:
        log = await scene.open(options=WIDE)
        await scene.append(log, *numbered(2))
        began = scene.clock.monotonic()
        current = log._appender.current_ledger
        assert current is not None
        (bookie_id,) = current.writer.metadata.last_fragment.bookies
        scene[bookie_id].failing.add("add")
        await scene.append(log, *numbered(2, 2))
        assert scene.clock.monotonic() < began + 1
        assert log.stats().state == "written"
        assert await scene.payloads(log) == numbered(4)
