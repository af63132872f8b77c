"""A task's requests to brokers: it renews the batch's leases while it reads (leases/batch_lease.py), reports that its
slice is read, and asks once for each ledger whose entries no bookie returned where they are stored now.

A renewal that failed is repeated. A lease that has ended is logged, and entries are read as long as they exist.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar.admin.reading import MessagePosition, Plan
from magnetar.exceptions import MagnetarException, TopicNotFound
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.errors import NotReadNow
from magnetar_spark.leases.batch_lease import get_renewal_times
from magnetar_spark.leases.lease_renewals import LeaseRenewals
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.task.entry_prefetch import Deletion, EntryLocations

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["BrokerClient"]

# How long a task that ends waits for renewals in flight, and for the report that its slice is read.
_END_TIMEOUT_S: Final = 1.0
# The maximum number of parts of a read at brokers.
_MAX_PARTS: Final = 4096


class BrokerClient:
    """Belongs to one loop."""

    def __init__(self, log_slice: LogSlice, create_admin: Callable[[], AsyncAdmin] | None = None) -> None:
        self._slice = log_slice
        connection = log_slice.connection
        self._create_admin = create_admin or (lambda: _create_admin(connection))
        # Most tasks need none.
        self._created_admin: AsyncAdmin | None = None
        self._renewals: LeaseRenewals | None = None

    def start_renewals(self) -> None:
        """Renew the batch's leases from now on. A stream's are renewed by its driver."""
        batch = self._slice.lease
        if batch is not None:
            self._renewals = LeaseRenewals(self._renew, batch.lease.renew_every_s, get_renewal_times(batch))
            self._renewals.start()

    async def report_slice_read(self) -> None:
        """Report that the slice was read to its end. If no broker answers, the lease lasts for its whole time."""
        batch, one = self._slice.lease, self._slice
        if batch is None or one.parts > _MAX_PARTS:
            return
        with contextlib.suppress(MagnetarException, TimeoutError):
            async with asyncio.timeout(_END_TIMEOUT_S):
                lease = batch.lease
                await self._admin.reading.finish_part(one.log, lease.lease_id, lease.read_id, one.part, one.parts)

    async def locate_entries(self, ledger_id: int, first: int, last: int) -> EntryLocations | Deletion:
        """Request a new plan; see `entry_prefetch.LocateEntries`."""
        start, stop = MessagePosition(ledger_id, first, 0), MessagePosition(ledger_id, last + 1, 0)
        try:
            plan = await self._admin.reading.plan(
                self._slice.log, incarnation=self._slice.incarnation, start=start, stop=stop, fresh=True
            )
        except TopicNotFound:
            return Deletion.TOPIC
        except MagnetarException as error:
            raise NotReadNow(
                f"no bookie returned the entries of ledger {ledger_id} of {self._slice.log}, and the "
                f"brokers could not report their current bookies: {error}"
            ) from error
        return Deletion.TOPIC if plan.other_incarnation else _find_ledger(plan, ledger_id)

    async def close(self) -> None:
        if self._renewals is not None:
            await self._renewals.stop(_END_TIMEOUT_S)
        if self._created_admin is not None:
            await self._created_admin.close()

    @property
    def _admin(self) -> AsyncAdmin:
        if self._created_admin is None:
            self._created_admin = self._create_admin()
        return self._created_admin

    async def _renew(self, log: str) -> None:
        assert self._slice.lease is not None
        lease = self._slice.lease.lease
        await self._admin.reading.renew_lease(log, "", lease.lease_id, lease.lease_ms, read_id=lease.read_id)


def _create_admin(connection: Connection) -> AsyncAdmin:
    from magnetar.admin import AsyncAdmin

    return AsyncAdmin(connection.service_url, connection.reconnect_s, listener_name=connection.listener_name)


def _find_ledger(plan: Plan, ledger_id: int) -> EntryLocations | Deletion:
    for piece in plan.pieces:
        if piece.ledger_id == ledger_id:
            return EntryLocations(
                Striping(piece.ensemble_size, piece.write_quorum, piece.ack_quorum),
                [Fragment(one.first_entry_id, tuple(one.bookies)) for one in piece.fragments],
                dict(plan.bookies),
                piece.first_entry_id,
                open=piece.open,
            )
    return Deletion.LEDGER
