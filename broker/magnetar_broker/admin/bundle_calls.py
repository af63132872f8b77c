"""What an administrator asks of brokers and bundles: any broker answers, and has a bundle's owner do what is wanted.

A bundle that nobody has is no trouble: to unload it nothing is to be done, and to be split it is claimed first, since
only an owner splits.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_broker.admin.bundle_owners import BundleOwners
from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.names import bundle_named, namespace_named, topic_named
from magnetar_broker.admin.owner_calls import OwnerCalls
from magnetar_broker.admin.some_at_a_time import some_at_a_time
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.core.namespace_bundles import bundle_at, is_bundle
from magnetar_broker.core.policies import check_known
from magnetar_broker.core.topics_split import middle_of_topics
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.interface import Home, advertised_as
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["BundleCalls"]


class BundleCalls:
    def __init__(
        self,
        catalog: Catalog,
        topics: TopicCalls,
        ownership: BundleOwners,
        owners: OwnerCalls,
        broker_id: Callable[[], str],
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._ownership = ownership
        self._owners = owners
        self._broker_id = broker_id

    # ── what there is to see ──

    async def brokers(self, request: pb.BrokersRequest) -> pb.BrokersAnswer:
        answer = pb.BrokersAnswer()
        for broker_id, registered in await self._ownership.brokers():
            answer.brokers.add(
                broker_id=broker_id,
                listeners=registered.listeners,
                http_address=registered.http_address,
                version=registered.version,
                started_ms=registered.started_ms,
                load=registered.load,
            )
        return answer

    async def owned_bundles(self, request: pb.OwnedBundlesRequest) -> pb.OwnedBundlesAnswer:
        broker_id = request.broker_id or self._broker_id()
        return await self._owners.ask(
            lambda: self._broker(broker_id), "owned_bundles", request, pb.OwnedBundlesAnswer, harmless=True
        )

    async def bundles(self, request: pb.NamespaceRequest) -> pb.BundlesAnswer:
        answer = pb.BundlesAnswer()
        for bundle, owner in await self._ownership.bundles(namespace_named(request.namespace)):
            shown = answer.bundles.add(bundle=str(bundle))
            if owner is not None:
                shown.broker_id = owner.broker_id
                shown.address = owner.listeners[0].address if owner.listeners else ""
        return answer

    async def topic_homes(self, request: pb.TopicHomesRequest) -> pb.TopicHomesAnswer:
        name = topic_named(request.topic)
        parts = await self._topics.names(name)
        namespace = await self._catalog.namespace(name.namespace_name, fresh=True)

        async def home(part: TopicName) -> pb.TopicHome:
            found = await self._ownership.home(part)
            return pb.TopicHome(
                topic=str(part),
                broker_id=found.broker_id,
                address=found.advertised.at(request.listener_name),
                bundle=str(bundle_at(namespace.node.bundle_starts, bundle_hash(part))),
            )

        homes = await some_at_a_time(parts, home)
        return pb.TopicHomesAnswer(homes=homes, partitions=0 if parts == [name] else len(parts))

    # ── what moves ──

    async def unload_bundle(self, request: pb.UnloadBundleRequest) -> pb.Done:
        check_known(request, "unload_bundle")
        if request.destination:
            await self._broker(request.destination)
        await self._unload(namespace_named(request.namespace), bundle_named(request.bundle), request.destination)
        return pb.Done()

    async def unload_namespace(self, request: pb.UnloadNamespaceRequest) -> pb.Done:
        await self.release(namespace_named(request.namespace))
        return pb.Done()

    async def release(self, namespace: NamespaceName) -> None:
        """Has all its bundles let go of."""
        owned = [bundle for bundle, owner in await self._ownership.bundles(namespace) if owner is not None]
        await some_at_a_time(owned, lambda bundle: self._unload(namespace, bundle, ""))

    async def split_bundle(self, request: pb.SplitBundleRequest) -> pb.SplitBundleAnswer:
        check_known(request, "split_bundle")
        namespace, bundle = namespace_named(request.namespace), bundle_named(request.bundle)
        at = await self._cut(namespace, bundle, request)

        async def owner() -> Home:
            return await self._owner(namespace, bundle) or self._home(
                await self._ownership.claim(namespace, bundle), f"bundle {bundle} of {namespace}"
            )

        resolved = pb.SplitBundleRequest(
            namespace=str(namespace), bundle=str(bundle), by=pb.SplitBy.SPLIT_BY_POSITION, at=at
        )
        try:
            return await self._owners.ask(owner, "split_bundle", resolved, pb.SplitBundleAnswer)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_ERROR:
                raise
            parts = BundleRange(bundle.lower, at), BundleRange(at, bundle.upper)
            starts = (await self._catalog.namespace(namespace, fresh=True)).node.bundle_starts
            if not all(is_bundle(starts, part) for part in parts):
                raise
            return pb.SplitBundleAnswer(lower=str(parts[0]), upper=str(parts[1]))

    async def _cut(self, namespace: NamespaceName, bundle: BundleRange, request: pb.SplitBundleRequest) -> int:
        if request.by == pb.SplitBy.SPLIT_BY_TOPICS:
            names = await self._catalog.topics(namespace, include_system=True)
            found = middle_of_topics(bundle, (bundle_hash(TopicName.parse(name)) for name in names))
            if found is None:
                raise BrokerError(
                    ErrorCode.NOT_ALLOWED,
                    f"bundle {bundle} of {namespace} has no two topics that could be told apart: split it by its range",
                )
            return found
        at = request.at
        if request.by == pb.SplitBy.SPLIT_BY_RANGE:
            at = (bundle.lower + bundle.upper + 1) // 2
        elif request.by != pb.SplitBy.SPLIT_BY_POSITION:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"there is no way to split a bundle that is {request.by}")
        if not bundle.lower < at < bundle.upper:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"bundle {bundle} can't be split at 0x{at:08x}: it has to be within, behind its first hash",
            )
        return at

    async def _unload(self, namespace: NamespaceName, bundle: BundleRange, destination: str) -> None:
        """Done twice it does no harm: what is asked for is that this owner has it no more."""
        request = pb.UnloadBundleRequest(namespace=str(namespace), bundle=str(bundle), destination=destination)
        nobody = False

        async def owner() -> Home:
            nonlocal nobody
            found = await self._owner(namespace, bundle)
            nobody = found is None
            if found is None or found.broker_id == destination:
                raise _AsWanted
            return found

        try:
            await self._owners.ask(owner, "unload_bundle", request, pb.Done, harmless=True)
        except _AsWanted:
            if nobody and destination:
                await self._owners.ask(
                    lambda: self._broker(destination), "take_bundle", request, pb.Done, harmless=True
                )

    # ── who has it ──

    async def _owner(self, namespace: NamespaceName, bundle: BundleRange) -> Home | None:
        """None: nobody. Raises NOT_FOUND."""
        owner = await self._ownership.owner_of(namespace, bundle)
        return None if owner is None else self._home(owner, f"bundle {bundle} of {namespace}")

    async def _broker(self, broker_id: str) -> Home:
        """Raises NOT_FOUND."""
        brokers = await self._ownership.brokers()
        for one, registered in brokers:
            if one == broker_id:
                return self._home(registered, f"broker {broker_id}", broker_id)
        names = ", ".join(one for one, _ in brokers[:20])
        raise BrokerError(ErrorCode.NOT_FOUND, f"there is no broker {broker_id!r:.100}: there are {names or 'none'}")

    def _home(self, told: BundleOwner | BrokerRegistration, what: str, broker_id: str = "") -> Home:
        broker_id = broker_id or getattr(told, "broker_id", "")
        if not told.listeners:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"nobody can tell where {what} is reached")
        return Home(broker_id, advertised_as(told.listeners), here=broker_id == self._broker_id())


class _AsWanted(Exception):
    """There is nothing left to be done."""
