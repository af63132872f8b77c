"""Admin calls on bundles.

    BundleOwners        finds the owners of bundles, and unloads bundles there
    BundleCalls         handlers at the broker that the client called, which forward calls to the owner
    OwnerBundleCalls    handlers at the owner

A bundle without an owner need not be unloaded. Only an owner splits a bundle, so one without an owner is claimed first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker.admin.broker_calls import check_own_cluster
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import parse_bundle, parse_namespace_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError, NotOwner
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.ownership.interface import TopicOwner
from magnetar_broker.ownership.namespace_bundles import (
    decode_bundle_at,
    decode_bundles,
    is_bundle,
    split_point_by_topics,
)
from magnetar_broker.topics.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["BundleCalls", "BundleOwners", "OwnerBundleCalls"]

# An error names at most this many brokers.
_MAX_NAMED: Final = 20
# The name of the bundle with the most topics.
_LARGEST: Final = "LARGEST"
# A split at several positions takes a change of the namespace for each.
_MAX_POSITIONS: Final = 100


class BundleOwners:
    def __init__(self, ownership: BundleOwnership, owner_rpc: OwnerRpc, broker_id: Callable[[], str]) -> None:
        self._ownership = ownership
        self._owner_rpc = owner_rpc
        self._broker_id = broker_id

    async def find_owner(self, namespace: NamespaceName, bundle: BundleRange) -> TopicOwner | None:
        """Return the bundle's owner; None: it has none. Raises NOT_FOUND if there is no such bundle."""
        owner = await self._ownership.find_bundle_owner(namespace, bundle)
        return None if owner is None else self._make_owner(owner, f"bundle {bundle} of {namespace}", owner.broker_id)

    async def claim(self, namespace: NamespaceName, bundle: BundleRange) -> TopicOwner:
        """Claim the bundle for this broker. Return its owner: this broker, or another one that was faster."""
        owner = await self._ownership.claim_bundle(namespace, bundle)
        return self._make_owner(owner, f"bundle {bundle} of {namespace}", owner.broker_id)

    async def find_broker(self, broker_id: str) -> TopicOwner:
        """Raises NOT_FOUND."""
        registered = await self._ownership.find_broker(broker_id)
        if registered is not None:
            return self._make_owner(registered, f"broker {broker_id}", broker_id)
        names = ", ".join(one for one, _ in (await self._ownership.list_brokers())[:_MAX_NAMED])
        raise BrokerError(ErrorCode.NOT_FOUND, f"there is no broker {broker_id!r:.100}: there are {names or 'none'}")

    async def resolve_broker_id(self, name: str) -> str:
        """Return the id of the broker that has this id, or an HTTP server at this address; else the name itself."""
        brokers = await self._ownership.list_brokers()
        by_address = {one.http_address: broker_id for broker_id, one in brokers if one.http_address}
        return name if name in dict(brokers) else by_address.get(name, name)

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, destination: str = "") -> None:
        """Unload the bundle at its owner. `destination`: the id of the broker that gets it."""
        request = pb.UnloadBundleRequest(namespace=str(namespace), bundle=str(bundle), destination=destination)
        has_owner = True

        async def find_owner() -> TopicOwner:
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
        """Unload all bundles of the namespace."""
        owned = [bundle for bundle, owner in await self._ownership.list_bundles(namespace) if owner is not None]
        await map_bounded(owned, lambda bundle: self.unload(namespace, bundle))

    def _make_owner(self, found: BundleOwner | BrokerRegistration, what: str, broker_id: str) -> TopicOwner:
        if not found.listeners:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"the address of the owner of {what} is not known")
        return TopicOwner(
            broker_id, AdvertisedAddresses.decode(found.listeners), is_local=broker_id == self._broker_id()
        )


class _NothingToUnload(Exception):
    """The bundle has no owner, or the destination owns it."""


class BundleCalls:
    def __init__(
        self,
        catalog: Catalog,
        ownership: BundleOwnership,
        owner_rpc: OwnerRpc,
        bundle_owners: BundleOwners,
        broker_id: Callable[[], str],
    ) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._owner_rpc = owner_rpc
        self._bundle_owners = bundle_owners
        self._broker_id = broker_id

    async def bundles(self, request: pb.NamespaceRequest) -> pb.BundlesAnswer:
        answer = pb.BundlesAnswer()
        for bundle, owner in await self._ownership.list_bundles(parse_namespace_name(request.namespace)):
            shown = answer.bundles.add(bundle=str(bundle))
            if owner is not None:
                shown.broker_id = owner.broker_id
                shown.address = owner.listeners[0].address if owner.listeners else ""
        return answer

    async def owned_bundles(self, request: pb.OwnedBundlesRequest) -> pb.OwnedBundlesAnswer:
        check_own_cluster(request.cluster, self._catalog.cluster)
        broker_id = await self._bundle_owners.resolve_broker_id(request.broker_id) if request.broker_id else None
        answer: pb.OwnedBundlesAnswer = await self._owner_rpc.call_owner(
            lambda: self._bundle_owners.find_broker(broker_id or self._broker_id()), "owned_bundles", request
        )
        return answer

    async def unload_namespace(self, request: pb.UnloadNamespaceRequest) -> pb.Done:
        await self._bundle_owners.unload_all(parse_namespace_name(request.namespace))
        return pb.Done()

    async def unload_bundle(self, request: pb.UnloadBundleRequest) -> pb.Done:
        if request.destination:
            await self._bundle_owners.find_broker(request.destination)
        namespace, bundle = parse_namespace_name(request.namespace), parse_bundle(request.bundle)
        await self._bundle_owners.unload(namespace, bundle, request.destination)
        return pb.Done()

    async def split_bundle(self, request: pb.SplitBundleRequest) -> pb.SplitBundleAnswer:
        namespace = parse_namespace_name(request.namespace)
        if request.bundle == _LARGEST:
            bundle = await self._find_largest(namespace)
        else:
            bundle = parse_bundle(request.bundle)
        points = await self._choose_hashes(namespace, bundle, request)
        parts: list[BundleRange] = []
        rest = bundle
        for at in points:
            try:
                parts += [await self._split_at(namespace, rest, at)]
            except BrokerError as error:
                if not parts:
                    raise
                done = ", ".join(map(str, parts))
                raise BrokerError(ErrorCode.UNKNOWN_ERROR, f"{done} were split off, and {rest} not: {error}") from error
            rest = BundleRange(at, rest.upper)
        parts.append(rest)
        if request.unload:
            await self._unload_parts(namespace, bundle, parts)
        return pb.SplitBundleAnswer(lower=str(parts[0]), upper=str(parts[-1]))

    async def _unload_parts(self, namespace: NamespaceName, bundle: BundleRange, parts: Sequence[BundleRange]) -> None:
        try:
            await map_bounded(parts, lambda part: self._bundle_owners.unload(namespace, part))
        except BrokerError as error:
            split = f"{bundle} was split into {', '.join(map(str, parts))}, which may not be unloaded"
            raise BrokerError(ErrorCode.UNKNOWN_ERROR, f"{split}: unload them again: {error}") from error

    async def _split_at(self, namespace: NamespaceName, bundle: BundleRange, at: int) -> BundleRange:
        """Split the bundle at this hash and return the lower part."""

        async def find_owner() -> TopicOwner:
            owner = await self._bundle_owners.find_owner(namespace, bundle)
            return owner or await self._bundle_owners.claim(namespace, bundle)

        parts = BundleRange(bundle.lower, at), BundleRange(at, bundle.upper)
        request = pb.SplitBundleRequest(
            namespace=str(namespace), bundle=str(bundle), by=pb.SplitBy.SPLIT_BY_POSITION, at=at
        )
        try:
            await self._owner_rpc.call_owner(find_owner, "split_bundle", request)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_ERROR:
                raise
            starts = (await self._catalog.get_namespace(namespace, fresh=True)).node.bundle_starts
            if not all(is_bundle(starts, part) for part in parts):
                raise
        return parts[0]

    async def _find_largest(self, namespace: NamespaceName) -> BundleRange:
        """Return the bundle with the most topics."""
        starts = (await self._catalog.get_namespace(namespace, fresh=True)).node.bundle_starts
        names = await self._catalog.list_topics(namespace, include_system=True)
        topics = Counter(decode_bundle_at(starts, bundle_hash(TopicName.parse(name))) for name in names)
        return max(decode_bundles(starts), key=lambda bundle: topics[bundle])

    async def _choose_hashes(
        self, namespace: NamespaceName, bundle: BundleRange, request: pb.SplitBundleRequest
    ) -> list[int]:
        """Return the first hash of each part but the first, in ascending order."""
        if not request.positions:
            return [await self._choose_hash(namespace, bundle, request)]
        if request.by != pb.SplitBy.SPLIT_BY_POSITION:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "positions are given: use specified_positions_divide")
        if len(request.positions) > _MAX_POSITIONS:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, f"{len(request.positions):,} positions: use at most {_MAX_POSITIONS}"
            )
        for at in request.positions:
            _check_inside(bundle, at)
        return sorted(set(request.positions))

    async def _choose_hash(self, namespace: NamespaceName, bundle: BundleRange, request: pb.SplitBundleRequest) -> int:
        """Return the first hash of the upper part."""
        if request.by == pb.SplitBy.SPLIT_BY_TOPICS:
            names = await self._catalog.list_topics(namespace, include_system=True)
            found = split_point_by_topics(bundle, (bundle_hash(TopicName.parse(name)) for name in names))
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
        _check_inside(bundle, at)
        return at


def _check_inside(bundle: BundleRange, at: int) -> None:
    if not bundle.lower < at < bundle.upper:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"bundle {bundle} can't be split at 0x{at:08x}: use a hash inside it, above its first one",
        )


class OwnerBundleCalls:
    def __init__(self, topics: Topics, ownership: BundleOwnership) -> None:
        self._topics = topics
        self._ownership = ownership

    async def unload_bundle(self, request: pb.UnloadBundleRequest) -> pb.Done:
        namespace, bundle = self._check_owned(request.namespace, request.bundle)
        await self._ownership.unload_bundle(namespace, bundle, request.destination)
        return pb.Done()

    async def split_bundle(self, request: pb.SplitBundleRequest) -> pb.SplitBundleAnswer:
        """Split at `at`, which the broker that the client called always sets."""
        namespace, bundle = self._check_owned(request.namespace, request.bundle)
        await self._ownership.split_bundle(namespace, bundle, request.at)
        return pb.SplitBundleAnswer(
            lower=str(BundleRange(bundle.lower, request.at)), upper=str(BundleRange(request.at, bundle.upper))
        )

    async def take_bundle(self, request: pb.UnloadBundleRequest) -> pb.Done:
        """Claim a bundle that has no owner."""
        owner = await self._ownership.claim_bundle(
            parse_namespace_name(request.namespace), parse_bundle(request.bundle)
        )
        if owner.broker_id != request.destination:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"bundle {request.bundle} of {request.namespace} went to {owner.broker_id}, which was faster",
            )
        return pb.Done()

    async def owned_bundles(self, request: pb.OwnedBundlesRequest) -> pb.OwnedBundlesAnswer:
        owned = self._ownership.list_owned()
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
        if not any((one.namespace, one.bundle) == named for one in self._ownership.list_owned()):
            raise NotOwner(f"this broker does not own bundle {bundle} of {namespace}")
        return named
