"""The topics that this broker serves: opened once however many ask, closed, deleted, looked after.

A name is in one of three states besides "not here", and goes through them in this order: being opened, loaded, ending.
Whoever asks for a topic that is being opened waits for the same opening, and takes nothing from the others by going
away; whoever asks for one that is ending waits until it has ended, and has it opened anew. So there are never two lives
of a topic in one process. Producers are served as soon as the topic's log is open, while its cursors are still being
opened (`to_publish`); if those can't be opened, or the opening is cancelled, the producers are ended.

`TopicStorage` makes and deletes what is stored, `TopicCatalog` says which topics there may be, and `Ownership` which of
them may be open here: that is looked at before one is opened and after, since its bundle may have gone meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, RequestNotStarted, TopicUnloaded
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.system_topics import heartbeat_broker
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_load_queue import TopicLoadQueue
from magnetar_broker.topics.topics_by_hash import TopicsByHash
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.bundles import BundleRange
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["TopicCatalog", "TopicStorage", "Topics"]

_log = logging.getLogger(__name__)
_NOT_MADE: Final = (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_ALLOWED)


class TopicStorage(Protocol):
    async def prefetch(self, name: TopicName) -> Any:
        """What `open` can go by, read ahead. Raises `BrokerError`."""

    async def open(
        self,
        name: TopicName,
        *,
        create: bool,
        along: Sequence[Change],
        policies: Policies,
        prefetched: Any = None,
        log_opened: Callable[[Topic], object] = lambda _: None,
    ) -> Topic:
        """`along`: what the metadata store has to agree with if the topic is made. `policies` hold in its namespace.
        `log_opened` is called with the topic as soon as it takes messages; where the rest of it can't be opened, it is
        abandoned.

        Raises `BrokerError`, TOPIC_NOT_FOUND among them. Whoever is cancelled leaves nothing open.
        """

    async def claim(self, name: TopicName) -> bytes:
        """Claim the topic without opening it, and return its new owner epoch. Finishes a deletion that was begun.
        Raises `BrokerError`, TOPIC_NOT_FOUND among them."""

    async def delete(self, name: TopicName, owner_epoch: bytes | None = None, incarnation: str = "") -> None:
        """With its ledgers and cursors; with `owner_epoch` only while the topic has it: else `RequestNotStarted`. With
        `incarnation` nothing is done to a later topic of that name. Raises `BrokerError`; may be repeated."""


class TopicCatalog(Protocol):
    async def check_topic(self, name: TopicName) -> Policies:
        """What holds in its namespace. Raises `BrokerError` where there can be no such topic: no such tenant, no such
        namespace."""

    async def prepare_creation(self, name: TopicName, *, explicit: bool = False) -> Sequence[Change]:
        """Return the checks of the transaction that creates the topic. `explicit`: a request creates it; else it is
        created on first use. Raises `BrokerError` if it must not be created."""


@dataclass(slots=True, eq=False)
class _Opening:
    task: asyncio.Task[Topic]
    # The topic, as soon as it takes messages.
    log_opened: asyncio.Future[Topic]
    create: bool
    explicit: bool


class Topics:
    def __init__(
        self,
        storage: TopicStorage,
        catalog: TopicCatalog,
        settings: TopicSettings,
        clock: Clock,
        ownership: Ownership,
        counters: BrokerCounters | None = None,
    ) -> None:
        self._storage = storage
        self._ownership = ownership
        self._catalog = catalog
        self._clock = clock
        self._counters = counters or BrokerCounters()
        self._loaded: dict[TopicName, Topic] = {}
        self._opening: dict[TopicName, _Opening] = {}
        # What ends them. One task at a time for a name.
        self._ending: dict[TopicName, asyncio.Task[None]] = {}
        # Those among them that were loaded: they may have to be given up before they have ended in peace.
        self._leaving: dict[TopicName, Topic] = {}
        # What deletes what is stored of them.
        self._deleting: dict[asyncio.Task[None], None] = {}
        self._given_up = False
        # All that are in one of these states.
        self._by_hash = TopicsByHash()
        self._loading = TopicLoadQueue(settings, clock)
        # Why nothing is opened any more.
        self._closed: BrokerError | None = None

    def loaded(self) -> list[Topic]:
        return list(self._loaded.values())

    def __len__(self) -> int:
        return len(self._loaded)

    def get_loaded(self, name: TopicName) -> Topic | None:
        return self._loaded.get(name)

    async def get(self, name: TopicName, *, create: bool, explicit: bool = False, to_publish: bool = False) -> Topic:
        """Return the topic. Open it if it is not loaded. Create it if it does not exist and `create` is set.

        `explicit`: a request creates the topic, so its creation on first use need not be allowed. `to_publish`: return
        as soon as the log is open.

        Raises `BrokerError`.
        """
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
                if not self._may_be_here(name):
                    await self._ownership.ensure_owned(name)
                    continue
                task = asyncio.get_running_loop().create_task(self._open(name, create, explicit))
                log_opened: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
                opening = self._opening[name] = _Opening(task, log_opened, create, explicit)
                self._by_hash.add(name)
                task.add_done_callback(lambda done: self._opened(name, done))
            if to_publish and (topic := await _log_of(opening)) is not None:
                return topic
            await asyncio.wait([opening.task])
            if opening.task.cancelled():
                raise TopicUnloaded(f"{name} was not opened: try again")
            error = opening.task.exception()
            if error is None:
                return opening.task.result()
            if (create, explicit) > (opening.create, opening.explicit) and _code(error) in _NOT_MADE:
                continue  # whoever began the opening may not have it made, or did not want it
            raise _told(name, error)

    async def find(self, name: TopicName, incarnation: str, create: bool, *, to_publish: bool = False) -> Topic:
        """For a producer or consumer: the topic, in the incarnation that it knows if it knows one (TOP-7)."""
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
        """Ends the topic's life here, if it has one. Whoever asks for it next has it opened again."""
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
        """Deletes the topic with all that it has; `only_if` says at the last moment whether it may go, of the topic as
        it is loaded. Raises `BrokerError`: NOT_ALLOWED while somebody is connected to it, unless by `force`;
        `RequestNotStarted` where it may not go, or is another broker's.

        Whose it is is read afresh: a broker that has lost it, and not noticed, knows nothing of who is connected.
        """
        # The topic as it was loaded when that was read; so it is from before.
        confirmed: object = self
        try:
            while True:
                if self._closed is not None:
                    raise self._closed.again()
                if (opening := self._opening.get(name)) is not None:
                    await asyncio.wait([opening.task])
                elif (ending := self._ending.get(name)) is not None:
                    await asyncio.wait([ending])
                elif not self._may_be_here(name):
                    await self._ownership.ensure_owned(name)
                elif (topic := self._loaded.get(name)) is not confirmed:
                    await self._ownership.verify_owned(name)
                    confirmed = topic
                else:
                    break
        except TopicUnloaded as elsewhere:
            raise RequestNotStarted(str(elsewhere)) from elsewhere
        if only_if is not None and not only_if(topic):
            raise RequestNotStarted(f"{name} was not deleted: it was used or closed in the meantime")
        if topic is not None and topic.in_use and not force:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{name} has {len(topic.producers())} producers and {topic.subscriptions.consumers} "
                "consumers: close them, or delete it with force",
            )
        deleting = self._begin_ending(name, self._delete(name, topic, force))
        await asyncio.wait([deleting])
        if deleting.cancelled():
            raise TopicUnloaded(f"unknown whether {name} was deleted: try again")
        if (error := deleting.exception()) is not None:
            raise _told(name, error)

    async def unload_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """Closes those of one bundle gracefully, each within a bounded time; returns when none is open, being opened or
        being deleted any more. `Ownership` lets none be opened meanwhile.

        Producers go on until the cursors of all are saved, which takes most of the time: another broker serves no
        topic of the bundle before the last one is closed.
        """
        self._break_off(namespace, bundle)
        await asyncio.gather(*(topic.close_consumers(problem) for topic in self._loaded_within(namespace, bundle)))
        for topic in self._loaded_within(namespace, bundle):
            self._end(topic, topic.close(problem))
        while tasks := self._under_way_within(namespace, bundle):
            await asyncio.wait(tasks)

    def abort_bundle_topics(self, namespace: NamespaceName, bundle: BundleRange, problem: BrokerError) -> None:
        """Those of one bundle, at once: somebody else may have them already."""
        self._break_off(namespace, bundle)
        for name in self._within(namespace, bundle):
            if (topic := self._loaded.get(name) or self._leaving.get(name)) is not None:
                topic.abort(problem)

    def _break_off(self, namespace: NamespaceName, bundle: BundleRange) -> None:
        for name in self._within(namespace, bundle):
            if (opening := self._opening.get(name)) is not None:
                opening.task.cancel()

    def _loaded_within(self, namespace: NamespaceName, bundle: BundleRange) -> list[Topic]:
        return [self._loaded[name] for name in self._within(namespace, bundle) if name in self._loaded]

    def _under_way_within(self, namespace: NamespaceName, bundle: BundleRange) -> list[asyncio.Task[Any]]:
        names = self._within(namespace, bundle)
        opening = [self._opening[name].task for name in names if name in self._opening]
        return opening + [self._ending[name] for name in names if name in self._ending]

    def _within(self, namespace: NamespaceName, bundle: BundleRange) -> list[TopicName]:
        """A broker's heartbeat is that broker's, whoever has its bundle."""
        names = self._by_hash.find_in_bundle(namespace.tenant, namespace.namespace, bundle)
        return [name for name in names if heartbeat_broker(name) is None]

    async def close(self, problem: BrokerError) -> None:
        """All of them, in peace, each within a bounded time."""
        self._closed = problem
        for opening in list(self._opening.values()):
            opening.task.cancel()
        for topic in self.loaded():
            self._end(topic, topic.close(problem))
        await self.wait_ended()

    def give_up(self, problem: BrokerError) -> None:
        """All of them, at once: nobody can say any more whose they are. Deletions are broken off. As after a kill, the
        next deletion or opening of the topic goes on with them, by this broker's next session or another broker."""
        self._closed, self._given_up = problem, True
        for deleting in list(self._deleting):
            deleting.cancel()
        for opening in list(self._opening.values()):
            opening.task.cancel()
        for topic in [*self.loaded(), *self._leaving.values()]:
            topic.abort(problem)

    async def wait_ended(self) -> None:
        """Returns when nothing is being opened, closed or deleted any more."""
        while tasks := [one.task for one in self._opening.values()] + list(self._ending.values()):
            await asyncio.wait(tasks)

    # ── a life's beginning and end ──

    def _opened(self, name: TopicName, task: asyncio.Task[Topic]) -> None:
        """Also where it was cancelled before it began."""
        del self._opening[name]
        self._may_be_gone(name)
        _seen(task)

    def _may_be_gone(self, name: TopicName) -> None:
        if name not in self._loaded and name not in self._opening and name not in self._ending:
            self._by_hash.discard(name)

    async def _open(self, name: TopicName, create: bool, explicit: bool) -> Topic:
        try:
            async with self._loading.place(name):
                began = self._clock.monotonic()
                topic = await self._open_stored(name, create, explicit)
            if (problem := self._closed or self._why_not_here(name)) is not None:
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

    async def _open_stored(self, name: TopicName, create: bool, explicit: bool) -> Topic:
        if not name.is_persistent:
            raise BrokerError(
                ErrorCode.UNSUPPORTED, f"{name}: non-persistent topics are not supported yet: use a persistent topic"
            )
        # Nothing is done before the catalog has agreed; what is read meanwhile may be stale, as any read may be.
        policies, prefetched = await asyncio.gather(self._catalog.check_topic(name), self._storage.prefetch(name))
        try:
            # Nearly always there is one: whether is not asked apart.
            return await self._storage.open(
                name, create=False, along=(), policies=policies, prefetched=prefetched, log_opened=self._log_opened
            )
        except BrokerError as error:
            if not create or error.code != ErrorCode.TOPIC_NOT_FOUND:
                raise
        along = await self._catalog.prepare_creation(name, explicit=explicit)
        return await self._storage.open(name, create=True, along=along, policies=policies, log_opened=self._log_opened)

    def _log_opened(self, topic: Topic) -> None:
        if self._closed is None and self._may_be_here(topic.name):
            opening = self._opening[topic.name]
            if opening.log_opened.done():
                # The first attempt failed after its log was open, and its topic is abandoned.
                opening.log_opened = asyncio.get_running_loop().create_future()
            opening.log_opened.set_result(topic)

    def _may_be_here(self, name: TopicName) -> bool:
        return self._why_not_here(name) is None

    def _why_not_here(self, name: TopicName) -> BrokerError | None:
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
            work.close()  # it is ending already
            return
        self._begin_ending(topic.name, work)

    def _begin_ending(self, name: TopicName, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if (topic := self._loaded.pop(name, None)) is not None:
            self._counters.unloads += 1
            self._leaving[name] = topic
        task = self._ending[name] = asyncio.get_running_loop().create_task(work)
        self._by_hash.add(name)

        def ended(task: asyncio.Task[None]) -> None:
            del self._ending[name]
            self._leaving.pop(name, None)
            self._may_be_gone(name)
            _seen(task)

        task.add_done_callback(ended)
        return task

    async def _delete(self, name: TopicName, topic: Topic | None, force: bool) -> None:
        """That nobody uses it is known of its life here. It is the topic's from before it was confirmed whose the topic
        is until the deletion is begun; so nobody opened it elsewhere meanwhile."""
        if topic is not None:
            await topic.close(BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"{name} was deleted"))
        if self._given_up:
            raise TopicUnloaded(f"unknown whether {name} was deleted: try again")
        deleting = asyncio.get_running_loop().create_task(self._delete_stored(name, topic, force))
        self._deleting[deleting] = None
        deleting.add_done_callback(self._deleting.pop)
        await asyncio.wait([deleting])
        if deleting.cancelled():
            raise TopicUnloaded(f"unknown whether {name} was deleted: try again")
        deleting.result()

    async def _delete_stored(self, name: TopicName, topic: Topic | None, force: bool) -> None:
        owner_epoch: bytes | None = None
        incarnation = ""
        if topic is not None:
            owner_epoch, incarnation = topic.log.owner_epoch, topic.log.incarnation
        elif not force:
            try:
                owner_epoch = await self._storage.claim(name)
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_NOT_FOUND:
                    raise
                return  # whoever deleted it before has not finished, or was faster
            try:
                await self._ownership.verify_owned(name)
            except TopicUnloaded as elsewhere:
                raise RequestNotStarted(str(elsewhere)) from elsewhere
        try:
            await self._storage.delete(name, None if force else owner_epoch, incarnation)
        except RequestNotStarted:
            self._ownership.reverify(name)
            raise


async def _log_of(opening: _Opening) -> Topic | None:
    """The topic, once its log is open; None: wait for the end of the opening."""
    await asyncio.wait([opening.log_opened, opening.task], return_when=asyncio.FIRST_COMPLETED)
    if opening.task.done() or opening.log_opened.result().ended is not None:
        return None
    return opening.log_opened.result()


def _seen(task: asyncio.Task[Any]) -> None:
    """Its error is known to whoever waited, if anybody did."""
    if not task.cancelled():
        task.exception()


def _code(error: BaseException) -> int:
    return error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_ERROR


def _told(name: TopicName, error: BaseException) -> BrokerError:
    if isinstance(error, BrokerError):
        return error.again()
    _log.error("%s: %s", name, error, exc_info=error)
    return BrokerError(ErrorCode.UNKNOWN_ERROR, f"{name}: the broker failed because of an internal error: see its log")
