"""Retaining topics that a running stream has not found yet: leases on the namespaces that its topics are in.

A topic that the pattern matches, or a partition that is added, may lose its first messages before the stream's next
look at what there is. So the stream has a lease on each namespace from before its first look on: brokers make each new
topic with a lease of the same id, as for a log that is read already (broker/magnetar_broker/protocol.md, Leases). A
plan takes that lease over when the stream joins the topic.

A micro-batch may run for longer than a lease lasts, and nothing is looked for meanwhile. So the stream looks with each
renewal, too, and from then on renews the leases of the logs that it finds.

With failOnDataLoss=false a stream starts without a lease that a broker refuses, and asks for it again with each
renewal: a broker may be restarting, or the namespace may have too many leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from magnetar.exceptions import MagnetarException, NotFound
from magnetar_spark.leases.batch_lease import Lease
from magnetar_spark.leases.lease import LeaseCalls
from magnetar_spark.leases.lease_renewals import Renewals
from magnetar_spark.some_at_a_time import some_at_a_time

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["NamespaceHolder"]

_LONGEST_GOODBYE_S: Final = 15.0

_log = logging.getLogger(__name__)


class NamespaceHolder:
    def __init__(
        self,
        admin: AsyncAdmin,
        lease: Lease,
        prefixes: Mapping[str, str],
        holder: str,
        required: bool,
        after_renewal: Callable[[], Awaitable[None]],
    ) -> None:
        """`prefixes`: by namespace, one that the names of all topics of the stream begin with. `required`: a lease that
        a broker refuses is an error."""
        self._admin = admin
        self._lease = lease
        self._prefixes = prefixes
        self._holder = holder
        self._required = required
        self._after_renewal = after_renewal
        # Namespaces whose lease is asked for with each renewal.
        self._asked: dict[str, None] = {}
        # Those of them whose lease a broker has given once.
        self._held: set[str] = set()
        self._renewals = Renewals(self._renew, lease.renew_every_s, {})
        self._calls = LeaseCalls()

    async def take(self) -> None:
        """Returns when all are held: topics that are not in a list made after this have a lease. Raises
        `MagnetarException`."""
        await some_at_a_time(
            lambda name: self._calls.run(self._take(name)), [name for name in self._prefixes if name not in self._asked]
        )

    async def end(self) -> None:
        """Gives them back as far as brokers can be reached at once: the rest lapses."""
        await self._calls.settle()
        await self._renewals.end()
        asked, self._asked = list(self._asked), {}
        self._held.clear()
        try:
            async with asyncio.timeout(_LONGEST_GOODBYE_S):
                await some_at_a_time(self._end, asked)
        except TimeoutError:
            _log.warning("Brokers did not answer in time: the leases on namespaces end when their time is over")

    async def _take(self, namespace: str) -> None:
        try:
            await self._hold(namespace)
        except NotFound:
            return  # it has no topics either, which whoever lists them is told
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
            self._held.add(namespace)
        self._asked[namespace] = None
        self._renewals.add(namespace)

    async def _renew(self, namespace: str) -> None:
        try:
            taken = await self._hold(namespace)
        except NotFound:
            self._asked.pop(namespace, None)  # deleted: the next look asks again, and there may be another one by then
            raise
        if namespace not in self._held:
            self._held.add(namespace)
            _log.info("New topics in %s are retained from now on", namespace)
        elif taken:
            _log.warning(
                "The lease on namespace %s had expired: topics that were created since may have lost "
                "messages, which the query reports when it reads them",
                namespace,
            )
        await self._after_renewal()

    async def _hold(self, namespace: str) -> bool:
        lease = self._lease
        return await self._admin.reading.hold_namespace(
            namespace, self._prefixes[namespace], lease.lease_id, lease.lease_ms, holder=self._holder
        )

    async def _end(self, namespace: str) -> None:
        with contextlib.suppress(MagnetarException):
            await self._admin.reading.end_namespace_lease(namespace, self._lease.lease_id)
