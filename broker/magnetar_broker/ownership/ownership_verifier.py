"""Verify at intervals that this broker still owns the bundles that it holds.

An owner node may vanish though the session lasts: an operator deletes it, or a broker that takes this one for dead.
Then another broker may own the bundle, and this one closes its topics at once. A namespace may also be deleted, or
created again with other bundles: then the bundles of the old one are released.

Nothing is watched, since there may be ten thousand bundles. Each pass reads the nodes one after the other, and pauses
in between. Where a lost bundle matters it is noticed earlier: a topic that meets another owner's fence has it verified.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.held_bundles import HeldBundle, HeldBundles
from magnetar_broker.ownership.namespace_bundles import is_bundle
from magnetar_broker.ownership.owner_nodes import OwnerNodes
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName

__all__ = ["OwnershipVerifier"]

_log = logging.getLogger(__name__)
# The pause of a pass, per bundle.
_PAUSE_S: Final = 0.01


class OwnershipVerifier:
    def __init__(
        self, bundles: HeldBundles, nodes: OwnerNodes, catalog: Catalog, clock: Clock, interval_s: float
    ) -> None:
        self._bundles = bundles
        self._nodes = nodes
        self._catalog = catalog
        self._clock = clock
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="bundle verification")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._interval_s)
            await self._verify_all()

    async def _verify_all(self) -> None:
        """Make one pass. A failure in one namespace does not affect the others."""
        by_namespace: dict[NamespaceName, list[HeldBundle]] = {}
        for held in self._bundles.list_all():
            by_namespace.setdefault(held.namespace, []).append(held)
        for namespace, bundles in by_namespace.items():
            try:
                await self._verify_namespace(namespace, bundles)
            except (BrokerError, MetadataError, ValueError) as error:
                _log.info("The bundles of %s can't all be verified now: %s", namespace, error)
            except Exception:  # noqa: BLE001 (the other namespaces are still to be verified)
                _log.exception("The bundles of %s could not be verified because of an internal error", namespace)
            await self._clock.sleep(_PAUSE_S * len(bundles))

    async def _verify_namespace(self, namespace: NamespaceName, bundles: list[HeldBundle]) -> None:
        # The owner nodes first: if another broker owns a bundle, the namespace's node does not matter.
        for held in bundles:
            if self._is_idle(held) and not self._nodes.is_ours(await self._nodes.read(namespace, held.bundle)):
                self._bundles.verify(held)
        try:
            found = await self._catalog.get_namespace(namespace, fresh=True)
        except BrokerError as error:
            if error.code != ErrorCode.NOT_FOUND:
                raise
            node = None
        else:
            node = found.node
        for held in bundles:
            if not self._is_idle(held):
                continue
            if (
                node is None
                or node.incarnation != held.namespace_incarnation
                or not is_bundle(node.bundle_starts, held.bundle)
            ):
                _log.info("Unloading %s: its namespace was deleted, or has other bundles now", held)
                await self._bundles.release(held)
        if node is None:
            await self._nodes.delete_parent(namespace)

    def _is_idle(self, held: HeldBundle) -> bool:
        return held.operation is None and self._bundles.is_held(held)
