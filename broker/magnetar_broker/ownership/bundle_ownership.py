"""Who has which bundle: `Ownership` over the metadata store, for one session.

    home, admit   a topic's owner: from memory where it is this broker, else by the owner's node; where there is none,
                  the bundle is given to somebody (assigning.py)
    claim         makes the node, and then the bundle is held
    unload        the bundle's topics are closed, then the node goes, then others may claim it (held_bundles.py)
    split         one transaction: the namespace's node, the old owner's node, two new ones (splitting.py)

However many look up topics of a bundle, its node is read, and the bundle given to somebody, once at a time.

**The session.** While it is suspended nothing is claimed, since the store gives no answer, and bundles that are held go
on. With it all is lost (broker_session.py): this object ends, and the next life's begins owning nothing. What is held
may always be rebuilt from the store: a node of this session's own that is not held, which only an outcome that could
not be told leaves behind, is taken in when somebody looks for its bundle.

**Owners that are gone.** A node that this broker left behind when it was killed, or lost a session, is replaced when a
lookup meets it here (predecessor.py). Other brokers answer lookups by it, and the clients come here. The node of
another broker whose address refuses connections is replaced by the broker that the bundle is assigned to, which probes
the address itself (refused_owners.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.core.namespace_bundles import bundle_at, bundles_of, is_bundle, middle_of
from magnetar_broker.core.system_topics import heartbeat_broker
from magnetar_broker.errors import BrokerError, NothingDone
from magnetar_broker.ownership.assigning import Assigning, NoSuchBundle
from magnetar_broker.ownership.held_bundles import HeldBundles
from magnetar_broker.ownership.interface import (
    Advertised,
    BundleTopics,
    Home,
    NamespaceReader,
    OwnedBundle,
    advertised_as,
    listeners_told,
)
from magnetar_broker.ownership.load import LoadSource
from magnetar_broker.ownership.owner_nodes import NamespaceChanged, OwnerNode, OwnerNodes
from magnetar_broker.ownership.predecessor import Predecessor
from magnetar_broker.ownership.refused_owners import RefusedOwners
from magnetar_broker.ownership.registered_brokers import RegisteredBrokers
from magnetar_broker.ownership.registration import Registration
from magnetar_broker.ownership.shared_work import SharedWork
from magnetar_broker.ownership.splitting import split
from magnetar_broker.ownership.store_errors import no_such_bundle, told
from magnetar_broker.ownership.upkeep import Upkeep
from magnetar_broker.peers import PeersLike
from magnetar_broker.settings.ownership import OwnershipSettings
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
# Nodes that are read at a time.
_AT_ONCE: Final = 64
_PAUSE_S: Final = 0.05


class BundleOwnership:
    def __init__(
        self,
        store: MetadataStore,
        namespaces: NamespaceReader,
        peers: PeersLike,
        me: Advertised,
        broker_id: str,
        instance: bytes,
        load: LoadSource,
        clock: Clock,
        randomness: Randomness,
        settings: OwnershipSettings,
        counters: BrokerCounters | None = None,
        http_address: str = "",
        max_bundles: int = MAX_BUNDLES,
    ) -> None:
        """`max_bundles`: no split makes more of a namespace."""
        self._store = store
        self._namespaces = namespaces
        self._broker_id = broker_id
        self._instance = instance
        self._clock = clock
        self._randomness = randomness
        self._settings = settings
        self._counters = counters or BrokerCounters()
        self._max_bundles = max_bundles
        self._me = Home(broker_id, me, here=True)
        listeners = listeners_told(me)
        self._owner = BundleOwner(broker_id=broker_id, instance=instance, listeners=listeners)
        self._nodes = OwnerNodes(store, clock)
        self._predecessor = Predecessor(broker_id, instance, peers, settings.bundle_claim_timeout_seconds)
        self._registered = RegisteredBrokers(store, clock)
        self._refused = RefusedOwners(store, peers, self._registered, clock)
        registration = BrokerRegistration(
            instance=instance,
            listeners=listeners,
            http_address=http_address,
            version=read_version(),
            started_ms=clock.time_ms(),
        )
        self._registration = Registration(
            store, broker_id, registration, self._predecessor, load, lambda: len(self._held), clock, settings
        )
        self._held = HeldBundles(self._nodes, self._counters, self._registration.bundles_changed)
        self._assigning = Assigning(broker_id, self._registered, peers, clock, settings.bundle_claim_timeout_seconds)
        self._upkeep = Upkeep(self._held, self._nodes, namespaces, clock, settings.bundle_check_interval_seconds)
        # Whose each is, as it is being found out, and being claimed. Raises `NoSuchBundle`.
        self._seeking: SharedWork[tuple[NamespaceName, BundleRange], BundleOwner] = SharedWork()
        self._claiming: SharedWork[tuple[NamespaceName, BundleRange], BundleOwner] = SharedWork()
        # No bundle is taken any more.
        self._ending = False

    def serve(self, topics: BundleTopics) -> None:
        """These are closed when their bundles are given up. Called before anything else is."""
        self._held.topics = topics

    async def start(self) -> None:
        """Returns when other brokers can know this one, or can't yet since its predecessor is still known."""
        await self._registration.start()
        self._upkeep.start()

    async def release_all(self) -> None:
        """In peace: nothing is claimed any more, no broker asks this one for that, and all bundles are released."""
        self._ending = True
        await self._registration.leave()
        await self._claiming.wait()
        await self._held.release_all()

    async def close(self) -> None:
        """Breaks off what is under way. The nodes go with the session."""
        self._ending = True
        await self._upkeep.close()
        await self._registration.close()
        await self._seeking.close()
        await self._claiming.close()
        await self._refused.close()
        await self._registered.close()
        await self._held.close()

    # ── what there is ──

    @property
    def waits_for(self) -> str:
        """What keeps this broker from being registered; empty: nothing does."""
        return self._registration.waits_for

    def owned(self) -> list[OwnedBundle]:
        return [OwnedBundle(held.namespace, held.bundle, held.serving) for held in self._held.all()]

    async def brokers(self) -> list[tuple[str, BrokerRegistration]]:
        """Those that take topics, in the order of their ids. Raises `BrokerError`."""
        return await self._registered.read()

    async def bundles(self, namespace: NamespaceName) -> list[tuple[BundleRange, BundleOwner | None]]:
        """All of the namespace's, in order, and who has each. Raises `BrokerError`."""
        found = await self._namespaces.namespace(namespace, fresh=True)
        owners: list[tuple[BundleRange, BundleOwner | None]] = []
        with told(f"the bundles of {namespace}"):
            bundles = bundles_of(found.node.bundle_starts)
            for some in (bundles[place : place + _AT_ONCE] for place in range(0, len(bundles), _AT_ONCE)):
                nodes = await asyncio.gather(*(self._nodes.read(namespace, bundle) for bundle in some))
                owners += [(bundle, node.owner if node else None) for bundle, node in zip(some, nodes, strict=True)]
        return owners

    async def owner_of(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner | None:
        """Read afresh. Raises `BrokerError`: NOT_FOUND: there is no such bundle."""
        found = await self._namespaces.namespace(namespace, fresh=True)
        with told(f"bundle {bundle} of {namespace}"):
            if not is_bundle(found.node.bundle_starts, bundle):
                raise no_such_bundle(namespace, bundle, bundles_of(found.node.bundle_starts))
            node = await self._nodes.read(namespace, bundle)
        return node.owner if node is not None else None

    # ── whose a topic is ──

    def check(self, topic: TopicName) -> None:
        if not self._has(topic):
            raise NothingDone(f"{topic} is not owned by this broker: look it up again")

    def _has(self, topic: TopicName) -> bool:
        if heartbeat_broker(topic) == self._broker_id:
            return True
        held = self._held.find(topic.namespace_name, bundle_hash(topic))
        return held is not None and held.serving

    async def home(self, topic: TopicName) -> Home:
        async with _in_time(topic, self._settings.bundle_wait_timeout_seconds):
            return await self._home(topic)

    async def admit(self, topic: TopicName) -> None:
        if self._has(topic):
            return
        async with _in_time(topic, self._settings.bundle_wait_timeout_seconds):
            while not self._has(topic):
                home = await self._home(topic)
                if not home.here:
                    raise NothingDone(f"{topic} is owned by broker {home.broker_id}: look it up again")

    async def confirm(self, topic: TopicName) -> None:
        if heartbeat_broker(topic) == self._broker_id:
            return
        self.check(topic)
        held = self._held.find(topic.namespace_name, bundle_hash(topic))
        assert held is not None
        with told(str(held)):
            node = await self._nodes.read(held.namespace, held.bundle, fresh=True)
        if not self._nodes.is_ours(node):
            self._held.verify(held)
        self.check(topic)

    def doubt(self, topic: TopicName) -> None:
        held = self._held.find(topic.namespace_name, bundle_hash(topic))
        if held is not None:
            self._held.verify(held)

    async def _home(self, topic: TopicName) -> Home:
        broker_id = heartbeat_broker(topic)
        if broker_id is not None:
            return self._me if broker_id == self._broker_id else await self._home_of(broker_id)
        namespace, topic_hash = topic.namespace_name, bundle_hash(topic)
        fresh = False
        while True:
            held = self._held.find(namespace, topic_hash)
            if held is not None:
                if held.serving:
                    return self._me
                await self._held.wait_worked(held)
                continue
            found = await self._namespaces.namespace(namespace, fresh=fresh)
            with told(f"the bundles of {namespace}"):
                bundle = bundle_at(found.node.bundle_starts, topic_hash)
            try:
                owner = await self._sought(namespace, bundle)
            except NoSuchBundle:
                fresh = True
                continue
            if owner.instance != self._instance:
                return Home(owner.broker_id, _advertised(owner.broker_id, owner.listeners), here=False)

    async def _home_of(self, broker_id: str) -> Home:
        registration = dict(await self._registered.read()).get(broker_id)
        if registration is None:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"broker {broker_id:.100} is not registered now")
        return Home(broker_id, _advertised(broker_id, registration.listeners), here=False)

    async def _sought(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        return await self._seeking.result((namespace, bundle), lambda: self._seek(namespace, bundle))

    async def _seek(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        if (namespace, bundle) in self._claiming:
            return await self._claimed(namespace, bundle)
        with told(f"the owner of bundle {bundle} of {namespace}"):
            node = await self._nodes.read(namespace, bundle)
            if node is not None:
                if self._nodes.is_ours(node):
                    if (namespace, bundle) not in self._claiming:
                        await self._held.take_in(namespace, bundle, node)
                    return node.owner
                if await self._was_a_former_self(node.owner):
                    # The others see that its address is answered at: this broker alone replaces the node.
                    return await self._claimed(namespace, bundle)
                if not await self._refused.is_gone(node.owner):
                    return node.owner
        return await self._assigning.assign(namespace, bundle, self._claimed)

    async def _was_a_former_self(self, owner: BundleOwner) -> bool:
        return await self._predecessor.is_gone(owner.broker_id, owner.instance, owner.listeners)

    # ── taking, giving, splitting ──

    async def claim(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        """Who has the bundle: this broker, if nobody had it. Raises `BrokerError`: NOT_FOUND: there is no such one."""
        try:
            async with _in_time(f"bundle {bundle} of {namespace}", self._settings.bundle_wait_timeout_seconds):
                return await self._claimed(namespace, bundle)
        except NoSuchBundle as error:
            raise BrokerError(ErrorCode.NOT_FOUND, str(error)) from None

    async def _claimed(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        return await self._claiming.result((namespace, bundle), lambda: self._claim(namespace, bundle))

    async def _claim(self, namespace: NamespaceName, bundle: BundleRange) -> BundleOwner:
        what = f"bundle {bundle} of {namespace}"
        fresh = False
        # Of an owner that is gone.
        replaced: OwnerNode | None = None
        while True:
            held = self._held.get(namespace, bundle)
            if held is not None:
                if held.serving:
                    return self._owner
                await self._held.wait_worked(held)
                continue
            self._check_may_take(what)
            found = await self._namespaces.namespace(namespace, fresh=fresh)
            with told(what):
                if not is_bundle(found.node.bundle_starts, bundle):
                    if fresh:
                        raise NoSuchBundle(f"namespace {namespace} has no bundle {bundle}")
                    fresh = True
                    continue
                owner = self._owner_in(found.node.incarnation)
                try:
                    node = await self._nodes.take(namespace, bundle, found.version, owner, replaced)
                except NamespaceChanged:
                    if fresh:
                        await self._clock.sleep(_PAUSE_S)
                    fresh = True
                    continue
                if not self._nodes.is_ours(node):
                    if await self._was_a_former_self(node.owner) or await self._refused.is_gone(node.owner):
                        replaced = node
                        continue
                elif node.made:
                    if replaced is not None:
                        _log.info("Took over %s from broker %s", what, replaced.owner.broker_id)
                        self._counters.bundle_take_overs += 1
                    self._held.add(namespace, bundle, node)
                    self._counters.bundle_claims += 1
                else:
                    # By a split that has not been told, say: whatever is being done knows better.
                    await self._held.take_in(namespace, bundle, node)
                    if self._held.get(namespace, bundle) is None:
                        await self._clock.sleep(_PAUSE_S)
                    continue
                return node.owner

    def _check_may_take(self, what: str) -> None:
        if self._ending:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, f"this broker is shutting down, and accepts {what} no more")
        if self._store.session.state is not SessionState.CONNECTED:
            text = f"{what} can't be acquired now: the session with the metadata store is suspended"
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, text)

    def _owner_in(self, namespace_incarnation: bytes) -> BundleOwner:
        owner = BundleOwner(namespace_incarnation=namespace_incarnation)
        owner.MergeFrom(self._owner)
        return owner

    async def unload(self, namespace: NamespaceName, bundle: BundleRange, destination: str = "") -> None:
        """Returns when this broker has the bundle no more. Broker `destination` is asked to take it then.

        Raises `BrokerError`: SERVICE_NOT_READY: it is not this broker's; NOT_FOUND: no broker is called `destination`;
        NOT_ALLOWED: it went to another one.
        """
        if destination and destination not in dict(await self._registered.read()):
            raise BrokerError(
                ErrorCode.NOT_FOUND, f"there is no broker {destination:.100}: `magnetar brokers` lists the brokers"
            )

        async def give() -> None:
            if destination and destination != self._broker_id:
                owner = await self._assigning.ask_by_id(destination, namespace, bundle)
                if owner.broker_id != destination:
                    text = f"bundle {bundle} of {namespace} was acquired by broker {owner.broker_id} first"
                    raise BrokerError(ErrorCode.NOT_ALLOWED, text)

        await self._held.release(await self._held.free(namespace, bundle), give)

    async def split(
        self, namespace: NamespaceName, bundle: BundleRange, at: int | None = None
    ) -> tuple[BundleRange, BundleRange]:
        """Cuts it in two at that hash, or in the middle; this broker has both then, and their topics stay open.

        Raises `BrokerError`: SERVICE_NOT_READY: it is not this broker's; INVALID_ARGUMENT: it can't be cut there;
        NOT_ALLOWED: the namespace may have no more.
        """
        try:
            at = middle_of(bundle) if at is None else at
            halves = BundleRange(bundle.lower, at), BundleRange(at, bundle.upper)
        except ValueError as error:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"bundle {bundle} can't be split there: {error}") from None
        held = await self._held.free(namespace, bundle)
        owner = self._owner_in(held.namespace_incarnation)
        work = split(
            self._store,
            self._nodes,
            self._held,
            held,
            halves,
            owner,
            self._clock,
            self._randomness,
            max_bundles=self._max_bundles,
        )
        await self._held.work_on(held, work, serving=True)
        self._counters.bundle_splits += 1
        return halves


@asynccontextmanager
async def _in_time(what: object, bound_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(bound_s):
            yield
    except TimeoutError:
        raise BrokerError(
            ErrorCode.SERVICE_NOT_READY, f"the owner of {what} was not found within {bound_s} s: try again"
        ) from None


def _advertised(broker_id: str, listeners: Sequence[Listener]) -> Advertised:
    if not listeners:
        raise BrokerError(ErrorCode.METADATA_ERROR, f"broker {broker_id!r:.100} has no address in the metadata store")
    return advertised_as(listeners)
