"""A stream's leases on the logs that it reads.

Each plan takes the stream's lease on its log, or renews it and moves it forward. A micro-batch may run for longer than
a lease lasts, so the driver also renews all leases between plans. If no broker was reached for too long, a lease ends,
which is logged. The next plan reports messages that were deleted then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException
from magnetar_spark.broker_requests import gather_bounded
from magnetar_spark.leases.lease import Lease
from magnetar_spark.leases.lease_renewals import LeaseRenewals

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["StreamLeases"]

_RELEASE_TIMEOUT_S: Final = 15.0

_log = logging.getLogger(__name__)


class StreamLeases:
    """One lease id on any number of logs."""

    def __init__(self, admin: AsyncAdmin, lease: Lease) -> None:
        self._admin = admin
        self._lease = lease
        # Incarnations by the logs' names.
        self._held: dict[str, str] = {}
        self._renewals = LeaseRenewals(self._renew, lease.renew_every_s, {})

    def add_log(self, log: str, incarnation: str) -> None:
        """Renew the lease that a plan has taken."""
        self._held[log] = incarnation
        self._renewals.add_log(log)

    def add_new_log(self, log: str) -> None:
        """Renew the lease of a log that was created with it, because of a lease on its namespace, and is not planned
        yet."""
        if log not in self._held:
            self._held[log] = ""
            self._renewals.add_log(log, now=True)

    async def release_all(self, requested: Iterable[str] = ()) -> None:
        """Release the leases, and those of the logs `requested`, whose plans may have taken a lease although no answer
        arrived. A lease whose broker does not answer in time expires."""
        for log in requested:
            self._held.setdefault(log, "")
        await self._renewals.stop()
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await gather_bounded(self._release, list(self._held))
        except TimeoutError:
            _log.warning("Brokers did not answer in time: the leases of this query end when their time is over")
        self._held.clear()

    async def _renew(self, log: str) -> None:
        await self._admin.reading.renew_lease(log, self._held[log], self._lease.lease_id, self._lease.lease_ms)

    async def _release(self, log: str) -> None:
        with contextlib.suppress(MagnetarException):
            await self._admin.reading.renew_lease(log, self._held[log], self._lease.lease_id, 0)
