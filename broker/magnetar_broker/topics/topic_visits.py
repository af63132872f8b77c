"""Visits topics that are not loaded, so that nothing stays for ever in topics that nobody uses.

Housekeeping works on loaded topics. A topic that no client has used since its broker was started, or has taken over its
bundle, is not loaded. So each broker visits such topics of its own bundles, about once in
`topic_visit_interval_minutes`: it opens the topic, does what housekeeping finds due (retention, expiry of messages and
subscriptions, leases that have lapsed, backlog quotas, deletion of inactive topics), and unloads it again unless
somebody has requested it in the meantime.

**Cost.** A round lists the names of one namespace after another, and reads the node of each topic. Most often that
shows that nothing can be due (`may_be_due`), for example in an empty topic. Else the topic is opened, which writes its
node and that of its cursors, once each. The first visit after a crash also closes the last ledger. No ledger is
created. At most five topics are opened in a second, and none while clients open many. System topics are not visited.

**Time.** What counts time while the topic is open goes on from one visit to the next: inactivity, leases, and the time
for which a subscription was not used. The owner epoch shows whether anybody else has opened the topic in between: then
the time begins again, as it does after a restart of the broker.

**Bundles without an owner.** The leader of the cluster looks up one topic of each bundle that has any, once in the
interval. So each is assigned to a broker as by the first lookup of a client, and this broker visits the topics.
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
# Visits at a time: a topic that can't be opened does not stop the others.
_AT_A_TIME: Final = 4
# None begins while at least this many topics are being opened.
_MAX_OPENINGS: Final = 8
# After the beginning of a visit, after a topic without one, and while others are being opened.
VISIT_PAUSE_S: Final = 0.2
_SKIP_PAUSE_S: Final = 0.01
_WAIT_S: Final = 1.0
# Names of topics that are looked at before other tasks run.
_NAMES_PER_TURN: Final = 200
# Between two looks at the setting.
_LONGEST_SLEEP_S: Final = 10.0
# The first round begins within this part of the interval.
_FIRST_SHARE: Final = 0.25
_S_PER_MINUTE: Final = 60


class VisitedBundles(Protocol):
    """What `BundleOwnership` has for this."""

    def list_owned(self) -> list[OwnedBundle]: ...

    def check_owned(self, topic: TopicName) -> None: ...

    async def find_owner(self, topic: TopicName) -> TopicOwner: ...

    async def is_leader(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Left:
    """A topic as a visit has left it. Times are of the monotonic clock."""

    owner_epoch: bytes
    # Since when the leases count.
    leases_since: float
    # None: inactive topics are not deleted.
    inactive_since: float | None
    # None: subscriptions do not expire.
    counted: tuple[float, dict[str, float]] | None


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
        """`work_through`: that of `Housekeeping`."""
        self._topics = topics
        self._catalog = catalog
        self._bundles = bundles
        self._find_policies = find_policies
        self._work_through = work_through
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        # Topics in which time goes on from one visit to the next.
        self._left: dict[TopicName, _Left] = {}
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
        slots, seen = asyncio.Semaphore(_AT_A_TIME), set[TopicName]()
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
        self._left = {name: left for name, left in self._left.items() if name in seen}

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
            self._left.pop(name, None)
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
                await self._clock.sleep(_WAIT_S)
            await self._visit_now(name)
        except BrokerError as error:
            _log.info("%s can't be visited now: %s", name, error)
        except Exception:  # noqa: BLE001 (the other topics are visited)
            _log.exception("The visit of %s has failed because of an internal error", name)
        finally:
            slots.release()

    async def _visit_now(self, name: TopicName) -> None:
        left = self._left.pop(name, None)
        self._visiting += 1
        try:
            topic = await self._topics.visit(name)
        finally:
            self._visiting -= 1
        if topic is None:
            return
        leases_since = self._clock.monotonic()
        if left is not None and left.owner_epoch == topic.managed_ledger.previous_owner_epoch:
            leases_since = left.leases_since
            _go_on(topic, left)
        try:
            await self._work_through(topic)
        except Exception:
            await self._topics.end_visit(topic)
            raise
        present = _Left(
            topic.log.owner_epoch,
            leases_since,
            topic.inactive_since if topic.live_settings.current.broker_delete_inactive_topics_enabled else None,
            topic.subscription_expiry.counted,
        )
        has_leases = topic.log.leases.any_active
        if await self._topics.end_visit(topic) and (
            has_leases or present.inactive_since is not None or present.counted is not None
        ):
            self._left[name] = present

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


def _go_on(topic: Topic, left: _Left) -> None:
    """Let the topic's time go on: nobody has opened it since a visit has left it."""
    topic.managed_ledger.leases.count_from(left.leases_since)
    if left.inactive_since is not None:
        topic.inactive_since = left.inactive_since
    if left.counted is not None:
        topic.subscription_expiry.count_on(left.counted)


def may_be_due(node: ManagedLedgerNode, settings: BrokerServiceSettings) -> bool:
    """Return whether a visit may find something to do: in a topic with messages, leases, or an end of its own.
    `settings`: those of the topic."""
    has_more = node.ledgers or node.pages or node.deleting or node.leases or node.state == TopicState.DELETING
    return bool(
        has_more or settings.broker_delete_inactive_topics_enabled or settings.subscription_expiration_time_minutes
    )
