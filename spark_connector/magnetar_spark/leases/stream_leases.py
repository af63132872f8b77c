"""Keeping what is being read from being deleted, while nobody asks for a plan: a stream's leases.

Each plan takes the reader's lease on its log, or renews it and moves it on. Between two plans a micro-batch may run for
longer than a lease lasts, so the driver renews all of them in between (leases/lease_renewals.py). One that has ended
all the same, since nobody could be reached for so long, is said to have; what was deleted then, the next plan says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException
from magnetar_spark.leases.batch_lease import Lease
from magnetar_spark.leases.lease_renewals import Renewals
from magnetar_spark.some_at_a_time import some_at_a_time

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["Leases"]

_LONGEST_GOODBYE_S: Final = 15.0

_log = logging.getLogger(__name__)


class Leases:
    """Of one reader: under one id, on any number of logs."""

    def __init__(self, admin: AsyncAdmin, lease: Lease) -> None:
        self._admin = admin
        self._lease = lease
        # Incarnations by the logs' names.
        self._held: dict[str, str] = {}
        self._renewals = Renewals(self._renew, lease.renew_every_s, {})

    def took(self, log: str, incarnation: str) -> None:
        """A plan has taken it."""
        self._held[log] = incarnation
        self._renewals.add(log)

    def adopt(self, log: str) -> None:
        """The log was made with the lease, by a lease on its namespace. No plan has taken it yet."""
        if log not in self._held:
            self._held[log] = ""
            self._renewals.add(log, now=True)

    async def end(self, asked: Iterable[str] = ()) -> None:
        """Gives back the leases, also those of the logs `asked`, whose plans may have taken one without an answer. A
        lease whose broker can't be reached at once ends by itself."""
        for log in asked:
            self._held.setdefault(log, "")
        await self._renewals.end()
        try:
            async with asyncio.timeout(_LONGEST_GOODBYE_S):
                await some_at_a_time(self._end_one, list(self._held))
        except TimeoutError:
            _log.warning("Brokers did not answer in time: the leases of this query end when their time is over")
        self._held.clear()

    async def _renew(self, log: str) -> None:
        await self._admin.reading.renew_lease(log, self._held[log], self._lease.lease_id, self._lease.lease_ms)

    async def _end_one(self, log: str) -> None:
        with contextlib.suppress(MagnetarException):
            await self._admin.reading.renew_lease(log, self._held[log], self._lease.lease_id, 0)
