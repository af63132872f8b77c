"""Opens topics that are not loaded, at long intervals, so that retention and expiry act on topics that nobody uses.

Housekeeping works on loaded topics. A topic is not loaded if no client has used it since its broker was started, or has
taken over its bundle. So each broker visits such topics of its own bundles, about once in
`topic_visit_interval_minutes`. It opens the topic, does what is due (retention, expiry of messages and subscriptions,
lapsed leases, backlog quotas, deletion of inactive topics), and unloads it again unless a client has requested it in
the meantime.

**Cost.** A round lists the names of one namespace after another, and reads the node of each topic. In most cases the
node shows that nothing can be due (`may_be_due`), for example in an empty topic. If not, the topic is opened, which
writes its node and those of its cursors, once each. The first visit after a crash also closes the last ledger. No
ledger is created. At most five topics are opened in a second, and none while clients open many. System topics are not
visited.

**Time.** A loaded topic counts the time for which it was inactive, for which its leases were not renewed, and for which
its subscriptions were not used. Counting continues from one visit to the next, if the owner epoch shows that nobody
has opened the topic in between. Otherwise, and after a restart of the broker, it begins again.

**Bundles without an owner.** Once in the interval, the leader of the cluster looks up one topic of each bundle that has
topics. So each of these bundles is assigned to a broker, as by the first lookup of a client, and that broker visits the
topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.catalog.policy_settings import settings_by_policies
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.interface import OwnedBundle, TopicOwner
from magnetar_broker.ownership.namespace_bundles import decode_bundle_at
from magnetar_broker.settings.dynamic import change_fields
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.live_settings import FindPolicies
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topics import Topics
from magnetar_protos.managed_ledger_pb2 import ManagedLedgerNode, TopicState
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import NamespaceName, TopicDomain, TopicName

__all__ = ["TopicVisits", "may_be_due"]

_log = logging.getLogger(__name__)
# Visits at a time. There are several because a topic that can't be opened must not stop the others.
_MAX_VISITS: Final = 4
# No visit begins while this many topics, or more, are being opened for clients.
_MAX_OPENINGS: Final = 8
# Pauses: after a visit has begun, after a topic that needs no visit, and while clients open topics.
VISIT_PAUSE_S: Final = 0.2
_SKIP_PAUSE_S: Final = 0.01
_BUSY_PAUSE_S: Final = 1.0
# Names of topics that are handled before other tasks run.
_NAMES_PER_TURN: Final = 200
# The maximum pause before the setting is read again.
_LONGEST_SLEEP_S: Final = 10.0
# The first round begins within this part of the interval, at a random time, so that brokers that were started together
# do not visit together.
_FIRST_SHARE: Final = 0.25
_S_PER_MINUTE: Final = 60


class VisitedBundles(Protocol):
    """The part of `BundleOwnership` that visits need."""

    def list_owned(self) -> list[OwnedBundle]: ...

    def check_owned(self, topic: TopicName) -> None: ...

    async def find_owner(self, topic: TopicName) -> TopicOwner: ...

    async def is_leader(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Counted:
    """The times that a topic had counted when a visit unloaded it. They are of the monotonic clock."""

    owner_epoch: bytes
    # Since when the leases count.
    leases_since: float
    # None: inactive topics are not deleted.
    inactive_since: float | None
    # As `SubscriptionExpiry.counted`. None: subscriptions do not expire.
    subscriptions: tuple[float, dict[str, float]] | None


class TopicVisits:
    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        bundles: VisitedBundles,
        find_policies: FindPolicies,
        work_through: Callable[[Topic], Awaitable[None]],
        settings: BrokerServiceSettings,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        """`work_through` is `Housekeeping.work_through`."""
        self._topics = topics
        self._catalog = catalog
        self._bundles = bundles
        self._find_policies = find_policies
        self._work_through = work_through
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        # By topic that was visited, the times that continue at its next visit.
        self._counted: dict[TopicName, _Counted] = {}
        self._visiting = 0

    @property
    def interval_s(self) -> float:
        return self._settings.topic_visit_interval_minutes * _S_PER_MINUTE

    async def run(self) -> None:
        """Visit topics until this is cancelled."""
        began = self._clock.monotonic()
        share = _FIRST_SHARE * self._randomness.random()
        while True:
            while not self.interval_s or self._clock.monotonic() < began + share * self.interval_s:
                left_s = began + share * self.interval_s - self._clock.monotonic()
                await self._clock.sleep(min(left_s, _LONGEST_SLEEP_S) if self.interval_s else _LONGEST_SLEEP_S)
            began, share = self._clock.monotonic(), 1.0
            await self.visit_all()
            try:
                if await self._bundles.is_leader():
                    await self.assign_bundles()
            except BrokerError as error:
                _log.info("Bundles without an owner can't be assigned now: %s", error)

    # Topics of this broker's bundles.

    async def visit_all(self) -> None:
        """Visit all topics of this broker's bundles that are not loaded, and return when that is done."""
        owned: dict[NamespaceName, list[BundleRange]] = {}
        for one in self._bundles.list_owned():
            owned.setdefault(one.namespace, []).append(one.bundle)
        slots, seen = asyncio.Semaphore(_MAX_VISITS), set[TopicName]()
        async with OrderedTaskGroup() as tasks:
            for namespace, bundles in owned.items():
                for number, name in enumerate(await self._list_topics(namespace)):
                    if not any(bundle_hash(name) in bundle for bundle in bundles):
                        await self._give_turn(number)
                        continue
                    seen.add(name)
                    if not await self._is_visit_due(name):
                        await self._clock.sleep(_SKIP_PAUSE_S)
                        continue
                    await slots.acquire()
                    tasks.create_task(self._visit(name, slots), name="visit")
                    await self._clock.sleep(VISIT_PAUSE_S)
        self._counted = {name: counted for name, counted in self._counted.items() if name in seen}

    async def _list_topics(self, namespace: NamespaceName) -> list[TopicName]:
        try:
            names = await self._catalog.list_topics(namespace, domains=(TopicDomain.PERSISTENT,))
        except BrokerError as error:
            _log.info("The topics of %s can't be visited now: %s", namespace, error)
            return []
        parsed = []
        for number, name in enumerate(names):
            parsed.append(TopicName.parse(name))
            await self._give_turn(number)
        return parsed

    async def _give_turn(self, number: int) -> None:
        if number % _NAMES_PER_TURN == 0:
            await asyncio.sleep(0)

    async def _is_visit_due(self, name: TopicName) -> bool:
        if self._topics.is_known(name):
            self._counted.pop(name, None)
            return False
        try:
            self._bundles.check_owned(name)
            node = await self._catalog.find_topic_node(name)
            if node is None:
                return False
            policies = await self._find_policies(name, node.incarnation)
        except BrokerError as error:
            _log.info("%s can't be visited now: %s", name, error)
            return False
        # Without all policies nothing may be deleted.
        return policies is not None and may_be_due(
            node, change_fields(self._settings, dict(settings_by_policies(policies)))
        )

    async def _visit(self, name: TopicName, slots: asyncio.Semaphore) -> None:
        try:
            while self._topics.openings - self._visiting >= _MAX_OPENINGS:
                await self._clock.sleep(_BUSY_PAUSE_S)
            await self._visit_now(name)
        except BrokerError as error:
            _log.info("%s can't be visited now: %s", name, error)
        except Exception:  # noqa: BLE001 (the other topics are visited)
            _log.exception("The visit of %s has failed because of an internal error", name)
        finally:
            slots.release()

    async def _visit_now(self, name: TopicName) -> None:
        counted = self._counted.pop(name, None)
        self._visiting += 1
        try:
            topic = await self._topics.visit(name)
        finally:
            self._visiting -= 1
        if topic is None:
            return
        leases_since = self._clock.monotonic()
        if counted is not None and counted.owner_epoch == topic.managed_ledger.previous_owner_epoch:
            leases_since = counted.leases_since
            _continue_counting(topic, counted)
        try:
            await self._work_through(topic)
        except Exception:
            await self._topics.end_visit(topic)
            raise
        present = _Counted(
            topic.log.owner_epoch,
            leases_since,
            topic.inactive_since if topic.live_settings.current.broker_delete_inactive_topics_enabled else None,
            topic.subscription_expiry.counted,
        )
        has_leases = topic.log.leases.any_active
        if await self._topics.end_visit(topic) and (
            has_leases or present.inactive_since is not None or present.subscriptions is not None
        ):
            self._counted[name] = present

    # Bundles without an owner.

    async def assign_bundles(self) -> None:
        """Assign each bundle that has topics, and no owner, to a broker. Raises `BrokerError`."""
        for tenant in await self._catalog.tenants.list_names():
            for local_name in await self._catalog.namespaces.list_names(tenant):
                namespace = NamespaceName(tenant, local_name)
                try:
                    await self._assign_bundles_of(namespace)
                except (BrokerError, ValueError) as error:
                    _log.info("Not all bundles of %s can be assigned now: %s", namespace, error)

    async def _assign_bundles_of(self, namespace: NamespaceName) -> None:
        names = await self._list_topics(namespace)
        if not names:
            return
        starts = (await self._catalog.get_namespace(namespace)).node.bundle_starts
        for name in {decode_bundle_at(starts, bundle_hash(name)): name for name in names}.values():
            try:
                await self._bundles.find_owner(name)
            except BrokerError as error:
                _log.info("The bundle of %s can't be assigned now: %s", name, error)
            await self._clock.sleep(VISIT_PAUSE_S)


def _continue_counting(topic: Topic, counted: _Counted) -> None:
    """Let the topic continue to count its times: it was not opened since a visit has unloaded it."""
    topic.managed_ledger.leases.count_from(counted.leases_since)
    if counted.inactive_since is not None:
        topic.inactive_since = counted.inactive_since
    if counted.subscriptions is not None:
        topic.subscription_expiry.count_on(counted.subscriptions)


def may_be_due(node: ManagedLedgerNode, settings: BrokerServiceSettings) -> bool:
    """Return whether a visit may find something to do: the topic has messages or leases, is being deleted, or may be
    deleted as inactive, or its subscriptions may expire. `settings`: by the policies of the topic."""
    has_more = node.ledgers or node.pages or node.deleting or node.leases or node.state == TopicState.DELETING
    return bool(
        has_more or settings.broker_delete_inactive_topics_enabled or settings.subscription_expiration_time_minutes
    )
