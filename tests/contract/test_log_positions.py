"""The fake logs number entries as a managed ledger does."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_broker.managed_ledger.interface import LogPositions
from magnetar_broker.position import EARLIEST, Position
from tests.unit.broker.fake_log import FakeLog, FakeLogPositions
from tests.unit.broker.log_scene import SMALL, numbered, running_log_scene


def _answers(log: LogPositions, ledger_ids: list[int]) -> dict[str, Any]:
    """What it answers to every question of `LogPositions`."""
    fake = [Position(ledger_id, entry_id) for ledger_id in ledger_ids for entry_id in range(-1, 4)]
    return {
        "before_first": log.before_first,
        "last": log.last,
        "first_after": [log.first_after(position) for position in fake if position < log.last],
        "ledger_end": [log.ledger_end(ledger_id) for ledger_id in ledger_ids],
        "next_ledger": [log.next_ledger(ledger_id) for ledger_id in ledger_ids],
        "entries_between": [log.entries_between(after, up_to) for after in [EARLIEST, *fake] for up_to in fake],
    }


@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 8])
async def test_fake_logs_answer_as_a_managed_ledger_does(count: int) -> None:
    """Ledgers have three entries; the last one is open."""
    async with running_log_scene() as scene:
        log = await scene.open(options=SMALL)
        await scene.append(log, *numbered(count))
        ledger_ids = [ledger.ledger_id for ledger in log.stats().ledgers]
        counts = [min(3, count - 3 * number) for number in range(len(ledger_ids))]
        fake = FakeLogPositions(*zip(ledger_ids, counts, strict=True))
        assert _answers(fake, ledger_ids) == _answers(log, ledger_ids)
    entries = FakeLog(per_ledger=3)
    for _ in range(count):
        entries.add()
    ledger_ids = list(dict.fromkeys(position.ledger_id for position in entries.order))
    assert _answers(entries, ledger_ids) == _answers(
        FakeLogPositions(*zip(ledger_ids, counts, strict=True)), ledger_ids
    )
