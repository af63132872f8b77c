"""Logs whose bookie lags: they wait, say so, and go on in the same ledger."""

from __future__ import annotations

from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.log_scene import numbered, running_log_scene

WIDE = ManagedLedgerSettings(
    managed_ledger_default_ensemble_size=1,
    managed_ledger_default_write_quorum=1,
    managed_ledger_default_ack_quorum=1,
)


async def test_logs_wait_for_a_bookie_that_lags_and_go_on_when_it_has_caught_up() -> None:
    """CHK-66, STO-1: also the log that has nothing pending there, and whose ledger is made meanwhile."""

    async with running_log_scene(bookies=1) as scene:
        scene.settings = scene.settings.model_copy(update={"max_bookie_lag_bytes": 2000})
        client = await scene.another()
        busy = await scene.open(client, WIDE)
        quiet = await scene.open(client, WIDE, name=TopicName.parse("persistent://public/default/quiet"))
        idle = await scene.open(client, WIDE, name=TopicName.parse("persistent://public/default/idle"))
        await scene.append(quiet, b"before")
        (bookie,) = scene.bookies.values()
        bookie.hold()
        scene.outcomes.append(busy, *numbered(20))
        await scene.wait(lambda: "lag" in busy.waiting_for)
        assert busy.stats().state == "waiting"
        scene.outcomes.append(busy, *numbered(5, 20))
        scene.outcomes.append(quiet, b"meanwhile")
        scene.outcomes.append(idle, b"the first")
        await scene.wait(lambda: "b0" in idle.waiting_for and "b0" in quiet.waiting_for)
        assert len(scene.outcomes.told) == 1
        bookie.resume()
        await scene.decided()
        await scene.wait(lambda: not any(log.waiting_for for log in (busy, quiet, idle)))
        assert await scene.payloads(busy) == numbered(25)
        assert await scene.payloads(quiet) == [b"before", b"meanwhile"]
        assert [len(log.stats().ledgers) for log in (busy, quiet, idle)] == [1, 1, 1]
