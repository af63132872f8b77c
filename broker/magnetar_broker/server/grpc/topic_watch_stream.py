"""One `watch_topics` stream: the topics of namespaces that match a client's patterns, and their changes.

Requests for lists run in tasks. One task sends: a piece of each list or change in turn, which is encoded when it is its
turn, so a client that does not read holds no encoded lists. It gets the next change only when it has read the last.
Requests are not read while too many refusals wait to be sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_broker.errors import BrokerError
from magnetar_broker.server.context import ServerContext
from magnetar_broker.server.request_errors import as_broker_error
from magnetar_broker.server.topic_list_rules import ListChange, Listing, TopicPattern, UnusablePattern, split_names
from magnetar_protos.broker_pb2 import (
    ErrorCode,
    Problem,
    TopicsMode,
    TopicsUpdate,
    WatchTopics,
    WatchTopicsAnswer,
    WatchTopicsRequest,
)
from magnetar_wire.topic_name import NamespaceName, TopicDomain
from magnetar_wire.transport import Code, Refusal, Stream, TransportError

__all__ = ["TopicWatchStream"]

_ALL: Final = ".*"
_MAX_PARTS: Final = 1_000
# Refusals that are not sent, above which nothing is read.
_MAX_REFUSALS: Final = 100
_DOMAINS: Final = {
    TopicsMode.TOPICS_PERSISTENT: TopicDomain.PERSISTENT,
    TopicsMode.TOPICS_NON_PERSISTENT: TopicDomain.NON_PERSISTENT,
    TopicsMode.TOPICS_ALL: None,
}


class _StreamWatcher:
    """Implements `TopicWatcher`."""

    def __init__(self, request: WatchTopics, wake: Callable[[], None]) -> None:
        self.request = request
        self.sent: Listing | None = None
        # What is left to be sent.
        self.updates: Iterator[TopicsUpdate] | None = None
        self.beginning: asyncio.Task[None] | None = None
        self._wake = wake

    @property
    def has_capacity(self) -> bool:
        return self.updates is None

    def begin(self, listing: Listing, time_ms: int, *, namespace_missing: bool) -> None:
        """Send the list, unless the client has it."""
        self.sent = listing
        self.updates = _list_updates(self.request, listing, time_ms, namespace_missing)
        self._wake()

    def send(self, change: ListChange) -> None:
        self.sent = change.listing
        self.updates = _change_updates(self.request.watch_id, change)
        self._wake()


class TopicWatchStream:
    """Implements `client_streams.ClientStream`."""

    def __init__(self, stream: Stream, server: ServerContext) -> None:
        self._stream = stream
        self._server = server
        # By the client's ids.
        self._watchers: dict[int, _StreamWatcher] = {}
        self._refusals: deque[TopicsUpdate] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._end_requested = asyncio.Event()
        # Set when there is something to send; and when refusals were sent.
        self._to_send = asyncio.Event()
        self._sent = asyncio.Event()

    def end(self) -> None:
        """The client has to watch at another broker, or in another session of this one."""
        self._end_requested.set()

    async def serve(self) -> None:
        """Return when the client has ended the stream, or after `end`. Raises `Refusal`."""
        loop = asyncio.get_running_loop()
        working = [loop.create_task(work) for work in (self._receive(), self._send(), self._wait_end())]
        try:
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for task in working:
                if task.done():
                    task.result()
        finally:
            for watch_id in list(self._watchers):
                self._end_watch(watch_id)
            tasks = [*working, *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in working:
                task.cancelled() or task.exception()  # retrieved, so that asyncio does not log it

    async def _wait_end(self) -> None:
        await self._end_requested.wait()

    # Requests.

    async def _receive(self) -> None:
        while (message := await self._stream.receive()) is not None:
            request = _decode(message)
            for watch in request.watch:
                self._begin_watch(watch)
            for watch_id in request.close:
                self._end_watch(watch_id)
            while len(self._refusals) > _MAX_REFUSALS:
                self._sent.clear()
                await self._sent.wait()

    def _begin_watch(self, request: WatchTopics) -> None:
        if request.watch_id in self._watchers:
            raise Refusal(Code.INVALID_ARGUMENT, f"watch {request.watch_id} is open on this stream: use another id")
        maximum = self._server.settings.max_topic_watchers_per_connection
        # Lists that are requested once have the same bound, apart: clients that may not watch request them.
        if sum(one.request.once == request.once for one in self._watchers.values()) >= maximum:
            text = (
                f"this stream has {maximum} topic watches, the maximum of max_topic_watchers_per_connection: request "
                "the list from time to time"
            )
            self._refuse(request.watch_id, BrokerError(ErrorCode.TOO_MANY_REQUESTS, text))
            return
        watcher = self._watchers[request.watch_id] = _StreamWatcher(request, self._to_send.set)
        watcher.beginning = asyncio.get_running_loop().create_task(self._find_list(watcher))
        self._tasks.add(watcher.beginning)
        watcher.beginning.add_done_callback(self._tasks.discard)

    async def _find_list(self, watcher: _StreamWatcher) -> None:
        request, watches = watcher.request, self._server.topic_watches
        time_ms = self._server.clock.time_ms()
        try:
            with as_broker_error(f"Listing the topics of {request.namespace}"), self._server.lookup_limit.hold():
                namespace, pattern = _parse(request, self._server.settings.subscription_pattern_max_length)
                # Before the watch begins: between its list and `begin` no change may be missed.
                is_missing = await watches.is_missing(namespace)
                if request.once:
                    listing = await watches.list_once(namespace, pattern)
                else:
                    listing = await watches.watch(namespace, pattern, watcher)
        except BrokerError as error:
            self._end_watch(request.watch_id)
            self._refuse(request.watch_id, error)
        else:
            watcher.begin(listing, time_ms, namespace_missing=is_missing and not listing.names)
        finally:
            watcher.beginning = None

    def _refuse(self, watch_id: int, error: BrokerError) -> None:
        problem = Problem(code=error.code, text=str(error))
        self._refusals.append(TopicsUpdate(watch_id=watch_id, problem=problem))
        self._to_send.set()

    def _end_watch(self, watch_id: int) -> None:
        watcher = self._watchers.pop(watch_id, None)
        if watcher is not None:
            self._server.topic_watches.leave(watcher)
            if watcher.beginning is not None and watcher.beginning is not asyncio.current_task():
                watcher.beginning.cancel()

    # Sending.

    async def _send(self) -> None:
        try:
            while True:
                await self._to_send.wait()
                self._to_send.clear()
                while self._refusals or any(watcher.updates for watcher in self._watchers.values()):
                    await self._send_turn()
        except TransportError:
            return  # the client is not there any more

    async def _send_turn(self) -> None:
        """Send all refusals, and the next piece of each watch."""
        if self._refusals:
            refusals = list(self._refusals)
            self._refusals.clear()
            await self._stream.send(WatchTopicsAnswer(updates=refusals).SerializeToString())
            self._sent.set()
        for watch_id, watcher in list(self._watchers.items()):
            update = None if watcher.updates is None else next(watcher.updates, None)
            if update is not None:
                await self._stream.send(WatchTopicsAnswer(updates=[update]).SerializeToString())
            elif watcher.updates is not None:
                watcher.updates = None
                if watcher.request.once:
                    self._watchers.pop(watch_id, None)


def _list_updates(
    request: WatchTopics, listing: Listing, time_ms: int, namespace_missing: bool
) -> Iterator[TopicsUpdate]:
    last = TopicsUpdate(
        watch_id=request.watch_id, hash=listing.hash, time_ms=time_ms, namespace_missing=namespace_missing
    )
    if request.hash != listing.hash:
        last.is_list = True
        for names in split_names(listing.names):
            yield TopicsUpdate(watch_id=request.watch_id, is_list=True, added=names)
    yield last


def _change_updates(watch_id: int, change: ListChange) -> Iterator[TopicsUpdate]:
    for piece in change.pieces:
        is_last = piece is change.pieces[-1]
        yield TopicsUpdate(
            watch_id=watch_id, deleted=piece.deleted, added=piece.new, hash=change.listing.hash if is_last else ""
        )


def _parse(request: WatchTopics, max_length: int) -> tuple[NamespaceName, TopicPattern]:
    """Raises `BrokerError` and `InvalidTopicName`."""
    namespace = NamespaceName.parse(request.namespace)
    try:
        domain = _DOMAINS[request.mode]
    except KeyError:
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{request.mode} is no mode of topics") from None
    try:
        return namespace, TopicPattern(request.pattern or _ALL, max(max_length, len(_ALL)), domain)
    except UnusablePattern as error:
        raise BrokerError(ErrorCode.UNSUPPORTED, str(error)) from None


def _decode(message: bytes) -> WatchTopicsRequest:
    """Raises `Refusal`."""
    try:
        request = WatchTopicsRequest.FromString(message)
    except DecodeError as error:
        raise Refusal(Code.INVALID_ARGUMENT, f"the request of topics can't be decoded: {error}") from None
    if len(request.watch) + len(request.close) > _MAX_PARTS:
        raise Refusal(Code.INVALID_ARGUMENT, f"the request has more than {_MAX_PARTS:,} parts: send more requests")
    return request
