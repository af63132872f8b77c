"""What a task asks of the slice's brokers: that its lease holds on while it reads, and, once for a ledger whose entries
no bookie gave, where they are now.

Nothing of a batch query lives on in the driver once its tasks run, so they keep the lease that its plan took. One that
could not be renewed is tried again; one that has ended is told of, and the entries are read as long as they are there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from magnetar.admin.reading import NextMessage, Plan
from magnetar.exceptions import MagnetarException, NotFound, TopicNotFound
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_spark.entry_runs import Deleted, Whereabouts
from magnetar_spark.errors import NotReadNow
from magnetar_spark.log_slice import Connection, Lease, LogSlice

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["SliceBroker"]

_log = logging.getLogger(__name__)
# A task that is done within this time asks no broker for anything. One that was in line for long renews soon.
_FIRST_S: Final = 5.0


class SliceBroker:
    """Belongs to one loop."""

    def __init__(self, log_slice: LogSlice, admin: Callable[[], AsyncAdmin] | None = None) -> None:
        self._slice = log_slice
        connection = log_slice.connection
        self._make_admin = admin or (lambda: _admin_of(connection))
        # Most tasks need none.
        self._admin: AsyncAdmin | None = None
        self._renewing: asyncio.Task[None] | None = None

    def keep_lease(self) -> None:
        """Renews it from now on, unless the driver does."""
        lease = self._slice.lease
        if lease is not None and lease.renew_every_s > 0:
            self._renewing = asyncio.get_running_loop().create_task(self._renew(lease))

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
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
                f"no bookie gave entries of ledger {ledger_id} of {self._slice.log}, and where they are now could not "
                f"be asked: {error}"
            ) from error
        return Deleted.TOPIC if plan.other_incarnation else _whereabouts(plan, ledger_id)

    @property
    def _asked(self) -> AsyncAdmin:
        if self._admin is None:
            self._admin = self._make_admin()
        return self._admin

    async def _renew(self, lease: Lease) -> None:
        log_slice = self._slice
        pause_s = min(_FIRST_S, lease.renew_every_s)
        while True:
            await asyncio.sleep(pause_s)
            pause_s = lease.renew_every_s
            try:
                await self._asked.reading.renew_lease(
                    log_slice.log, log_slice.incarnation, lease.lease_id, lease.lease_ms
                )
            except (NotFound, TopicNotFound) as error:
                _log.warning(
                    "the lease on %s has ended, so what is being read of it may be deleted: %s", log_slice.log, error
                )
                return
            except MagnetarException as error:
                _log.warning("the lease on %s could not be renewed, and will be tried again: %s", log_slice.log, error)


def _admin_of(connection: Connection) -> AsyncAdmin:
    from magnetar.admin import AsyncAdmin

    return AsyncAdmin(connection.service_url, listener_name=connection.listener_name)


def _whereabouts(plan: Plan, ledger_id: int) -> Whereabouts | Deleted:
    for piece in plan.pieces:
        if piece.ledger_id == ledger_id:
            return Whereabouts(
                Striping(piece.ensemble_size, piece.write_quorum, piece.ack_quorum),
                [Fragment(one.first_entry_id, tuple(one.bookies)) for one in piece.fragments],
                dict(plan.bookies),
                piece.first_entry_id,
            )
    return Deleted.LEDGER
