"""The topics that this broker serves: opened once however many ask, closed, deleted, looked after.

A name is in one of three states besides "not here", and goes through them in this order: being opened, loaded, ending.
Whoever asks for a topic that is being opened waits for the same opening, and takes nothing from the others by going
away; whoever asks for one that is ending waits until it has ended, and has it opened anew. So there are never two lives
of a topic in one process.

`TopicStorage` makes and deletes what is stored, and `TopicCatalog` says which topics there may be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicGivenUp
from magnetar_broker.topic.options import TopicOptions
from magnetar_broker.topic.topic import Topic
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicCatalog", "TopicStorage", "Topics"]

_log = logging.getLogger(__name__)
_NOT_MADE: Final = (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_ALLOWED)


class TopicStorage(Protocol):
    async def exists(self, name: TopicName) -> bool: ...

    async def open(self, name: TopicName, *, create: bool, along: Sequence[Change], policies: Policies) -> Topic:
        """`along`: what the metadata store has to agree with if the topic is made. `policies` hold in its namespace.

        Raises `BrokerError`, TOPIC_NOT_FOUND among them. Whoever is cancelled leaves nothing open.
        """

    async def delete(self, name: TopicName) -> None:
        """With its ledgers and cursors. Raises `BrokerError`; may be repeated."""


class TopicCatalog(Protocol):
    async def check_topic(self, name: TopicName) -> Policies:
        """What holds in its namespace. Raises `BrokerError` where there can be no such topic: no such tenant, no such
        namespace."""

    async def creation(self, name: TopicName, *, asked: bool = False) -> Sequence[Change]:
        """What goes with the topic's making. Raises `BrokerError` where it may not be made on first use, or, `asked`
        for by an administrator, not at all."""


@dataclass(slots=True, eq=False)
class _Opening:
    task: asyncio.Task[Topic]
    create: bool
    asked: bool


class Topics:
    def __init__(
        self,
        storage: TopicStorage,
        catalog: TopicCatalog,
        options: TopicOptions,
        clock: Clock,
        counters: BrokerCounters | None = None,
    ) -> None:
        self._storage = storage
        self._catalog = catalog
        self._options = options
        self._clock = clock
        self._counters = counters or BrokerCounters()
        self._loaded: dict[TopicName, Topic] = {}
        self._opening: dict[TopicName, _Opening] = {}
        # What ends them. One task at a time for a name.
        self._ending: dict[TopicName, asyncio.Task[None]] = {}
        self._load_room = asyncio.Semaphore(options.max_concurrent_topic_load_request)
        # Why nothing is opened any more.
        self._closed: BrokerError | None = None

    def loaded(self) -> list[Topic]:
        return list(self._loaded.values())

    def __len__(self) -> int:
        return len(self._loaded)

    def get_loaded(self, name: TopicName) -> Topic | None:
        return self._loaded.get(name)

    async def get(self, name: TopicName, *, create: bool, asked: bool = False) -> Topic:
        """The topic, opened if it is not; made if there is none, `create` is set, and that is allowed on first use.
        `asked`: an administrator wants it made, and then that need not be allowed.

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
                task = asyncio.get_running_loop().create_task(self._open(name, create, asked))
                opening = self._opening[name] = _Opening(task, create, asked)
                task.add_done_callback(lambda done: self._opened(name, done))
            await asyncio.wait([opening.task])
            if opening.task.cancelled():
                raise TopicGivenUp(f"{name} was not opened: ask again")
            error = opening.task.exception()
            if error is None:
                return opening.task.result()
            if (create, asked) > (opening.create, opening.asked) and _code(error) in _NOT_MADE:
                continue  # whoever began the opening may not have it made, or did not want it
            raise _told(name, error)

    async def find(self, name: TopicName, incarnation: str, create: bool) -> Topic:
        """For a producer or consumer: the topic, in the incarnation that it knows if it knows one (TOP-7)."""
        topic = await self.get(name, create=create and not incarnation)
        if incarnation and topic.log.incarnation != incarnation:
            raise BrokerError(
                ErrorCode.INCARNATION_CHANGED,
                f"{name} was deleted and made again: it is {topic.log.incarnation} now, and was {incarnation}; what is "
                "known of the old one says nothing of it",
            )
        return topic

    async def unload(self, name: TopicName, problem: BrokerError | None = None) -> None:
        """Ends the topic's life here, if it has one. Whoever asks for it next has it opened again."""
        problem = problem or TopicGivenUp(f"{name} was unloaded: look it up again")
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening.task])
        topic = self._loaded.get(name)
        if topic is not None:
            self._end(topic, topic.close(problem))
        if (ending := self._ending.get(name)) is not None:
            await asyncio.wait([ending])

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Deletes the topic with all that it has. Raises `BrokerError`: NOT_ALLOWED while somebody is connected to it,
        unless by `force`."""
        while True:
            if self._closed is not None:
                raise self._closed.again()
            if (opening := self._opening.get(name)) is not None:
                await asyncio.wait([opening.task])
            elif (ending := self._ending.get(name)) is not None:
                await asyncio.wait([ending])
            else:
                break
        topic = self._loaded.get(name)
        if topic is not None and topic.in_use and not force:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{name} has {len(topic.producers())} producers and {topic.subscriptions.consumers} consumers: close "
                "them, or delete it by force",
            )
        deleting = self._begin_ending(name, self._delete(name, topic))
        await asyncio.wait([deleting])
        if deleting.cancelled():
            raise TopicGivenUp(f"whether {name} was deleted is not known: ask again")
        if (error := deleting.exception()) is not None:
            raise _told(name, error)

    async def close(self, problem: BrokerError) -> None:
        """All of them, in peace, each within a bounded time."""
        self._closed = problem
        for opening in list(self._opening.values()):
            opening.task.cancel()
        for topic in self.loaded():
            self._end(topic, topic.close(problem))
        await self.wait_ended()

    def give_up(self, problem: BrokerError) -> None:
        """All of them, at once: nobody can say any more whose they are."""
        self._closed = problem
        for opening in list(self._opening.values()):
            opening.task.cancel()
        for topic in self.loaded():
            topic.give_up(problem)

    async def wait_ended(self) -> None:
        """Returns when nothing is being opened, closed or deleted any more."""
        while tasks := [one.task for one in self._opening.values()] + list(self._ending.values()):
            await asyncio.wait(tasks)

    # ── a life's beginning and end ──

    def _opened(self, name: TopicName, task: asyncio.Task[Topic]) -> None:
        """Also where it was cancelled before it began."""
        del self._opening[name]
        _seen(task)

    async def _open(self, name: TopicName, create: bool, asked: bool) -> Topic:
        try:
            async with self._load_room:
                began = self._clock.monotonic()
                async with asyncio.timeout(self._options.topic_load_timeout_seconds):
                    topic = await self._open_stored(name, create, asked)
            if self._closed is not None:
                await topic.close(self._closed)
                raise self._closed.again()
            self._counters.load_seconds.observe(self._clock.monotonic() - began)
            self._loaded[name] = topic
            topic.on_lost = self._lost
            if topic.ended is not None:
                self._lost(topic, topic.ended)
            return topic
        except TimeoutError:
            raise BrokerError(
                ErrorCode.SERVICE_NOT_READY,
                f"{name} could not be opened within {self._options.topic_load_timeout_seconds} s: try again",
            ) from None
        except BaseException as error:
            if _code(error) != ErrorCode.TOPIC_NOT_FOUND:
                self._counters.loads_failed += 1
            raise

    async def _open_stored(self, name: TopicName, create: bool, asked: bool) -> Topic:
        if not name.is_persistent:
            raise BrokerError(ErrorCode.UNSUPPORTED, f"{name}: this broker has no non-persistent topics yet")
        policies = await self._catalog.check_topic(name)
        along: Sequence[Change] = ()
        if create:
            create = not await self._storage.exists(name)
            if create:
                along = await self._catalog.creation(name, asked=asked)
        return await self._storage.open(name, create=create, along=along, policies=policies)

    def _lost(self, topic: Topic, error: BrokerError) -> None:
        self._end(topic, topic.close(error))

    def _end(self, topic: Topic, work: Coroutine[Any, Any, None]) -> None:
        if self._loaded.get(topic.name) is not topic:
            work.close()  # it is ending already
            return
        self._begin_ending(topic.name, work)

    def _begin_ending(self, name: TopicName, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self._loaded.pop(name, None) is not None:
            self._counters.unloads += 1
        task = self._ending[name] = asyncio.get_running_loop().create_task(work)

        def ended(task: asyncio.Task[None]) -> None:
            del self._ending[name]
            _seen(task)

        task.add_done_callback(ended)
        return task

    async def _delete(self, name: TopicName, topic: Topic | None) -> None:
        if topic is not None:
            await topic.close(BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"{name} was deleted"))
        await self._storage.delete(name)


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
    return BrokerError(ErrorCode.UNKNOWN_ERROR, f"{name}: the broker failed at it, and its log says why")
