"""Admin calls on bundles at the broker that the client called. The owner's part is in local_bundles.py.

Only an owner splits a bundle, so one without an owner is claimed first.
"""

from __future__ import annotations

from magnetar_broker.admin.bundle_owners import BundleOwners
from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.names import parse_bundle, parse_namespace_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.core.namespace_bundles import is_bundle
from magnetar_broker.core.topics_split import middle_of_topics
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.interface import Home
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["BundleCalls"]


class BundleCalls:
    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc, bundle_owners: BundleOwners) -> None:
        self._catalog = catalog
        self._owner_rpc = owner_rpc
        self._bundle_owners = bundle_owners

    async def unload_bundle(self, request: pb.UnloadBundleRequest) -> pb.Done:
        if request.destination:
            await self._bundle_owners.find_broker(request.destination)
        namespace, bundle = parse_namespace_name(request.namespace), parse_bundle(request.bundle)
        await self._bundle_owners.unload(namespace, bundle, request.destination)
        return pb.Done()

    async def split_bundle(self, request: pb.SplitBundleRequest) -> pb.SplitBundleAnswer:
        namespace, bundle = parse_namespace_name(request.namespace), parse_bundle(request.bundle)
        at = await self._choose_hash(namespace, bundle, request)

        async def find_owner() -> Home:
            owner = await self._bundle_owners.find_owner(namespace, bundle)
            return owner or await self._bundle_owners.claim(namespace, bundle)

        resolved = pb.SplitBundleRequest(
            namespace=str(namespace), bundle=str(bundle), by=pb.SplitBy.SPLIT_BY_POSITION, at=at
        )
        try:
            answer: pb.SplitBundleAnswer = await self._owner_rpc.call_owner(find_owner, "split_bundle", resolved)
            return answer
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_ERROR:
                raise
            parts = BundleRange(bundle.lower, at), BundleRange(at, bundle.upper)
            starts = (await self._catalog.namespace(namespace, fresh=True)).node.bundle_starts
            if not all(is_bundle(starts, part) for part in parts):
                raise
            return pb.SplitBundleAnswer(lower=str(parts[0]), upper=str(parts[1]))

    async def _choose_hash(self, namespace: NamespaceName, bundle: BundleRange, request: pb.SplitBundleRequest) -> int:
        """Return the first hash of the upper part."""
        if request.by == pb.SplitBy.SPLIT_BY_TOPICS:
            names = await self._catalog.topics(namespace, include_system=True)
            found = middle_of_topics(bundle, (bundle_hash(TopicName.parse(name)) for name in names))
            if found is None:
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED,
                    f"bundle {bundle} of {namespace} has no two topics with different hashes: split it by its range",
                )
            return found
        at = request.at
        if request.by == pb.SplitBy.SPLIT_BY_RANGE:
            at = (bundle.lower + bundle.upper + 1) // 2
        elif request.by != pb.SplitBy.SPLIT_BY_POSITION:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"by = {request.by}: this broker has no such way to split")
        if not bundle.lower < at < bundle.upper:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"bundle {bundle} can't be split at 0x{at:08x}: use a hash inside it, above its first one",
            )
        return at
