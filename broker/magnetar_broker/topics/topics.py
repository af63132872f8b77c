"""The topics that this broker serves, by name: opened once for all requests, closed and deleted.

A topic that is not loaded goes through three states: opening, loaded, ending. All requests for an opening topic wait
for the same opening, which goes on if one of them is cancelled. Requests for an ending topic wait until it has ended,
and reopen it. So a process never has two `Topic` objects of one name in use. Producers connect as soon as the topic's
log is open, while its cursors are being opened (`to_publish`). If those can't be opened, or the opening is cancelled,
the producers are closed.

This module holds the states. `TopicOpener` opens one topic and `TopicDeleter` deletes one. `Ownership` checks whether
this broker owns a topic: before and after the opening, as the bundle may be released in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, RequestNotStarted, TopicUnloaded
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.system_topics import heartbeat_broker, is_events_topic
from magnetar_broker.topics.interface import TopicCatalog, TopicStorage
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_deleter import TopicDeleter, create_unknown_deletion
from magnetar_broker.topics.topic_load_queue import TopicLoadQueue
from magnetar_broker.topics.topic_opener import OPEN_EXISTING, Creation, TopicOpener
from magnetar_broker.topics.topics_by_hash import TopicsByHash
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.bundles import BundleRange
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["Topics"]

_log = logging.getLogger(__name__)
_NOT_CREATED: Final = (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_ALLOWED)


@dataclass(slots=True, eq=False)
class _Opening:
    task: asyncio.Task[Topic]
    # The topic, as soon as it accepts messages.
    log_opened: asyncio.Future[Topic]
    creation: Creation


class Topics:
    def __init__(
        self,
        storage: TopicStorage,
        catalog: TopicCatalog,
        settings: TopicSettings,
        clock: Clock,
        ownership: Ownership,
        counters: BrokerCounters | None = None,
        read_topic_policies: Callable[[TopicName], Awaitable[Policies]] | None = None,
        non_persistent: TopicStorage | None = None,
    ) -> None:
        """`read_topic_policies` returns those of one topic, which override its namespace's; it raises nothing.
        `non_persistent` opens non-persistent topics; None: there are none."""
        self._opener = TopicOpener(storage, non_persistent, catalog, settings, read_topic_policies)
        self._deleter = TopicDeleter(self._opener.get_storage, ownership)
        self.read_own_policies = self._opener.read_own_policies
        self._ownership = ownership
        self._clock = clock
        self._counters = counters or BrokerCounters()
        self._loaded: dict[TopicName, Topic] = {}
        self._opening: dict[TopicName, _Opening] = {}
        # Tasks that close or delete topics, at most one for each name.
        self._ending: dict[TopicName, asyncio.Task[None]] = {}
        # Topics that are being closed: they may have to be aborted before that is finished.
        self._closing: dict[TopicName, Topic] = {}
        # The names in any of these states.
        self._by_hash = TopicsByHash()
        self._loading = TopicLoadQueue(settings, clock)
        # For topics of policy events: other topics that are being opened wait for them, and may have all slots of
        # the other queue.
        self._loading_events = TopicLoadQueue(settings, clock)
        # Topics that were opened for a visit, and not requested by a client since.
        self._visited: set[TopicName] = set()
        # Why no topic is opened any more.
        self._closed: BrokerError | None = None

    def loaded(self) -> list[Topic]:
        return list(self._loaded.values())

    def __len__(self) -> int:
        return len(self._loaded)

    def is_known(self, name: TopicName) -> bool:
        """Whether the topic is loaded, being opened or being closed."""
        return name in self._loaded or name in self._opening or name in self._ending

    @property
    def openings(self) -> int:
        """The number of topics that are being opened, or wait for it."""
        return len(self._opening)

    def get_loaded(self, name: TopicName) -> Topic | None:
        self._visited.discard(name)
        return self._loaded.get(name)

    async def visit(self, name: TopicName) -> Topic | None:
        """Open a topic for a visit (topic_visits.py), which `end_visit` ends. None: it was loaded already, or a client
        has requested it. Raises `BrokerError`."""
        if self.is_known(name):
            return None
        self._ownership.check_owned(name)
        self._visited.add(name)
        try:
            topic = await self._open_once(name, OPEN_EXISTING)
        except BaseException:
            self._visited.discard(name)
            raise
        return topic if name in self._visited else None

    async def end_visit(self, topic: Topic) -> bool:
        """Unload the topic, and return True. If a client has requested it in the meantime, return False."""
        name = topic.name
        if name not in self._visited or topic.in_use or self._loaded.get(name) is not topic:
            self._visited.discard(name)
            return False
        self._visited.discard(name)
        await self.unload(name, TopicUnloaded(f"{name} was closed, since nobody used it: look it up again"))
        return True

    async def create(self, name: TopicName, properties: Mapping[str, bytes]) -> Topic:
        """Create the topic with these properties, in one step, if it does not exist. Return it. If another request
        created it, it lacks them. Raises `BrokerError`."""
        self._visited.discard(name)
        creation = Creation(is_allowed=True, is_explicit=True, properties=properties)
        return await self._open_once(name, creation)

    async def get(self, name: TopicName, *, create: bool, explicit: bool = False, to_publish: bool = False) -> Topic:
        """Return the topic. Open it if it is not loaded. Create it if it does not exist and `create` is set.

        `explicit`: a request creates the topic, so its creation on first use need not be allowed. `to_publish`: return
        as soon as the log is open.

        Raises `BrokerError`.
        """
        self._visited.discard(name)
        creation = Creation(is_allowed=create, is_explicit=explicit)
        return await self._open_once(name, creation, to_publish=to_publish)

    async def _open_once(self, name: TopicName, creation: Creation, *, to_publish: bool = False) -> Topic:
        """Return the topic. If it is not loaded, open it, or wait for the opening in progress."""
        while True:
            if self._closed is not None:
                raise self._closed.again()
            if (topic := self._loaded.get(name)) is not None:
                return topic
            if (ending := self._ending.get(name)) is not None:
                await asyncio.wait([ending])
                continue
            opening = self._opening.get(name)
            if opening is None:
                if not self._is_owned(name):
                    await self._ownership.ensure_owned(name)
                    continue
                task = asyncio.get_running_loop().create_task(self._open(name, creation))
                log_opened: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
                opening = self._opening[name] = _Opening(task, log_opened, creation)
                self._by_hash.add(name)
                task.add_done_callback(lambda done: self._opened(name, done))
            if to_publish and (topic := await _wait_log_opened(opening)) is not None:
                return topic
            await asyncio.wait([opening.task])
            if opening.task.cancelled():
                raise TopicUnloaded(f"{name} was not opened: try again")
            error = opening.task.exception()
            if error is None:
                return opening.task.result()
            if creation.exceeds(opening.creation) and _code(error) in _NOT_CREATED:
                continue  # the request that began the opening did not create the topic
            raise _to_broker_error(name, error)

    async def find(self, name: TopicName, incarnation: str, create: bool, *, to_publish: bool = False) -> Topic:
        """Return the topic for a producer or consumer. Raises `BrokerError` if it has another incarnation than the
        client knows (TOP-7); empty: the client knows none."""
        topic = await self.get(name, create=create and not incarnation, to_publish=to_publish)
        if incarnation and topic.log.incarnation != incarnation:
            raise BrokerError(
                ErrorCode.INCARNATION_CHANGED,
                f"{name} was deleted and recreated: its incarnation was {incarnation}, and is "
                f"{topic.log.incarnation}; positions and sequence ids of the old topic are not valid in the "
                "new one",
            )
        return topic

    async def unload(self, name: TopicName, problem: BrokerError | None = None) -> None:
        """Close the topic if it is loaded. The next request reopens it."""
        problem = problem or TopicUnloaded(f"{name} was unloaded: look it up again")
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening.task])
        topic = self._loaded.get(name)
        if topic is not None:
            self._end(topic, topic.close(problem))
        if (ending := self._ending.get(name)) is not None:
            await asyncio.wait([ending])

    async def delete(
        self, name: TopicName, *, force: bool, only_if: Callable[[Topic | None], bool] | None = None
    ) -> None:
        """Delete the topic with its ledgers and cursors. `only_if` is called at the last moment with the loaded topic,
        and returns whether to delete it. Raises `BrokerError`: NOT_ALLOWED if clients are connected, unless `force`;
        `RequestNotStarted` if `only_if` returns False, or another broker owns the topic.

        The owner is read from the metadata store: a broker that has lost the topic, and does not know yet, does not
        know which clients are connected.
        """
        # The topic that was loaded when the owner was read.
        confirmed: object = self
        try:
            while True:
                if self._closed is not None:
                    raise self._closed.again()
                if (opening := self._opening.get(name)) is not None:
                    await asyncio.wait([opening.task])
                elif (ending := self._ending.get(name)) is not None:
                    await asyncio.wait([ending])
                elif not self._is_owned(name):
                    await self._ownership.ensure_owned(name)
                elif (topic := self._loaded.get(name)) is not confirmed:
                    await self._ownership.verify_owned(name)
                    confirmed = topic
                else:
                    break
        except TopicUnloaded as not_owned:
            raise RequestNotStarted(str(not_owned)) from not_owned
        if only_if is not None and not only_if(topic):
            raise RequestNotStarted(f"{name} was not deleted: it was used or closed in the meantime")
        if topic is not None and topic.in_use and not force:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{name} has {len(topic.producers.connected())} producers and {topic.subscriptions.consumers} "
                "consumers: close them, or delete it with force",
            )
        deleting = self._begin_ending(name, self._deleter.delete(name, topic, force))
        await asyncio.wait([deleting])
        if deleting.cancelled():
            raise create_unknown_deletion(name)
        if (error := deleting.exception()) is not None:
            raise _to_broker_error(name, error)

    async def unload_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """Close the topics of a bundle gracefully, each within a bounded time. Return when none is open, being opened
        or being deleted. `Ownership` lets none be opened in the meantime.

        Producers go on until all cursors are saved, which takes most of the time: another broker serves no topic of
        the bundle before the last one is closed.
        """
        self._cancel_openings(namespace, bundle)
        await asyncio.gather(*(topic.close_consumers(problem) for topic in self._find_loaded(namespace, bundle)))
        for topic in self._find_loaded(namespace, bundle):
            self._end(topic, topic.close(problem))
        while tasks := self._find_tasks(namespace, bundle):
            await asyncio.wait(tasks)

    def abort_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """Close the topics of a bundle at once: another broker may have opened them already."""
        self._cancel_openings(namespace, bundle)
        for name in self._find_names(namespace, bundle):
            if (topic := self._loaded.get(name) or self._closing.get(name)) is not None:
                topic.abort(problem)

    def _cancel_openings(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        for name in self._find_names(namespace, bundle):
            if (opening := self._opening.get(name)) is not None:
                opening.task.cancel()

    def _find_loaded(self, namespace: NamespaceName, bundle: BundleRange) -> list[Topic]:
        return [self._loaded[name] for name in self._find_names(namespace, bundle) if name in self._loaded]

    def _find_tasks(self, namespace: NamespaceName, bundle: BundleRange) -> list[asyncio.Task[Any]]:
        names = self._find_names(namespace, bundle)
        opening = [self._opening[name].task for name in names if name in self._opening]
        return opening + [self._ending[name] for name in names if name in self._ending]

    def _find_names(self, namespace: NamespaceName, bundle: BundleRange) -> list[TopicName]:
        """Return the names of a bundle's topics. The broker's heartbeat topic does not move with its bundle."""
        names = self._by_hash.find_in_bundle(namespace.tenant, namespace.namespace, bundle)
        return [name for name in names if heartbeat_broker(name) is None]

    async def close(self, problem: BrokerError) -> None:
        """Close all topics gracefully, each within a bounded time."""
        self._closed = problem
        for opening in list(self._opening.values()):
            opening.task.cancel()
        for topic in self.loaded():
            self._end(topic, topic.close(problem))
        await self.wait_ended()

    def abort(self, problem: BrokerError) -> None:
        """Close all topics at once, because their owner is unknown. Deletions are cancelled. As after a crash, the next
        deletion or opening of the topic finishes them, in this broker's next session or at another broker."""
        self._closed = problem
        self._deleter.abort()
        for opening in list(self._opening.values()):
            opening.task.cancel()
        for topic in [*self.loaded(), *self._closing.values()]:
            topic.abort(problem)

    async def wait_ended(self) -> None:
        """Return when no topic is being opened, closed or deleted."""
        while tasks := [one.task for one in self._opening.values()] + list(self._ending.values()):
            await asyncio.wait(tasks)

    # Opening and ending.

    def _opened(self, name: TopicName, task: asyncio.Task[Topic]) -> None:
        """The opening has ended, or was cancelled before it began."""
        del self._opening[name]
        self._discard_ended(name)
        _retrieve_error(task)

    def _discard_ended(self, name: TopicName) -> None:
        if not self.is_known(name):
            self._by_hash.discard(name)

    async def _open(self, name: TopicName, creation: Creation) -> Topic:
        own_policies = self._opener.begin_reading_policies(name)
        loading = self._loading_events if is_events_topic(name) else self._loading
        try:
            async with loading.slot(name):
                began = self._clock.monotonic()
                topic = await self._opener.open(name, creation, own_policies, self._log_opened)
            if (problem := self._closed or self._find_ownership_error(name)) is not None:
                await topic.close(problem)
                raise problem.again()
            self._counters.load_seconds.observe(self._clock.monotonic() - began)
            self._loaded[name] = topic
            topic.on_lost = self._lost
            if topic.ended is not None:
                self._lost(topic, topic.ended)
            return topic
        except BaseException as error:
            if _code(error) != ErrorCode.TOPIC_NOT_FOUND:
                self._counters.loads_failed += 1
            raise
        finally:
            if own_policies is not None:
                own_policies.cancel()

    def _log_opened(self, topic: Topic) -> None:
        if self._closed is None and self._is_owned(topic.name):
            opening = self._opening[topic.name]
            if opening.log_opened.done():
                # The first attempt failed after its log was open, and its topic is abandoned.
                opening.log_opened = asyncio.get_running_loop().create_future()
            opening.log_opened.set_result(topic)

    def _is_owned(self, name: TopicName) -> bool:
        return self._find_ownership_error(name) is None

    def _find_ownership_error(self, name: TopicName) -> BrokerError | None:
        try:
            self._ownership.check_owned(name)
        except TopicUnloaded as error:
            return error
        return None

    def _lost(self, topic: Topic, error: BrokerError) -> None:
        self._ownership.reverify(topic.name)
        self._end(topic, topic.close(error))

    def _end(self, topic: Topic, work: Coroutine[Any, Any, None]) -> None:
        if self._loaded.get(topic.name) is not topic:
            work.close()  # the topic is ending already
            return
        self._begin_ending(topic.name, work)

    def _begin_ending(self, name: TopicName, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if (topic := self._loaded.pop(name, None)) is not None:
            self._counters.unloads += 1
            self._closing[name] = topic
        task = self._ending[name] = asyncio.get_running_loop().create_task(work)
        self._by_hash.add(name)

        def ended(task: asyncio.Task[None]) -> None:
            del self._ending[name]
            self._closing.pop(name, None)
            self._discard_ended(name)
            _retrieve_error(task)

        task.add_done_callback(ended)
        return task


async def _wait_log_opened(opening: _Opening) -> Topic | None:
    """Return the topic when its log is open. None: wait for the end of the opening."""
    await asyncio.wait([opening.log_opened, opening.task], return_when=asyncio.FIRST_COMPLETED)
    if opening.task.done() or opening.log_opened.result().ended is not None:
        return None
    return opening.log_opened.result()


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Let asyncio not log the error: the requests that wait for the task raise it."""
    if not task.cancelled():
        task.exception()


def _code(error: BaseException) -> int:
    return error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_ERROR


def _to_broker_error(name: TopicName, error: BaseException) -> BrokerError:
    if isinstance(error, BrokerError):
        return error.again()
    _log.error("%s: %s", name, error, exc_info=error)
    return BrokerError(ErrorCode.UNKNOWN_ERROR, f"{name}: the broker failed because of an internal error: see its log")
