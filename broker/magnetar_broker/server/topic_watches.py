"""Watches of a namespace's topics: clients are notified when topics are created and deleted.

**One follower per namespace** serves all clients of both listeners, with all their patterns. It watches the folders of
the namespace's topics and of its partitioned topics in the metadata store. A watch reports only that it is time to look
(store.py). Then all names are listed and compared with the known ones. Many changes within an interval cause one look.
The partitions of a topic are counted once, and recounted when the folder itself has changed: a growth, and a deletion,
writes into it (`PartitionedTopics`).

**One list per pattern** is shared by its watchers. A watcher remembers the list that it was sent last. A client that
does not read is skipped, and later gets all changes since its list at once.

**The session** with the metadata store may be lost: names are retained, and compared with those of the next session.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from magnetar_broker import paths
from magnetar_broker.broker_session import BrokerSession
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.request_errors import INTERNAL_ERROR
from magnetar_broker.server.topic_list_rules import ListChange, Listing, TopicPattern
from magnetar_broker.server.topic_names import TooManyPartitions, count_partitions, filter_names, list_topic_names
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import Watch
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import NamespaceName, TopicDomain

__all__ = ["TopicWatcher", "TopicWatches"]

_log = logging.getLogger(__name__)
# Different patterns of all clients, and names in their lists.
_MAX_PATTERNS: Final = 1_000
_MAX_LISTED_NAMES: Final = 10_000_000
# Lists that are made at a time for clients that don't watch: each may be long.
_CONCURRENT_LISTS: Final = 4


class TopicWatcher(Protocol):
    """A watch of one client."""

    # The last list that the client was sent; None: its request is not answered yet.
    sent: Listing | None

    @property
    def has_capacity(self) -> bool:
        """Whether the client reads what it is sent."""

    def send(self, change: ListChange) -> None:
        """Send a change of the list `sent`, and set `sent` to the list after it."""


class TopicWatches:
    """The watches of all clients, and lists for clients that don't watch."""

    def __init__(self, get_session: Callable[[], BrokerSession], clock: Clock, interval_s: float) -> None:
        """Several changes within the interval cause one look."""
        self._get_session = get_session
        self._clock = clock
        self._interval_s = interval_s
        self._list_makers = asyncio.Semaphore(_CONCURRENT_LISTS)
        self._followers: dict[NamespaceName, _Follower] = {}
        self._watchers: dict[TopicWatcher, tuple[_Follower, _Watched]] = {}
        # Cancelled tasks of followers without watchers, until they have ended.
        self._ending: set[asyncio.Task[None]] = set()

    async def list_once(self, namespace: NamespaceName, pattern: TopicPattern) -> Listing:
        """Return the current list. Raises `BrokerError`."""
        catalog = self._get_session().catalog
        async with self._list_makers:
            count = partial(count_partitions, catalog)
            return Listing.of(await list_topic_names(catalog, namespace, count, pattern.matches))

    async def is_missing(self, namespace: NamespaceName) -> bool:
        """Return whether the namespace, or its tenant, does not exist. Raises `BrokerError`."""
        try:
            await self._get_session().catalog.get_namespace(namespace)
        except BrokerError as error:
            if error.code == ErrorCode.NOT_FOUND:
                return True
            raise
        return False

    async def watch(self, namespace: NamespaceName, pattern: TopicPattern, watcher: TopicWatcher) -> Listing:
        """Add a watcher and return the current list. Updates begin once the caller has set the watcher's `sent`.

        Raises `BrokerError`, and then the watcher is not added.
        """
        follower = self._followers.get(namespace)
        if follower is None or pattern.key not in follower.watched:
            self._check_patterns()
        if follower is None:
            follower = _Follower(namespace, self._get_session, self._clock, self._interval_s)
            self._followers[namespace] = follower
        watched = follower.add(pattern, watcher)
        self._watchers[watcher] = follower, watched
        try:
            await follower.wait_listed(watched)
            self._check_names()
        except BaseException:
            self.leave(watcher)
            raise
        assert watched.listing is not None
        return watched.listing

    def leave(self, watcher: TopicWatcher) -> None:
        if watcher not in self._watchers:
            return
        follower, watched = self._watchers.pop(watcher)
        follower.remove(watched, watcher)
        if not follower.watched:
            self._followers.pop(follower.namespace, None)
            follower.task.cancel()
            self._ending.add(follower.task)
            follower.task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop all followers. Called when all connections are closed."""
        followers, self._followers = self._followers, {}
        tasks = [*self._ending, *(follower.task for follower in followers.values())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _check_patterns(self) -> None:
        patterns = sum(len(follower.watched) for follower in self._followers.values())
        if patterns >= _MAX_PATTERNS:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{patterns:,} patterns are watched at this broker, the maximum: poll the list instead",
            )

    def _check_names(self) -> None:
        names = sum(follower.listed_names for follower in self._followers.values())
        if names > _MAX_LISTED_NAMES:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"the lists of watched topics at this broker would have {names:,} names, more than the maximum of "
                f"{_MAX_LISTED_NAMES:,}: poll the list instead",
            )


class _Watched:
    """A pattern and its watchers."""

    def __init__(self, pattern: TopicPattern) -> None:
        self.pattern = pattern
        self.watchers: dict[TopicWatcher, None] = {}
        # None: it is not made yet, and the futures of `waiting` wait for it.
        self.listing: Listing | None = None
        self.waiting: list[asyncio.Future[BrokerError | None]] = []

    async def send_updates(self) -> bool:
        """Send the changes to all watchers. Return False if a watcher was skipped, because its client does not read.

        Changes are found once for all watchers with the same last list. Other tasks get their turns between watchers.
        """
        listing, has_sent_all = self.listing, True
        if listing is None:
            return True
        # By the identity of the last list. The list is stored too, so that its identity is not reused.
        changes: dict[int, tuple[Listing, ListChange]] = {}
        for watcher in list(self.watchers):
            sent = watcher.sent
            if sent is None or sent is listing or watcher not in self.watchers:
                continue
            if not watcher.has_capacity:
                has_sent_all = False
                continue
            if id(sent) not in changes:
                changes[id(sent)] = sent, ListChange(sent, listing)
            watcher.send(changes[id(sent)][1])
            await asyncio.sleep(0)
        return has_sent_all

    def wake(self, error: BrokerError | None) -> None:
        """Report that the list is made, or why it can't be."""
        for one in self.waiting:
            if not one.done():
                one.set_result(error)
        self.waiting.clear()


class _Follower:
    """Follows the topics of one namespace."""

    def __init__(
        self, namespace: NamespaceName, get_session: Callable[[], BrokerSession], clock: Clock, interval_s: float
    ) -> None:
        self.namespace = namespace
        self._get_session = get_session
        self._clock = clock
        self._interval_s = interval_s
        # By the key of the pattern.
        self.watched: dict[tuple[str, str], _Watched] = {}
        # The names of which all lists are made.
        self._names: set[str] = set()
        # The number of partitions of each partitioned topic, and the versions of their folders when it was read.
        self._counts: dict[str, int] = {}
        self._counted_at: list[int | None] = []
        # Reasons to look: a folder has changed; a new pattern waits for its list.
        self._is_changed = False
        self._is_requested = False
        # A watcher was skipped.
        self._is_behind = False
        self._looked_at = self._clock.monotonic() - interval_s
        # Set when one of these has become true.
        self._reason = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"topics of {namespace}")

    @property
    def listed_names(self) -> int:
        return sum(len(one.listing.names) for one in self.watched.values() if one.listing is not None)

    def add(self, pattern: TopicPattern, watcher: TopicWatcher) -> _Watched:
        watched = self.watched.setdefault(pattern.key, _Watched(pattern))
        watched.watchers[watcher] = None
        return watched

    def remove(self, watched: _Watched, watcher: TopicWatcher) -> None:
        del watched.watchers[watcher]
        if not watched.watchers:
            del self.watched[watched.pattern.key]
            watched.wake(BrokerError(ErrorCode.NOT_ALLOWED, "the watch was closed before it began"))

    async def wait_listed(self, watched: _Watched) -> None:
        """Return when the pattern has its list. Raises `BrokerError`."""
        if watched.listing is None:
            made: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
            watched.waiting.append(made)
            self._is_requested = True
            self._reason.set()
            if (error := await made) is not None:
                raise error.again()

    async def _run(self) -> None:
        while True:
            try:
                await self._follow(self._get_session())
            except* (BrokerError, MetadataError) as errors:
                _log.info("Can't list the topics of %s now, and retry: %s", self.namespace, errors.exceptions)
                self._fail(ErrorCode.METADATA_ERROR, "the broker has no connection to the metadata store: retry later")
            except* Exception:  # noqa: BLE001 (the follower must go on)
                _log.exception("Can't list the topics of %s, and retry", self.namespace)
                self._fail(ErrorCode.UNKNOWN_ERROR, INTERNAL_ERROR)
            await self._clock.sleep(self._interval_s)

    def _fail(self, code: ErrorCode, text: str) -> None:
        self._wake_all(BrokerError(code, f"can't list the topics of {self.namespace}: {text}"))

    def _wake_all(self, error: BrokerError) -> None:
        for watched in self.watched.values():
            watched.wake(error)

    async def _follow(self, session: BrokerSession) -> None:
        """Follow the topics until the session ends or the metadata store fails."""
        flags = [session.store.watch(folder) for folder in self._folders(paths.TOPICS, paths.PARTITIONED)]
        try:
            async with OrderedTaskGroup() as tasks:
                for flag in flags:
                    tasks.create_task(self._watch(flag))
                tasks.create_task(self._keep_up(session.catalog))
        finally:
            for flag in flags:
                flag.close()

    def _folders(self, *roots: str) -> list[str]:
        return [paths.folder(root, self.namespace, domain) for root in roots for domain in TopicDomain]

    async def _watch(self, flag: Watch) -> None:
        while True:
            await flag.wait()
            self._is_changed = True
            self._reason.set()

    async def _keep_up(self, catalog: Catalog) -> None:
        self._is_changed = True
        while True:
            while (wait_s := self._due_in_s()) > 0:
                self._reason.clear()
                try:
                    async with asyncio.timeout(None if wait_s == math.inf else wait_s):
                        await self._reason.wait()
                except TimeoutError:
                    break
            if self._is_changed or self._is_requested:
                await self._look(catalog)
            await self._send_updates()

    def _due_in_s(self) -> float:
        if self._is_requested:
            return 0.0
        if not (self._is_changed or self._is_behind):
            return math.inf
        return self._looked_at + self._interval_s - self._clock.monotonic()

    async def _look(self, catalog: Catalog) -> None:
        """List all names, and update all lists. If that fails, or there are too many, all lists stay as they were."""
        self._is_changed = self._is_requested = False
        self._looked_at = self._clock.monotonic()
        await catalog.sync()
        # Read before the counts: a later change of a folder is noticed by the next look.
        counted_at = [await catalog.nodes.get_version(folder) for folder in self._folders(paths.PARTITIONED)]
        known = self._counts if counted_at == self._counted_at else {}
        counts: dict[str, int] = {}

        async def count(topic: str) -> int:
            counts[topic] = known[topic] if topic in known else await count_partitions(catalog, topic)
            return counts[topic]

        try:
            names = await list_topic_names(catalog, self.namespace, count)
        except TooManyPartitions as error:
            _log.warning("Clients are not notified of new topics: %s", error)
            self._wake_all(error)
            return
        deleted, new = self._names - names, names - self._names
        watched_now = list(self.watched.values())
        made = [(watched, await _update_listing(watched, names, deleted, new)) for watched in watched_now]
        self._names, self._counts, self._counted_at = names, counts, counted_at
        for watched, listing in made:
            watched.listing = listing
            watched.wake(None)

    async def _send_updates(self) -> None:
        """Send to all watchers what they lack."""
        self._looked_at = self._clock.monotonic()
        has_sent_all = [await watched.send_updates() for watched in list(self.watched.values())]
        self._is_behind = not all(has_sent_all)


async def _update_listing(watched: _Watched, names: set[str], deleted: set[str], new: set[str]) -> Listing:
    """Return the pattern's current list, which is the same object if nothing of it has changed."""
    if watched.listing is None:
        return Listing.of(await filter_names(names, watched.pattern.matches))
    more = await filter_names(new, watched.pattern.matches)
    if not more and deleted.isdisjoint(watched.listing.names):
        return watched.listing
    await asyncio.sleep(0)  # other tasks get their turns between many patterns
    return Listing.of([*(name for name in watched.listing.names if name not in deleted), *more])
