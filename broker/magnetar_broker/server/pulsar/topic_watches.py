"""Clients that are told as topics of a namespace come and go.

**One follower a namespace**, however many clients watch it and with however many patterns. It has two watches of the
metadata store, on the folders in which the namespace's topics and its partitioned topics stand; a watch says only that
it is time to look (store.py), and then all names are listed and held against those that were known. Looking is spread:
many changes within an interval are one look. Now and then it looks unasked: the number of a topic's partitions grows
without any folder being changed.

**One list a pattern**, which its watchers share. A watcher remembers the list that it was told last; so one whose
client does not read is passed over, and later told in one go what has changed since.

**The session** with the metadata store may be lost: names are kept, and held against what the next one lists.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from magnetar_broker import paths
from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.pulsar.replies import topic_update_frame
from magnetar_broker.server.pulsar.topic_list_rules import Listing, TopicPattern, differences
from magnetar_broker.server.pulsar.topic_names import partitions_of, those_meant, topic_names
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import Watch
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.pulsar_pb2 import CommandWatchTopicUpdate
from magnetar_wire.clock import Clock
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import NamespaceName, TopicDomain

if TYPE_CHECKING:
    from magnetar_broker.server.pulsar.connection import PulsarConnection
    from magnetar_broker.server.pulsar.listener_context import Serving

__all__ = ["TopicWatcher", "TopicWatches"]

_log = logging.getLogger(__name__)
# Of all clients of this broker: patterns that differ, and names in their lists.
_MAX_PATTERNS: Final = 1_000
_MAX_KEPT_NAMES: Final = 10_000_000
# Of names in one update.
_UPDATE_BYTES: Final = 262_144
# What a client has not taken yet, before it is passed over.
_MAX_WAITING_BYTES: Final = 1_048_576
# Looked at unasked, and partitions counted anew.
_LOOK_AGAIN_S: Final = 60.0
_DOMAIN: Final = TopicDomain.PERSISTENT


class TopicWatcher:
    """A watch of one client, by the client's number."""

    def __init__(self, connection: PulsarConnection, watcher_id: int) -> None:
        self._connection = connection
        self._watcher_id = watcher_id
        # What the client knows; None: its request is not answered yet.
        self.told: Listing | None = None

    @property
    def has_room(self) -> bool:
        return self._connection.waiting_bytes <= _MAX_WAITING_BYTES

    def tell(self, updates: Sequence[bytes], listing: Listing) -> None:
        for update in updates:
            self._connection.write(topic_update_frame(self._watcher_id, update))
        self.told = listing


class TopicWatches:
    """Of all connections."""

    def __init__(self, serving: Callable[[], Serving], clock: Clock, interval_s: float) -> None:
        """`serving` raises `BrokerError` while nothing is served."""
        self._serving = serving
        self._clock = clock
        self._interval_s = interval_s
        self._followers: dict[NamespaceName, _Follower] = {}
        # Where each watcher is.
        self._places: dict[TopicWatcher, tuple[_Follower, _Watched]] = {}
        # Of those that nobody needs any more, until they have ended.
        self._ending: set[asyncio.Task[None]] = set()

    async def watch(self, namespace: NamespaceName, pattern: TopicPattern, watcher: TopicWatcher) -> Listing:
        """The list from which on it is told; from when its `told` is set. Raises `BrokerError`, and then it is not
        watched."""
        follower = self._followers.get(namespace)
        if follower is None or pattern.text not in follower.watched:
            self._check_patterns()
        if follower is None:
            follower = _Follower(namespace, self._serving, self._clock, self._interval_s)
            self._followers[namespace] = follower
        watched = follower.add(pattern, watcher)
        self._places[watcher] = follower, watched
        try:
            await follower.listed(watched)
            self._check_names()
        except BaseException:
            self.leave(watcher)
            raise
        assert watched.listing is not None
        return watched.listing

    def leave(self, watcher: TopicWatcher) -> None:
        if watcher not in self._places:
            return
        follower, watched = self._places.pop(watcher)
        follower.remove(watched, watcher)
        if not follower.watched:
            del self._followers[follower.namespace]
            follower.task.cancel()
            self._ending.add(follower.task)
            follower.task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """When no connection is left."""
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
                ErrorCode.NOT_ALLOWED, f"{patterns:,} patterns are watched at this broker already: ask now and then"
            )

    def _check_names(self) -> None:
        kept = sum(follower.kept_names for follower in self._followers.values())
        if kept > _MAX_KEPT_NAMES:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"the topics that are watched at this broker would be {kept:,}, and {_MAX_KEPT_NAMES:,} is the most: "
                "ask now and then",
            )


class _Watched:
    """A pattern, and who watches by it."""

    def __init__(self, pattern: TopicPattern) -> None:
        self.pattern = pattern
        self.watchers: dict[TopicWatcher, None] = {}
        # None: it has not been made yet; they wait for it.
        self.listing: Listing | None = None
        self.waiting: list[asyncio.Future[BrokerError | None]] = []

    async def tell(self) -> bool:
        """False: somebody had no room. What has changed since a list is found out once for all who were told that one,
        and others have their turns meanwhile."""
        listing, all_told = self.listing, True
        assert listing is not None
        # By the identities of the lists, which are kept with them so that those stay theirs.
        updates: dict[int, tuple[Listing, list[bytes]]] = {}
        for watcher in list(self.watchers):
            told = watcher.told
            if told is None or told is listing or watcher not in self.watchers:
                continue
            if not watcher.has_room:
                all_told = False
                continue
            if id(told) not in updates:
                updates[id(told)] = told, _updates(told, listing)
            watcher.tell(updates[id(told)][1], listing)
            await asyncio.sleep(0)
        return all_told

    def wake(self, error: BrokerError | None) -> None:
        for one in self.waiting:
            if not one.done():
                one.set_result(error)
        self.waiting.clear()


class _Follower:
    """Of one namespace."""

    def __init__(
        self, namespace: NamespaceName, serving: Callable[[], Serving], clock: Clock, interval_s: float
    ) -> None:
        self.namespace = namespace
        self._serving = serving
        self._clock = clock
        self._interval_s = interval_s
        # By the patterns' texts.
        self.watched: dict[str, _Watched] = {}
        # Which all lists have been made of.
        self._names: set[str] = set()
        # Of partitioned topics: when they were counted, and how many partitions each has.
        self._counts: dict[str, tuple[float, int]] = {}
        # A folder has changed; somebody waits for a list; somebody who had no room is to be told.
        self._changed = False
        self._asked = False
        self._behind = False
        self._looked_at = clock.monotonic() - _LOOK_AGAIN_S
        # One of these is so, since it was looked at last.
        self._prompt = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"topics of {namespace}")

    @property
    def kept_names(self) -> int:
        return sum(len(one.listing.names) for one in self.watched.values() if one.listing is not None)

    def add(self, pattern: TopicPattern, watcher: TopicWatcher) -> _Watched:
        watched = self.watched.setdefault(pattern.text, _Watched(pattern))
        watched.watchers[watcher] = None
        return watched

    def remove(self, watched: _Watched, watcher: TopicWatcher) -> None:
        del watched.watchers[watcher]
        if not watched.watchers:
            del self.watched[watched.pattern.text]
            watched.wake(BrokerError(ErrorCode.NOT_ALLOWED, "the watch was closed before it had begun"))

    async def listed(self, watched: _Watched) -> None:
        """Returns when the pattern has its list. Raises `BrokerError`."""
        if watched.listing is None:
            made: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
            watched.waiting.append(made)
            self._asked = True
            self._prompt.set()
            if (error := await made) is not None:
                raise error.again()

    async def _run(self) -> None:
        while True:
            try:
                await self._follow(self._serving())
            except* (BrokerError, MetadataError) as errors:
                _log.info("the topics of %s can't be listed now: %s", self.namespace, errors.exceptions)
                self._fail(ErrorCode.METADATA_ERROR, "the metadata store, or this broker's session with it, fails now")
            except* Exception:  # noqa: BLE001 (whatever it is, those who watch are still to be told)
                _log.exception("the topics of %s are not listed, and that is tried again", self.namespace)
                self._fail(ErrorCode.UNKNOWN_ERROR, "the broker met an error of its own, of which its log tells")
            await self._clock.sleep(self._interval_s)

    def _fail(self, code: ErrorCode, text: str) -> None:
        for watched in self.watched.values():
            watched.wake(BrokerError(code, f"the topics of {self.namespace} can't be listed: {text}"))

    async def _follow(self, serving: Serving) -> None:
        """Until the session is over, or the metadata store fails."""
        folders = [f"{root}/{self.namespace}/{_DOMAIN}" for root in (paths.TOPICS, paths.PARTITIONED)]
        flags = [serving.store.watch(folder) for folder in folders]
        try:
            async with OrderedTaskGroup() as tasks:
                for flag in flags:
                    tasks.create_task(self._pass_on(flag))
                tasks.create_task(self._keep_up(serving.catalog))
        finally:
            for flag in flags:
                flag.close()

    async def _pass_on(self, flag: Watch) -> None:
        while True:
            await flag.wait()
            self._changed = True
            self._prompt.set()

    async def _keep_up(self, catalog: Catalog) -> None:
        self._changed = True
        while True:
            while (wait_s := self._due_in_s()) > 0:
                self._prompt.clear()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._prompt.wait()
                except TimeoutError:
                    break
            await self._look(catalog)

    def _due_in_s(self) -> float:
        if self._asked:
            return 0.0
        pause_s = self._interval_s if self._changed or self._behind else _LOOK_AGAIN_S
        return self._looked_at + pause_s - self._clock.monotonic()

    async def _look(self, catalog: Catalog) -> None:
        """What is begun and not done leaves all lists as they were."""
        self._changed = self._asked = False
        self._looked_at = self._clock.monotonic()
        counted: dict[str, tuple[float, int]] = {}

        async def count(topic: str) -> int:
            known = self._counts.get(topic)
            if known is None or self._looked_at - known[0] >= _LOOK_AGAIN_S:
                known = self._looked_at, await partitions_of(catalog, topic)
            counted[topic] = known
            return known[1]

        names = await topic_names(catalog, self.namespace, count, lambda name: name.startswith(_DOMAIN))
        gone, new = self._names - names, names - self._names
        watched_now = list(self.watched.values())
        made = [(watched, await _made_anew(watched, names, gone, new)) for watched in watched_now]
        self._names, self._counts = names, counted
        for watched, listing in made:
            watched.listing = listing
            watched.wake(None)
        all_told = [await watched.tell() for watched, _ in made]
        self._behind = not all(all_told)


def _updates(told: Listing, listing: Listing) -> list[bytes]:
    """What whoever was told the one is told of the other; the watcher's number is lacking."""
    return [
        CommandWatchTopicUpdate(
            new_topics=one.new, deleted_topics=one.deleted, topics_hash=listing.hash
        ).SerializePartialToString()
        for one in differences(told.names, listing.names, _UPDATE_BYTES)
    ]


async def _made_anew(watched: _Watched, names: set[str], gone: set[str], new: set[str]) -> Listing:
    if watched.listing is None:
        return Listing.of(await those_meant(names, watched.pattern.means))
    more = await those_meant(new, watched.pattern.means)
    if not more and gone.isdisjoint(watched.listing.names):
        return watched.listing
    await asyncio.sleep(0)  # others have their turns between many patterns
    return Listing.of([*(name for name in watched.listing.names if name not in gone), *more])
