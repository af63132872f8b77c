"""What a task asks of the slice's brokers: that the query's lease holds on while it reads (leases/batch_lease.py), that
it has read all of its slice, and, once for a ledger whose entries no bookie gave, where they are now.

A lease that could not be renewed is tried again; one that has ended is told of, and the entries are read as long as
they are there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar.admin.reading import NextMessage, Plan
from magnetar.exceptions import MagnetarException, TopicNotFound
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.errors import NotReadNow
from magnetar_spark.leases.batch_lease import due_here
from magnetar_spark.leases.lease_renewals import Renewals
from magnetar_spark.log_slice import Connection, LogSlice
from magnetar_spark.task.entry_prefetch import Deleted, Whereabouts

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["SliceBroker"]

# A task that ends waits so long for renewals that are in flight, and to report its end.
_LAST_S: Final = 1.0
# Brokers know no read in more parts.
_MAX_PARTS: Final = 4096


class SliceBroker:
    """Belongs to one loop."""

    def __init__(self, log_slice: LogSlice, admin: Callable[[], AsyncAdmin] | None = None) -> None:
        self._slice = log_slice
        connection = log_slice.connection
        self._make_admin = admin or (lambda: _admin_of(connection))
        # Most tasks need none.
        self._admin: AsyncAdmin | None = None
        self._renewals: Renewals | None = None

    def keep_lease(self) -> None:
        """Renews it from now on, unless the driver does."""
        held = self._slice.lease
        if held is not None:
            self._renewals = Renewals(self._renew, held.lease.renew_every_s, due_here(held))
            self._renewals.begin()

    async def finish_part(self) -> None:
        """Reports that the slice was read to its end. If nobody can be told the lease lasts for all of its time."""
        held, one = self._slice.lease, self._slice
        if held is None or one.parts > _MAX_PARTS:
            return
        with contextlib.suppress(MagnetarException, TimeoutError):
            async with asyncio.timeout(_LAST_S):
                lease = held.lease
                await self._asked.reading.finish_part(one.log, lease.lease_id, lease.read_id, one.part, one.parts)

    async def close(self) -> None:
        if self._renewals is not None:
            await self._renewals.end(_LAST_S)
        if self._admin is not None:
            await self._admin.close()

    async def new_plan(self, ledger_id: int, first: int, last: int) -> Whereabouts | Deleted:
        """See `entry_runs.NewPlan`."""
        begin, end = NextMessage(ledger_id, first, 0), NextMessage(ledger_id, last + 1, 0)
        try:
            plan = await self._asked.reading.plan(
                self._slice.log, incarnation=self._slice.incarnation, start=begin, stop=end, fresh=True
            )
        except TopicNotFound:
            return Deleted.TOPIC
        except MagnetarException as error:
            raise NotReadNow(
                f"no bookie returned the entries of ledger {ledger_id} of {self._slice.log}, and the "
                f"brokers could not be asked for their current bookies: {error}"
            ) from error
        return Deleted.TOPIC if plan.other_incarnation else _whereabouts(plan, ledger_id)

    @property
    def _asked(self) -> AsyncAdmin:
        if self._admin is None:
            self._admin = self._make_admin()
        return self._admin

    async def _renew(self, log: str) -> None:
        assert self._slice.lease is not None
        lease = self._slice.lease.lease
        await self._asked.reading.renew_lease(log, "", lease.lease_id, lease.lease_ms, read_id=lease.read_id)


def _admin_of(connection: Connection) -> AsyncAdmin:
    from magnetar.admin import AsyncAdmin

    return AsyncAdmin(connection.service_url, connection.reconnect_s, listener_name=connection.listener_name)


def _whereabouts(plan: Plan, ledger_id: int) -> Whereabouts | Deleted:
    for piece in plan.pieces:
        if piece.ledger_id == ledger_id:
            return Whereabouts(
                Striping(piece.ensemble_size, piece.write_quorum, piece.ack_quorum),
                [Fragment(one.first_entry_id, tuple(one.bookies)) for one in piece.fragments],
                dict(plan.bookies),
                piece.first_entry_id,
                open=piece.open,
            )
    return Deleted.LEDGER
