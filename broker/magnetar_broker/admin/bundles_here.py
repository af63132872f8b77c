"""What is asked of the broker that owns a bundle, and of a broker about itself."""

from __future__ import annotations

from magnetar_broker.admin.bundle_owners import BundleOwners
from magnetar_broker.admin.here_calls import HereCall
from magnetar_broker.admin.names import bundle_named, namespace_named
from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_broker.topic.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import NamespaceName

__all__ = ["BundlesHere"]


class BundlesHere:
    def __init__(self, topics: Topics, ownership: BundleOwners) -> None:
        self._topics = topics
        self._ownership = ownership

    def calls(self) -> dict[str, HereCall]:
        return {
            "unload_bundle": HereCall(pb.UnloadBundleRequest, pb.Done, self._unload),
            "split_bundle": HereCall(pb.SplitBundleRequest, pb.SplitBundleAnswer, self._split),
            "take_bundle": HereCall(pb.UnloadBundleRequest, pb.Done, self._take),
            "owned_bundles": HereCall(pb.OwnedBundlesRequest, pb.OwnedBundlesAnswer, self._owned),
        }

    async def _unload(self, request: pb.UnloadBundleRequest) -> pb.Done:
        namespace, bundle = self._owned_one(request.namespace, request.bundle)
        await self._ownership.unload(namespace, bundle, request.destination)
        return pb.Done()

    async def _split(self, request: pb.SplitBundleRequest) -> pb.SplitBundleAnswer:
        """`at` is always given: whoever was asked first has found it."""
        namespace, bundle = self._owned_one(request.namespace, request.bundle)
        await self._ownership.split(namespace, bundle, request.at)
        return pb.SplitBundleAnswer(
            lower=str(BundleRange(bundle.lower, request.at)), upper=str(BundleRange(request.at, bundle.upper))
        )

    async def _take(self, request: pb.UnloadBundleRequest) -> pb.Done:
        """One that nobody has."""
        owner = await self._ownership.claim(namespace_named(request.namespace), bundle_named(request.bundle))
        if owner.broker_id != request.destination:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"bundle {request.bundle} of {request.namespace} went to {owner.broker_id}, which was faster",
            )
        return pb.Done()

    async def _owned(self, request: pb.OwnedBundlesRequest) -> pb.OwnedBundlesAnswer:
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

    def _owned_one(self, namespace: str, bundle: str) -> tuple[NamespaceName, BundleRange]:
        named = namespace_named(namespace), bundle_named(bundle)
        if not any((one.namespace, one.bundle) == named for one in self._ownership.owned()):
            raise NothingDone(f"bundle {bundle} of {namespace} is not this broker's")
        return named
