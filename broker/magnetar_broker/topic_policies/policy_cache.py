"""The policies of any topic, at any broker: fetched from the owner of the events topic, and cached.

All policies of a namespace are fetched together, at most once in `metadata_cache_ttl_seconds`, for all topics that need
them then. The owner answers that nothing has changed if that is so. A namespace without an events topic costs one read
of the metadata store in that time.

A topic must be opened also if the owner of its namespace's events can't be reached: `MAX_WAIT_S` after a fetch has
begun nobody waits for it any more, and the policies that were fetched last are returned, or none if there are none. The
fetch goes on, and its result is used next time. After a failed fetch the next one begins as late as after another one.

The policies of a deleted topic must not apply to a later one of its name, so the topic's incarnation is read each time,
unless the topic is loaded, and so knows it. If that is not possible, the incarnation that was read last counts. A
loaded partition knows its own, and policies have that of the partitioned topic. That is read once: a partitioned topic
is deleted with all of its partitions, so as long as the partition is the same, so is the topic. Until it is read, the
policies of the partition are not known: the one that was read last may be that of an earlier topic.

All non-persistent topics without partitions have the same incarnation, also while they are not loaded: their policies
apply as soon as they are used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topic_policies.policy_log import FindIncarnation
from magnetar_broker.topics.non_persistent.topic_node import NON_PERSISTENT_INCARNATION
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, TopicPoliciesEvent
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["MAX_WAIT_S", "FetchEvents", "FetchedEvents", "TopicPolicyCache"]

_log = logging.getLogger(__name__)
MAX_WAIT_S: Final = 2.0
_MAX_NAMESPACES: Final = 10_000


@dataclass(frozen=True, slots=True)
class FetchedEvents:
    # As of the owner.
    version: bytes = b""
    # The last event of each topic that has policies, by the topic's name.
    by_topic: Mapping[str, TopicPoliciesEvent] = field(default_factory=dict)


# Returns the events of a namespace, or the given ones if they have not changed. Raises `BrokerError`.
FetchEvents = Callable[[NamespaceName, FetchedEvents], Awaitable[FetchedEvents]]


@dataclass(slots=True)
class _Namespace:
    known: FetchedEvents = field(default_factory=FetchedEvents)
    # When the fetch of `known` began, on the monotonic clock; None: nothing was fetched yet.
    known_at: float | None = None
    # The incarnations of topics with events, as they were read last.
    incarnations: dict[str, str] = field(default_factory=dict)
    # The incarnation of a partition with events, and that of its topic, which was read later.
    partitions: dict[TopicName, tuple[str, str]] = field(default_factory=dict)
    # Topics with events whose incarnations could not be read, and were not read before.
    unread: set[str] = field(default_factory=set)
    # When `known` was up to date, or a fetch failed. On the monotonic clock; None: never.
    fetched_at: float | None = None
    # Of the present fetch.
    begun_at: float = 0.0
    fetching: asyncio.Task[None] | None = None


class TopicPolicyCache:
    def __init__(self, fetch: FetchEvents, find_incarnation: FindIncarnation, clock: Clock, max_age_s: float) -> None:
        self._fetch = fetch
        self._find_incarnation = find_incarnation
        self._clock = clock
        self._max_age_s = max_age_s
        # The namespace that was used last is at the end.
        self._namespaces: OrderedDict[NamespaceName, _Namespace] = OrderedDict()

    async def get(self, name: TopicName, incarnation: str = "", since: float | None = None) -> Policies:
        """Return the policies of a topic, of a partition those of its topic. They may be a few seconds old; none, if
        they can't be read now and were not read before. `incarnation`: that of the topic, or of the partition, if this
        broker has it open. `since`: they are fetched after this time, if they can be. Raises nothing."""
        topic = name.base
        if is_system_topic(topic):
            return Policies()
        namespace = await self._find_namespace(topic.namespace_name, since)
        event = namespace.known.by_topic.get(str(topic))
        if event is None or await self._find_event_incarnation(namespace, name, incarnation) != event.incarnation:
            return Policies()
        return event.policies

    def knows(self, name: TopicName, since: float | None = None) -> bool:
        """Return whether `get` has returned the policies of this topic, and not none because they can't be read.
        `since`: whether it has those after this time."""
        if is_system_topic(name.base):
            return True
        namespace = self._namespaces.get(name.namespace_name)
        if namespace is None or namespace.known_at is None or str(name.base) in namespace.unread:
            return False
        return since is None or namespace.known_at >= since

    async def _find_event_incarnation(self, namespace: _Namespace, name: TopicName, incarnation: str) -> str | None:
        """Return the incarnation that an event for the topic must have to apply to it."""
        topic = str(name.base)
        of_partition, found = namespace.partitions.get(name, ("", ""))
        if incarnation and not name.is_partition:
            found = incarnation
        elif not incarnation or of_partition != incarnation:
            read, is_fresh = await self._read_incarnation(namespace, name.base)
            if incarnation and not is_fresh:  # it may be that of an earlier topic of this name
                namespace.unread.add(topic)
            elif incarnation and read is not None:
                namespace.partitions[name] = incarnation, read
            return read
        namespace.incarnations[topic] = found
        namespace.unread.discard(topic)
        return found

    async def _read_incarnation(self, namespace: _Namespace, topic: TopicName) -> tuple[str | None, bool]:
        """Return the topic's incarnation, and whether it could be read; else it is that which was read last."""
        name, is_fresh = str(topic), True
        try:
            namespace.incarnations[name] = await self._find_incarnation(topic)
            namespace.unread.discard(name)
        except BrokerError as error:
            if error.code == ErrorCode.TOPIC_NOT_FOUND:
                namespace.unread.discard(name)
                if topic.is_persistent:
                    namespace.incarnations.pop(name, None)
                else:  # perhaps it is about to be loaded
                    namespace.incarnations[name] = NON_PERSISTENT_INCARNATION
            else:
                is_fresh = False
                if name not in namespace.incarnations:
                    namespace.unread.add(name)
                _log.info("Whether topic %s was recreated can't be read now, its known policies apply: %s", name, error)
        return namespace.incarnations.get(name), is_fresh

    async def _find_namespace(self, name: NamespaceName, since: float | None = None) -> _Namespace:
        namespace = self._namespaces.get(name)
        if namespace is None:
            namespace = self._namespaces[name] = _Namespace()
            if len(self._namespaces) > _MAX_NAMESPACES:
                _, dropped = self._namespaces.popitem(last=False)
                _cancel(dropped)
        self._namespaces.move_to_end(name)
        now = self._clock.monotonic()
        if since is not None and namespace.fetching is not None and namespace.begun_at < since:
            await self._wait_for_fetch(namespace)
        fetched_at = namespace.fetched_at
        if fetched_at is None or now - fetched_at >= self._max_age_s or (since is not None and fetched_at < since):
            if namespace.fetching is None:
                namespace.begun_at = self._clock.monotonic()
                namespace.fetching = asyncio.get_running_loop().create_task(self._refresh(name, namespace))
            await self._wait_for_fetch(namespace)
        return namespace

    async def _wait_for_fetch(self, namespace: _Namespace) -> None:
        left_s = namespace.begun_at + MAX_WAIT_S - self._clock.monotonic()
        if left_s > 0 and namespace.fetching is not None:
            await asyncio.wait([namespace.fetching], timeout=left_s)

    async def _refresh(self, name: NamespaceName, namespace: _Namespace) -> None:
        fetched_at = None
        try:
            known = namespace.known = await self._fetch(name, namespace.known)
            namespace.known_at = namespace.begun_at
            namespace.incarnations = {key: one for key, one in namespace.incarnations.items() if key in known.by_topic}
            namespace.partitions = {
                key: one for key, one in namespace.partitions.items() if str(key.base) in known.by_topic
            }
            fetched_at = namespace.begun_at
        except BrokerError as error:
            _log.warning("The policies of the topics of %s can't be read now, the known ones apply: %s", name, error)
        except Exception:  # noqa: BLE001 (topics are opened in any case)
            _log.exception("The policies of the topics of %s can't be read because of an internal error", name)
        finally:
            namespace.fetched_at = self._clock.monotonic() if fetched_at is None else fetched_at
            namespace.fetching = None

    async def close(self) -> None:
        fetching = [one.fetching for one in self._namespaces.values() if one.fetching is not None]
        for task in fetching:
            task.cancel()
        if fetching:
            await asyncio.wait(fetching)


def _cancel(namespace: _Namespace) -> None:
    if namespace.fetching is not None:
        namespace.fetching.cancel()
