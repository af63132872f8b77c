"""Slices of a log for tests, planned as the data source does it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from magnetar.admin import AsyncAdmin, MessagePosition
from magnetar_spark.leases.lease import Lease, create_lease
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.options.columns import COLUMNS
from magnetar_spark.planning.log_plan import LogPlan, LogPlanner
from magnetar_spark.planning.slice_builder import build_slices
from magnetar_spark.task import slice_reader

__all__ = ["EARLIEST", "ids_of", "rows_of", "slices_of"]

EARLIEST: Final = MessagePosition(0, 0, 0)


def slices_of(
    url: str,
    log: str,
    start: MessagePosition = EARLIEST,
    stop: MessagePosition | None = None,
    tasks: int = 1,
    lease: Lease | None = None,
    fail_on_data_loss: bool = True,
    entered: MessagePosition | None = None,
) -> list[LogSlice]:
    """In the log's order. Where no lease is given the plan's own holds for a minute; nobody renews it."""

    async def planned() -> LogPlan:
        async with AsyncAdmin(url) as admin:
            planner = LogPlanner(admin, lease or create_lease(60_000), "", "a test", "a test")
            return await planner.plan_range(log, "", start, stop, entered=entered)

    found = build_slices([asyncio.run(planned())], tasks, None, Connection(url, ""), fail_on_data_loss)
    return sorted(found, key=lambda one: (one.pieces[0].ledger_id, one.pieces[0].first_entry_id))


def rows_of(slices: list[LogSlice], columns: tuple[str, ...] = COLUMNS) -> list[dict[str, Any]]:
    return [row for one in slices for batch in slice_reader.read_slice(one, columns) for row in batch.to_pylist()]


def ids_of(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    ids = [row["message_id"] for row in rows]
    return [(one["ledger_id"], one["entry_id"], one["batch_index"]) for one in ids]
