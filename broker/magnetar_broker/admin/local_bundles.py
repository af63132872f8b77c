"""Admin calls on bundles at their owner, and about a broker at that broker."""

from __future__ import annotations

from magnetar_broker.admin.names import parse_bundle, parse_namespace_name
from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import NamespaceName

__all__ = ["LocalBundles"]


class LocalBundles:
    def __init__(self, topics: Topics, ownership: BundleOwnership) -> None:
        self._topics = topics
        self._ownership = ownership

    async def unload_bundle(self, request: pb.UnloadBundleRequest) -> pb.Done:
        namespace, bundle = self._check_owned(request.namespace, request.bundle)
        await self._ownership.unload(namespace, bundle, request.destination)
        return pb.Done()

    async def split_bundle(self, request: pb.SplitBundleRequest) -> pb.SplitBundleAnswer:
        """Split at `at`, which the broker that the client called always sets."""
        namespace, bundle = self._check_owned(request.namespace, request.bundle)
        await self._ownership.split(namespace, bundle, request.at)
        return pb.SplitBundleAnswer(
            lower=str(BundleRange(bundle.lower, request.at)), upper=str(BundleRange(request.at, bundle.upper))
        )

    async def take_bundle(self, request: pb.UnloadBundleRequest) -> pb.Done:
        """Claim a bundle that has no owner."""
        owner = await self._ownership.claim(parse_namespace_name(request.namespace), parse_bundle(request.bundle))
        if owner.broker_id != request.destination:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"bundle {request.bundle} of {request.namespace} went to {owner.broker_id}, which was faster",
            )
        return pb.Done()

    async def owned_bundles(self, request: pb.OwnedBundlesRequest) -> pb.OwnedBundlesAnswer:
        owned = self._ownership.owned()
        hashes: dict[NamespaceName, list[int]] = {one.namespace: [] for one in owned}
        for topic in self._topics.loaded():
            if topic.name.namespace_name in hashes:
                hashes[topic.name.namespace_name].append(bundle_hash(topic.name))
        answer = pb.OwnedBundlesAnswer()
        for one in sorted(owned, key=lambda one: (str(one.namespace), one.bundle)):
            topics = sum(topic_hash in one.bundle for topic_hash in hashes[one.namespace])
            answer.bundles.add(namespace=str(one.namespace), bundle=str(one.bundle), topics=topics)
        return answer

    def _check_owned(self, namespace: str, bundle: str) -> tuple[NamespaceName, BundleRange]:
        named = parse_namespace_name(namespace), parse_bundle(bundle)
        if not any((one.namespace, one.bundle) == named for one in self._ownership.owned()):
            raise NothingDone(f"this broker does not own bundle {bundle} of {namespace}")
        return named
