"""Looks now and then at whether the bundles that this broker has are still its own.

A node may vanish though the session lives: an operator deletes it, or a broker that took it for a dead one's. Then
another broker may have the bundle, and this one gives up its topics at once. And a namespace may be deleted, or made
again and cut up otherwise: what this broker has of the old one is released.

Nothing is watched, since there may be ten thousand bundles: each pass reads what it needs, one after the other, and not
so fast that anybody would notice. That a bundle has been lost shows earlier where it matters: a fence that another
owner has set puts it in doubt.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from magnetar_broker.core.namespace_bundles import is_bundle
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.held_bundles import HeldBundle, HeldBundles
from magnetar_broker.ownership.interface import NamespaceReader
from magnetar_broker.ownership.owner_nodes import OwnerNodes
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName

__all__ = ["Upkeep"]

_log = logging.getLogger(__name__)
# For each bundle.
_PAUSE_S: Final = 0.01


class Upkeep:
    def __init__(
        self, bundles: HeldBundles, nodes: OwnerNodes, namespaces: NamespaceReader, clock: Clock, interval_s: float
    ) -> None:
        self._bundles = bundles
        self._nodes = nodes
        self._namespaces = namespaces
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
            await self.look()

    async def look(self) -> None:
        """One pass. One namespace's trouble is not the others'."""
        held_in: dict[NamespaceName, list[HeldBundle]] = {}
        for held in self._bundles.all():
            held_in.setdefault(held.namespace, []).append(held)
        for namespace, all_held in held_in.items():
            try:
                await self._look_at(namespace, all_held)
            except (BrokerError, MetadataError, ValueError) as error:
                _log.info("The bundles of %s can't all be verified now: %s", namespace, error)
            except Exception:  # noqa: BLE001 (whatever it is, the others are still to be looked at)
                _log.exception("The bundles of %s could not be verified because of an internal error", namespace)
            await self._clock.sleep(_PAUSE_S * len(all_held))

    async def _look_at(self, namespace: NamespaceName, all_held: list[HeldBundle]) -> None:
        # Whoever else has them their own nodes say, whatever that of the namespace says.
        for held in all_held:
            if self._is_idle(held) and not self._nodes.is_ours(await self._nodes.read(namespace, held.bundle)):
                self._bundles.verify(held)
        try:
            found = await self._namespaces.namespace(namespace, fresh=True)
        except BrokerError as error:
            if error.code != ErrorCode.NOT_FOUND:
                raise
            node = None
        else:
            node = found.node
        for held in all_held:
            gone = node is None or node.incarnation != held.namespace_incarnation
            if self._is_idle(held) and (gone or (node is not None and not is_bundle(node.bundle_starts, held.bundle))):
                _log.info("Unloading %s: its namespace was deleted, or has other bundles now", held)
                await self._bundles.release(held)
        if node is None:
            await self._nodes.tidy(namespace)

    def _is_idle(self, held: HeldBundle) -> bool:
        return held.work is None and self._bundles.is_held(held)
