"""`Ownership` over the metadata store: lookups, claims, unloads and splits in one metadata session.

    find_owner, ensure_owned    find a topic's owner: from memory if it is this broker, else from the owner node. A
                                bundle without an owner is assigned to a broker (bundle_assigner.py)
    claim_bundle                create the owner node; then the bundle is held
    unload_bundle               close the bundle's topics, then delete the owner node, then others may claim the bundle
                                (held_bundles.py)
    split_bundle                one transaction: the namespace's node, the owner node, two new ones (bundle_split.py)

Concurrent lookups of topics of a bundle share one read of its owner node, and one assignment.

**The session.** While it is suspended, the store does not answer, so no bundle is claimed, and held bundles are served
as before. When it is lost (broker_session.py), all bundles are lost, and this object is closed; the one of the next
session starts without bundles. What is held can always be restored from the store: a lookup adopts an owner node of
this session whose bundle is not held. Only a claim or a split with an unknown outcome leaves such a node.

**Dead owners** (dead_owners.py). A lookup at this broker replaces an owner node of a stale session of this broker.
Other brokers send clients here because of that node. The node of another broker whose address refuses connections is
replaced by the broker that the bundle is assigned to, which probes the address itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, NotOwner
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.ownership.bundle_assigner import BundleAssigner, BundleNotFound
from magnetar_broker.ownership.bundle_split import split_held_bundle
from magnetar_broker.ownership.dead_owners import DeadOwnerDetector, StaleSessionDetector
from magnetar_broker.ownership.held_bundles import HeldBundles
from magnetar_broker.ownership.interface import BundleTopics, OwnedBundle, TopicOwner
from magnetar_broker.ownership.namespace_bundles import (
    decode_bundle_at,
    decode_bundles,
    is_bundle,
    split_point_by_range,
)
from magnetar_broker.ownership.owner_nodes import NamespaceChanged, OwnerNode, OwnerNodes
from magnetar_broker.ownership.ownership_verifier import OwnershipVerifier
from magnetar_broker.ownership.registered_brokers import RegisteredBrokers, choose_leader
from magnetar_broker.ownership.registration import LoadSampler, Registration
from magnetar_broker.ownership.store_errors import convert_store_errors
from magnetar_broker.peers import Peers
from magnetar_broker.settings.ownership import OwnershipSettings
from magnetar_broker.single_flight import SingleFlight
from magnetar_broker.system_topics import heartbeat_broker
from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BrokerRegistration, BundleOwner, Listener
from magnetar_wire.bundles import MAX_BUNDLES, BundleRange, bundle_hash
from magnetar_wire.clock import Clock
from magnetar_wire.process.version import read_version
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["BundleOwnership"]

_log = logging.getLogger(__name__)
# Concurrent reads of owner nodes for a list of bundles.
_CONCURRENT_READS: Final = 64
_PAUSE_S: Final = 0.05
# An error names at most this many bundles.
_MAX_NAMED: Final = 8


class BundleOwnership:
    def __init__(
        self,
        store: MetadataStore,
        catalog: Catalog,
        peers: Peers,
        addresses: AdvertisedAddresses,
        broker_id: str,
        instance: bytes,
        load: LoadSampler,
        clock: Clock,
        randomness: Randomness,
        settings: OwnershipSettings,
        counters: BrokerCounters | None = None,
        http_address: str = "",
        max_bundles: Callable[[], int] = lambda: MAX_BUNDLES,
    ) -> None:
        """`max_bundles` returns the maximum number of bundles of a namespace, which a split does not exceed."""
        self._store = store
        self._catalog = catalog
        self._broker_id = broker_id
        self._instance = instance
        self._clock = clock
        self._randomness = randomness
        self._settings = settings
        self._counters = counters or BrokerCounters()
        self._max_bundles = max_bundles
        self._this_broker = TopicOwner(broker_id, addresses, is_local=True)
        listeners = addresses.encode()
        self._bundle_owner = BundleOwner(broker_id=broker_id, instance=instance, listeners=listeners)
        self._nodes = OwnerNodes(store, clock)
        self._stale_sessions = StaleSessionDetector(broker_id, instance, peers, settings.bundle_claim_timeout_seconds)
        self._registered = RegisteredBrokers(store, clock)
        self._dead_owners = DeadOwnerDetector(store, peers, self._registered, clock)
        registration = BrokerRegistration(
            instance=instance,
            listeners=listeners,
            http_address=http_address,
            version=read_version(),
            started_ms=clock.time_ms(),
        )
        self._registration = Registration(
            store, broker_id, registration, self._stale_sessions, load, lambda: len(self._held), clock, settings
        )
        self._held = HeldBundles(self._nodes, self._counters, self._registration.on_bundles_changed)
        self._assigner = BundleAssigner(
            broker_id, self._registered, peers, clock, settings.bundle_claim_timeout_seconds
        )
        self._verifier = OwnershipVerifier(
            self._held, self._nodes, catalog, clock, settings.bundle_check_interval_seconds
        )
        # Lookups and claims in flight, which return the bundle's owner. They raise `BundleNotFound`.
        self._lookups: SingleFlight[tuple[NamespaceName, BundleRange], BundleOwner] = SingleFlight()
        self._claims: SingleFlight[tuple[NamespaceName, BundleRange], BundleOwner] = SingleFlight()
        # No bundle is claimed any more.
        self._is_closing = False

    def set_topics(self, topics: BundleTopics) -> None:
        """Set the topics, which are closed with their bundles. Called before any other method."""
        self._held.topics = topics

    async def start(self) -> None:
        """Register the broker. Returns also if a former process of this broker is still registered."""
        await self._registration.start()
        self._verifier.start()

    async def release_bundles(self) -> None:
        """Release all bundles gracefully. Nothing is claimed any more, and no broker assigns bundles to this one."""
        self._is_closing = True
        await self._registration.unregister()
        await self._claims.wait_idle()
        await self._held.release_all()

    async def close(self) -> None:
        """Cancel everything that is in flight. The nodes are deleted with the session."""
        self._is_closing = True
        await self._verifier.close()
        await self._registration.close()
        await self._lookups.close()
        await self._claims.close()
        await self._dead_owners.close()
        await self._registered.close()
        await self._held.close()

    # ── brokers and bundles ──

    @property
    def waits_for(self) -> str:
        """The reason why this broker is not registered; empty: there is none."""
        return self._registration.waits_for

    def list_owned(self) -> list[OwnedBundle]:
        return [OwnedBundle(held.namespace, held.bundle, held.is_serving) for held in self._held.list_all()]

    async def list_brokers(self) -> list[tuple[str, BrokerRegistration]]:
        """Return the registered brokers in the order of their ids. Raises `BrokerError`."""
        return await self._registered.read()

    async def is_leader(self) -> bool:
        """Whether this broker is the leader. Raises `BrokerError`."""
        return choose_leader(await self._registered.read()) == self._broker_id

    async def find_broker(self, broker_id: str) -> BrokerRegistration | None:
        """Return a broker's registration; None: it is not registered. Raises `BrokerError`."""
        return await self._registered.find(broker_id)

    async def list_bundles(self, namespace: NamespaceName) -> list[tuple[BundleRange, BundleOwner | None]]:
        """Return the namespace's bundles in order, each with its owner. Raises `BrokerError`."""
        found = await self._catalog.get_namespace(namespace, fresh=True)
        owners: list[tuple[BundleRange, BundleOwner | None]] = []
        with convert_store_errors(f"the bundles of {namespace}"):
            bundles = decode_bundles(found.node.bundle_starts)
            for first in range(0, len(bundles), _CONCURRENT_READS):
                some = bundles[first : first + _CONCURRENT_READS]
                nodes = await asyncio.gather(*(self._nodes.read(namespace, bundle) for bundle in some))
                owners += [(bundle, node.owner if node else None) for bundle, node in zip(some, nodes, strict=True)]
        return owners

    async def find_bundle_owner(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner | None:
        """Return the bundle's owner; None: it has none. Raises `BrokerError`: NOT_FOUND: there is no such bundle."""
        found = await self._catalog.get_namespace(namespace, fresh=True)
        with convert_store_errors(f"bundle {bundle} of {namespace}"):
            if not is_bundle(found.node.bundle_starts, bundle):
                raise _bundle_not_found(namespace, bundle, decode_bundles(found.node.bundle_starts))
            node = await self._nodes.read(namespace, bundle)
        return node.owner if node is not None else None

    # ── the owner of a topic ──

    def check_owned(self, topic: TopicName) -> None:
        if not self._is_owned(topic):
            raise NotOwner(f"{topic} is not owned by this broker: look it up again")

    def _is_owned(self, topic: TopicName) -> bool:
        if heartbeat_broker(topic) == self._broker_id:
            return True
        held = self._held.find(topic.namespace_name, bundle_hash(topic))
        return held is not None and held.is_serving

    async def find_owner(self, topic: TopicName) -> TopicOwner:
        # Without the timer of a wait. Another broker's heartbeat topic is served there, and its bundle does not count.
        if heartbeat_broker(topic) in (None, self._broker_id) and self._is_owned(topic):
            return self._this_broker
        async with _limit_wait(topic, self._settings.bundle_wait_timeout_seconds):
            return await self._find_owner(topic)

    async def ensure_owned(self, topic: TopicName) -> None:
        if self._is_owned(topic):
            return
        async with _limit_wait(topic, self._settings.bundle_wait_timeout_seconds):
            while not self._is_owned(topic):
                owner = await self._find_owner(topic)
                if not owner.is_local:
                    raise NotOwner(f"{topic} is owned by broker {owner.broker_id}: look it up again")

    async def verify_owned(self, topic: TopicName) -> None:
        if heartbeat_broker(topic) == self._broker_id:
            return
        self.check_owned(topic)
        held = self._held.find(topic.namespace_name, bundle_hash(topic))
        assert held is not None
        with convert_store_errors(str(held)):
            node = await self._nodes.read(held.namespace, held.bundle, fresh=True)
        if not self._nodes.is_ours(node):
            self._held.verify(held)
        self.check_owned(topic)

    def reverify(self, topic: TopicName) -> None:
        held = self._held.find(topic.namespace_name, bundle_hash(topic))
        if held is not None:
            self._held.verify(held)

    async def _find_owner(self, topic: TopicName) -> TopicOwner:
        broker_id = heartbeat_broker(topic)
        if broker_id is not None:
            return self._this_broker if broker_id == self._broker_id else await self._find_registered(broker_id)
        namespace, topic_hash = topic.namespace_name, bundle_hash(topic)
        fresh = False
        while True:
            held = self._held.find(namespace, topic_hash)
            if held is not None:
                if held.is_serving:
                    return self._this_broker
                await self._held.wait_idle(held)
                continue
            found = await self._catalog.get_namespace(namespace, fresh=fresh)
            with convert_store_errors(f"the bundles of {namespace}"):
                bundle = decode_bundle_at(found.node.bundle_starts, topic_hash)
            try:
                owner = await self._look_up(namespace, bundle)
            except BundleNotFound:
                fresh = True
                continue
            if owner.instance != self._instance:
                return _other_broker(owner.broker_id, owner.listeners)

    async def _find_registered(self, broker_id: str) -> TopicOwner:
        registration = dict(await self._registered.read()).get(broker_id)
        if registration is None:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"broker {broker_id:.100} is not registered now")
        return _other_broker(broker_id, registration.listeners)

    async def _look_up(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        """Return the owner of a bundle that is not held. Assign the bundle if it has none."""
        return await self._lookups.run((namespace, bundle), lambda: self._look_up_alone(namespace, bundle))

    async def _look_up_alone(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        if (namespace, bundle) in self._claims:
            return await self._claim(namespace, bundle)
        with convert_store_errors(f"the owner of bundle {bundle} of {namespace}"):
            node = await self._nodes.read(namespace, bundle)
            if node is not None:
                if self._nodes.is_ours(node):
                    if (namespace, bundle) not in self._claims:
                        await self._held.adopt(namespace, bundle, node)
                    return node.owner
                if await self._is_stale(node.owner):
                    # Other brokers find this broker alive at the node's address: only this one replaces the node.
                    return await self._claim(namespace, bundle)
                if not await self._dead_owners.is_dead(node.owner):
                    return node.owner
        return await self._assigner.assign(namespace, bundle, self._claim)

    async def _is_stale(self, owner: BundleOwner) -> bool:
        return await self._stale_sessions.is_stale(owner.broker_id, owner.instance, owner.listeners)

    # ── claim, unload and split ──

    async def claim_bundle(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        """Claim the bundle for this broker, unless it has an owner. Return its owner.

        Raises `BrokerError`: NOT_FOUND: there is no such bundle.
        """
        try:
            async with _limit_wait(f"bundle {bundle} of {namespace}", self._settings.bundle_wait_timeout_seconds):
                return await self._claim(namespace, bundle)
        except BundleNotFound as error:
            raise BrokerError(ErrorCode.NOT_FOUND, str(error)) from None

    async def _claim(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        return await self._claims.run((namespace, bundle), lambda: self._claim_alone(namespace, bundle))

    async def _claim_alone(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        what = f"bundle {bundle} of {namespace}"
        fresh = False
        # The node of a dead owner.
        replaced: OwnerNode | None = None
        while True:
            held = self._held.get(namespace, bundle)
            if held is not None:
                if held.is_serving:
                    return self._bundle_owner
                await self._held.wait_idle(held)
                continue
            self._check_may_claim(what)
            found = await self._catalog.get_namespace(namespace, fresh=fresh)
            with convert_store_errors(what):
                if not is_bundle(found.node.bundle_starts, bundle):
                    if fresh:
                        raise BundleNotFound(f"namespace {namespace} has no bundle {bundle}")
                    fresh = True
                    continue
                owner = self._owner_in(found.node.incarnation)
                try:
                    node = await self._nodes.claim_node(namespace, bundle, found.version, owner, replaced)
                except NamespaceChanged:
                    if fresh:
                        await self._clock.sleep(_PAUSE_S)
                    fresh = True
                    continue
                if not self._nodes.is_ours(node):
                    if await self._is_stale(node.owner) or await self._dead_owners.is_dead(node.owner):
                        replaced = node
                        continue
                elif node.is_new:
                    if replaced is not None:
                        _log.info("Took over %s from broker %s", what, replaced.owner.broker_id)
                        self._counters.bundle_take_overs += 1
                    self._held.add(namespace, bundle, node)
                    self._counters.bundle_claims += 1
                else:
                    # Another operation has created it, for example a split with an unknown outcome: wait for that.
                    await self._held.adopt(namespace, bundle, node)
                    if self._held.get(namespace, bundle) is None:
                        await self._clock.sleep(_PAUSE_S)
                    continue
                return node.owner

    def _check_may_claim(self, what: str) -> None:
        if self._is_closing:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"this broker is shutting down, and accepts {what} no more")
        if self._store.session.state is not SessionState.CONNECTED:
            text = f"{what} can't be acquired now: the session with the metadata store is suspended"
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, text)

    def _owner_in(self, namespace_incarnation: bytes) -> BundleOwner:
        owner = BundleOwner(namespace_incarnation=namespace_incarnation)
        owner.MergeFrom(self._bundle_owner)
        return owner

    async def unload_bundle(self, namespace: NamespaceName, bundle: BundleRange, destination: str = "") -> None:
        """Unload the bundle from this broker. Then the broker `destination` is requested to claim it.

        Raises `BrokerError`: SERVICE_NOT_READY: this broker does not own it; NOT_FOUND: there is no broker
        `destination`; NOT_ALLOWED: another broker has claimed it first.
        """
        if destination and await self._registered.find(destination) is None:
            raise BrokerError(
                ErrorCode.NOT_FOUND, f"there is no broker {destination:.100}: `magnetar brokers` lists the brokers"
            )

        async def assign_to_destination() -> None:
            if destination and destination != self._broker_id:
                owner = await self._assigner.assign_to(destination, namespace, bundle)
                if owner.broker_id != destination:
                    text = f"bundle {bundle} of {namespace} was acquired by broker {owner.broker_id} first"
                    raise BrokerError(ErrorCode.NOT_ALLOWED, text)

        await self._held.release(await self._held.get_idle(namespace, bundle), assign_to_destination)

    async def split_bundle(
        self, namespace: NamespaceName, bundle: BundleRange, at: int | None = None
    ) -> tuple[BundleRange, BundleRange]:
        """Split the bundle at a hash; None: in the middle. Return its parts, which this broker owns then.

        Raises `BrokerError`: SERVICE_NOT_READY: this broker does not own it; INVALID_ARGUMENT: it can't be split there;
        NOT_ALLOWED: the namespace has the maximum number of bundles.
        """
        try:
            at = split_point_by_range(bundle) if at is None else at
            parts = BundleRange(bundle.lower, at), BundleRange(at, bundle.upper)
        except ValueError as error:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"bundle {bundle} can't be split there: {error}") from None
        held = await self._held.get_idle(namespace, bundle)
        owner = self._owner_in(held.namespace_incarnation)
        split = split_held_bundle(
            self._store,
            self._nodes,
            self._held,
            held,
            parts,
            owner,
            self._clock,
            self._randomness,
            max_bundles=self._max_bundles(),
        )
        await self._held.run_operation(held, split, is_serving=True)
        self._counters.bundle_splits += 1
        return parts


@asynccontextmanager
async def _limit_wait(what: object, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise BrokerError(
            ErrorCode.SERVICE_NOT_READY, f"the owner of {what} was not found within {timeout_s} s: try again"
        ) from None


def _other_broker(broker_id: str, listeners: Sequence[Listener]) -> TopicOwner:
    if not listeners:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"broker {broker_id!r:.100} has no address in the metadata store")
    return TopicOwner(broker_id, AdvertisedAddresses.decode(listeners), is_local=False)


def _bundle_not_found(namespace: NamespaceName, bundle: BundleRange, bundles: Sequence[BundleRange]) -> BrokerError:
    shown = ", ".join(map(str, bundles[:_MAX_NAMED])) + (" …" if len(bundles) > _MAX_NAMED else "")
    return BrokerError(ErrorCode.NOT_FOUND, f"{namespace} has no bundle {bundle}: it has {shown}", about="bundle")
