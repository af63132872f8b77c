"""A stream's leases on namespaces, which retain topics and partitions that it has not found yet.

A new topic that matches the pattern, or a new partition, could lose its first messages before the stream lists topics
again. So the stream takes a lease on each of its namespaces before it lists topics for the first time. Brokers then
create each new topic with a lease of the same id (broker/magnetar_broker/protocol.md, Leases), and a plan takes that
lease over when the stream begins to read the topic.

A micro-batch may run for longer than a lease lasts, and no topics are listed meantime. So the stream also lists them
after each renewal, and from then on renews the leases of those that it finds.

With failOnDataLoss=false a stream starts without a lease that a broker refuses, and requests it again with each
renewal: a broker may be restarting, or the namespace may have too many leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException, NotFound
from magnetar_spark.broker_requests import gather_bounded
from magnetar_spark.leases.lease import Lease, LeaseRequests
from magnetar_spark.leases.lease_renewals import LeaseRenewals

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["NamespaceLeases"]

_RELEASE_TIMEOUT_S: Final = 15.0

_log = logging.getLogger(__name__)


class NamespaceLeases:
    def __init__(
        self,
        admin: AsyncAdmin,
        lease: Lease,
        prefixes: Mapping[str, str],
        holder: str,
        required: bool,
        after_renewal: Callable[[], Awaitable[None]],
    ) -> None:
        """`prefixes`: by namespace, a prefix of the names of all topics of the stream. `required`: a lease that a
        broker refuses is an error."""
        self._admin = admin
        self._lease = lease
        self._prefixes = prefixes
        self._holder = holder
        self._required = required
        self._after_renewal = after_renewal
        # Namespaces whose lease is requested with each renewal.
        self._requested: dict[str, None] = {}
        # The namespaces among them whose lease a broker has granted at least once.
        self._granted: set[str] = set()
        self._renewals = LeaseRenewals(self._renew, lease.renew_every_s, {})
        self._requests = LeaseRequests()

    async def take_all(self) -> None:
        """Take the leases that are not taken yet. Topics that are missing in a list of topics that is requested after
        this are created with a lease. Raises `MagnetarException`."""
        await gather_bounded(
            lambda name: self._requests.send(self._take(name)),
            [name for name in self._prefixes if name not in self._requested],
        )

    async def release_all(self) -> None:
        """Release the leases. A lease whose broker does not answer in time expires."""
        await self._requests.wait_settled()
        await self._renewals.stop()
        requested, self._requested = list(self._requested), {}
        self._granted.clear()
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                await gather_bounded(self._release, requested)
        except TimeoutError:
            _log.warning("Brokers did not answer in time: the leases on namespaces end when their time is over")

    async def _take(self, namespace: str) -> None:
        try:
            await self._request(namespace)
        except NotFound:
            return  # listing its topics reports that it does not exist
        except MagnetarException as error:
            if self._required:
                raise
            _log.warning(
                "New topics in %s are not retained until a broker gives this query a lease, which it "
                "requests again: %s",
                namespace,
                error,
            )
        else:
            self._granted.add(namespace)
        self._requested[namespace] = None
        self._renewals.add_log(namespace)

    async def _renew(self, namespace: str) -> None:
        try:
            is_new = await self._request(namespace)
        except NotFound:
            self._requested.pop(namespace, None)  # deleted; it may be recreated, so `take_all` requests a lease again
            raise
        if namespace not in self._granted:
            self._granted.add(namespace)
            _log.info("New topics in %s are retained from now on", namespace)
        elif is_new:
            _log.warning(
                "The lease on namespace %s had expired: topics that were created since may have lost "
                "messages, which the query reports when it reads them",
                namespace,
            )
        await self._after_renewal()

    async def _request(self, namespace: str) -> bool:
        """Take or renew the lease. Return whether it was taken, and not renewed."""
        lease = self._lease
        return await self._admin.reading.hold_namespace(
            namespace, self._prefixes[namespace], lease.lease_id, lease.lease_ms, holder=self._holder
        )

    async def _release(self, namespace: str) -> None:
        with contextlib.suppress(MagnetarException):
            await self._admin.reading.end_namespace_lease(namespace, self._lease.lease_id)
