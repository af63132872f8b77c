"""Find the owners of bundles, and unload bundles there.

A bundle without an owner needs no unload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.ownership.interface import Home, advertised_as
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner
from magnetar_wire.bundles import BundleRange
from magnetar_wire.topic_name import NamespaceName

__all__ = ["BundleOwners"]

# An error names at most this many brokers.
_MAX_NAMED: Final = 20


class BundleOwners:
    def __init__(self, ownership: BundleOwnership, owner_rpc: OwnerRpc, broker_id: Callable[[], str]) -> None:
        self._ownership = ownership
        self._owner_rpc = owner_rpc
        self._broker_id = broker_id

    async def describe_bundles(self, namespace: NamespaceName) -> pb.BundlesAnswer:
        answer = pb.BundlesAnswer()
        for bundle, owner in await self._ownership.bundles(namespace):
            shown = answer.bundles.add(bundle=str(bundle))
            if owner is not None:
                shown.broker_id = owner.broker_id
                shown.address = owner.listeners[0].address if owner.listeners else ""
        return answer

    async def find_owner(self, namespace: NamespaceName, bundle: BundleRange) -> Home | None:
        """Return the bundle's owner; None: it has none. Raises NOT_FOUND if there is no such bundle."""
        owner = await self._ownership.owner_of(namespace, bundle)
        return None if owner is None else self._reached_at(owner, f"bundle {bundle} of {namespace}", owner.broker_id)

    async def claim(self, namespace: NamespaceName, bundle: BundleRange) -> Home:
        """Claim the bundle for this broker. Return its owner: this broker, or another one that was faster."""
        owner = await self._ownership.claim(namespace, bundle)
        return self._reached_at(owner, f"bundle {bundle} of {namespace}", owner.broker_id)

    async def find_broker(self, broker_id: str) -> Home:
        """Raises NOT_FOUND."""
        brokers = await self._ownership.brokers()
        for one, registered in brokers:
            if one == broker_id:
                return self._reached_at(registered, f"broker {broker_id}", broker_id)
        names = ", ".join(one for one, _ in brokers[:_MAX_NAMED])
        raise BrokerError(ErrorCode.NOT_FOUND, f"there is no broker {broker_id!r:.100}: there are {names or 'none'}")

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, destination: str = "") -> None:
        """Unload the bundle at its owner. `destination`: the id of the broker that gets it."""
        request = pb.UnloadBundleRequest(namespace=str(namespace), bundle=str(bundle), destination=destination)
        has_owner = True

        async def find_owner() -> Home:
            nonlocal has_owner
            owner = await self.find_owner(namespace, bundle)
            has_owner = owner is not None
            if owner is None or owner.broker_id == destination:
                raise _NothingToUnload
            return owner

        try:
            await self._owner_rpc.call_owner(find_owner, "unload_bundle", request)
        except _NothingToUnload:
            if destination and not has_owner:
                await self._owner_rpc.call_owner(lambda: self.find_broker(destination), "take_bundle", request)

    async def unload_all(self, namespace: NamespaceName) -> None:
        owned = [bundle for bundle, owner in await self._ownership.bundles(namespace) if owner is not None]
        await map_bounded(owned, lambda bundle: self.unload(namespace, bundle))

    def _reached_at(self, found: BundleOwner | BrokerRegistration, what: str, broker_id: str) -> Home:
        if not found.listeners:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"the address of the owner of {what} is not known")
        return Home(broker_id, advertised_as(found.listeners), here=broker_id == self._broker_id())


class _NothingToUnload(Exception):
    """The bundle has no owner, or the destination owns it."""
