"""Keeping what is being read from being deleted, while nobody asks for a plan.

Each plan takes the reader's lease on its log, or renews it and moves it on. Between two plans a micro-batch may run for
longer than a lease lasts, so the driver renews all of them in between, six times in that time: after each plan and
each renewal a lease holds for half of it at least, so two renewals may fail. One that has ended all
the same, since nobody could be reached for so long, is said to have; what was deleted then, the next plan says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException, NotFound, TopicNotFound
from magnetar_spark.log_slice import Lease
from magnetar_spark.some_at_a_time import some_at_a_time

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["RENEWALS", "Leases", "new_lease"]

RENEWALS: Final = 6
_LONGEST_GOODBYE_S: Final = 15.0

_log = logging.getLogger(__name__)


def new_lease(lease_ms: int, renew_every_s: float = 0.0) -> Lease:
    return Lease(secrets.token_bytes(16), lease_ms, renew_every_s)


class Leases:
    """Of one reader: under one id, on any number of logs."""

    def __init__(self, admin: AsyncAdmin, lease: Lease) -> None:
        self._admin = admin
        self._lease = lease
        # Incarnations by the logs' names.
        self._held: dict[str, str] = {}
        self._renewing: asyncio.Task[None] | None = None

    def took(self, log: str, incarnation: str) -> None:
        """A plan has taken it."""
        self._held[log] = incarnation
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def end(self) -> None:
        """Gives back what there is, as far as brokers can be reached at once: the rest ends by itself."""
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        try:
            async with asyncio.timeout(_LONGEST_GOODBYE_S):
                await some_at_a_time(self._end_one, list(self._held))
        except TimeoutError:
            _log.warning("brokers did not answer in time, so leases of this query are left to end by themselves")
        self._held.clear()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease.lease_ms / 1000 / RENEWALS)
            await some_at_a_time(self._renew_one, list(self._held))

    async def _renew_one(self, log: str) -> None:
        incarnation = self._held.get(log)
        if incarnation is None:
            return
        try:
            await self._admin.reading.renew_lease(log, incarnation, self._lease.lease_id, self._lease.lease_ms)
        except (NotFound, TopicNotFound) as error:
            self._held.pop(log, None)
            _log.warning("the lease on %s has ended, so what is to be read of it may be deleted: %s", log, error)
        except MagnetarException as error:
            _log.warning("the lease on %s could not be renewed, and will be tried again: %s", log, error)

    async def _end_one(self, log: str) -> None:
        with contextlib.suppress(MagnetarException):
            await self._admin.reading.renew_lease(log, self._held[log], self._lease.lease_id, 0)
