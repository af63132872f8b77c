"""Entries that one consumer gets, as runs of which the same is said."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.topics.consumer import DeliveryRun
from magnetar_broker.topics.dispatch.dispatch_rule import Deliverable
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["delivery_runs"]


def delivery_runs(epoch: int, entries: Sequence[Deliverable]) -> list[DeliveryRun]:
    runs: list[DeliveryRun] = []
    run: DeliveryRun | None = None
    ledger_id = expected = -1
    for one in entries:
        entry = one.entry
        position = entry.position
        memory_bytes = len(entry.stored) + ENTRY_OVERHEAD_BYTES
        if one.acknowledged:
            bits = one.acknowledged.to_bytes((one.acknowledged.bit_length() + 7) // 8, "little")
            runs.append(DeliveryRun(epoch, one.redelivery_count, bits, [entry], memory_bytes))
            run = None
            continue
        if (
            run is not None
            and position.entry_id == expected
            and position.ledger_id == ledger_id
            and one.redelivery_count == run.redelivery_count
        ):
            run.entries.append(entry)
            run.memory_bytes += memory_bytes
        else:
            run = DeliveryRun(epoch, one.redelivery_count, b"", [entry], memory_bytes)
            runs.append(run)
        ledger_id, expected = position.ledger_id, position.entry_id + 1
    return runs
