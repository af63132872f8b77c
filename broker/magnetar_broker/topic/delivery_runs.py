"""Entries that one consumer gets, as runs of which the same is said."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.core.dispatch.dispatch import Deliverable
from magnetar_broker.topic.consumer import DeliveryRun

__all__ = ["delivery_runs"]


def delivery_runs(epoch: int, entries: Sequence[Deliverable]) -> list[DeliveryRun]:
    runs: list[DeliveryRun] = []
    run: DeliveryRun | None = None
    ledger_id = expected = -1
    for one in entries:
        entry = one.entry
        position = entry.position
        if one.acknowledged:
            bits = one.acknowledged.to_bytes((one.acknowledged.bit_length() + 7) // 8, "little")
            runs.append(DeliveryRun(epoch, one.redelivery_count, bits, [entry], len(entry.stored)))
            run = None
            continue
        if (
            run is not None
            and position.entry_id == expected
            and position.ledger_id == ledger_id
            and one.redelivery_count == run.redelivery_count
        ):
            run.entries.append(entry)
            run.bytes += len(entry.stored)
        else:
            run = DeliveryRun(epoch, one.redelivery_count, b"", [entry], len(entry.stored))
            runs.append(run)
        ledger_id, expected = position.ledger_id, position.entry_id + 1
    return runs
