"""How long a log waits before its next ledger, and that it says so."""

from __future__ import annotations

from magnetar_broker.core.ledger_backoff import LedgerBackoff
from magnetar_broker.managed_ledger.options import ManagedLedgerOptions
from tests.unit.broker.log_scene import Scene, in_scene, numbered

WIDE = ManagedLedgerOptions(
    managed_ledger_default_ensemble_size=1,
    managed_ledger_default_write_quorum=1,
    managed_ledger_default_ack_quorum=1,
)


def test_the_pause_grows_with_each_ledger_that_stored_nothing_and_ends_with_the_first_entry() -> None:
    """CHK-66"""
    backoff = LedgerBackoff()
    assert backoff.pause_s(0.0) == 0.0
    pauses = []
    for _ in range(100):
        backoff.ledger_failed()
        pauses.append(backoff.pause_s(0.0))
        assert backoff.pause_s(1.0) == pauses[-1] / 2
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 5.0
    backoff.entry_stored()
    assert backoff.pause_s(0.0) == 0.0


def test_ledgers_that_fail_in_vain_are_made_ever_more_seldom() -> None:
    """CHK-66, STO-1: the log says what it waits for, and goes on when the bookie takes entries again."""

    async def test(scene: Scene) -> None:
        log = await scene.open(options=WIDE)
        await scene.append(log, *numbered(2))
        (bookie,) = scene.bookies.values()
        bookie.failing.add("add")
        scene.outcomes.append(log, *numbered(3, 2))
        await scene.wait(lambda: "stored nothing" in log.waiting_for)
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

    in_scene(test, bookies=1)


def test_a_ledger_that_stored_something_is_replaced_at_once() -> None:
    """CHK-66, STO-1: a single failure makes no gap."""

    async def test(scene: Scene) -> None:
        log = await scene.open(options=WIDE)
        await scene.append(log, *numbered(2))
        began = scene.clock.monotonic()
        written = log._writing.written
        assert written is not None
        (bookie_id,) = written.writer.metadata.last_fragment.bookies
        scene[bookie_id].failing.add("add")
        await scene.append(log, *numbered(2, 2))
        assert scene.clock.monotonic() < began + 1
        assert log.stats().state == "written"
        assert await scene.payloads(log) == numbered(4)

    in_scene(test, bookies=2)
