"""The names of the topics that match a pattern, as brokers list them, and their changes.

Any broker can be watched: the next one of the service URL if one fails. A watch begins with the list, unless the client
has it already, which the broker knows by its hash. Parts of a list, or of a change, take effect together. Between two
watches the last list holds.

**A broker that refuses to watch**, since it has too many watches, is polled for the list instead. A
broker that can't match the pattern lists all topics of the namespace, and the client matches it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from magnetar._client_core import ClientCore
from magnetar._connections.operations import Backoff
from magnetar._errors import from_problem, from_transport
from magnetar._patterns.topic_pattern import TopicPattern
from magnetar._patterns.topic_watch_stream import TopicWatchStream
from magnetar.exceptions import (
    MagnetarException,
    NotAllowedError,
    OperationNotSupported,
    Timeout,
    TooManyLookupRequestException,
    UnknownError,
)
from magnetar_protos.broker_pb2 import TopicsUpdate, WatchTopics
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError

__all__ = ["MAX_NAMES", "TopicWatch"]

log = logging.getLogger("magnetar")

# A hash that no list has: the broker sends the list.
_NO_LIST: Final = ""
# The maximum of a list, or of a change.
MAX_NAMES: Final = 2_000_000


class TopicWatch:
    def __init__(
        self, client: ClientCore, pattern: TopicPattern, poll_period_s: float, on_changed: Callable[[], object]
    ) -> None:
        """`on_changed` is called on the loop when `names` has changed."""
        # The topics that match now, or when a broker was last reached. A partitioned topic is listed as its partitions.
        self.names: dict[str, TopicName] = {}
        # The broker's time when the first list was requested: topics that are not in it are newer.
        self.listed_ms = 0
        self._client = client
        self._pattern = pattern
        self._poll_period_s = poll_period_s
        self._on_changed = on_changed
        self._hash = _NO_LIST
        self._by_broker = pattern.suits_broker
        # Brokers are watched in turn, each until it fails.
        self._addresses = client.pool.service_addresses
        self._turn = 0
        self._watching: _Watching | None = None
        self._has_warned = False

    async def open(self) -> None:
        """Begin to watch, and return when the list is known. Raises the error of the last attempt."""
        await self._client.operations.retry(self._begin)

    async def run(self) -> None:
        """Watch until this is cancelled. `open` has begun it."""
        clock, backoff = self._client.clock, Backoff(self._client.randomness)
        pause_s, began_s = self._poll_period_s, clock.monotonic()
        while True:
            if self._watching is not None:
                await asyncio.wait([self._watching.ended])
                reason = self._watching.ended.result()
                log.info("the watch of topics of %s has ended, and is begun again: %s", self._pattern.text, reason)
                self._watching = None
                pause_s = backoff.after(clock.monotonic() - began_s)
            if pause_s:
                await clock.sleep(pause_s)
            began_s = clock.monotonic()
            try:
                await self._begin()
                pause_s = self._poll_period_s
            except MagnetarException as failure:
                log.info("the topics of %s could not be listed, and are listed again: %s", self._pattern.text, failure)
                pause_s = backoff.next()

    def close(self) -> None:
        if self._watching is not None:
            self._watching.close()
            self._watching = None

    async def _begin(self) -> None:
        """Watch the next broker. Return when the list is known; if it refuses to watch, `_watching` is None then."""
        try:
            await self._begin_at(once=False)
        except OperationNotSupported as error:
            if not self._by_broker:
                raise
            log.info("the client itself matches the topics of %s: %s", self._pattern.text, error)
            self._by_broker, self._hash = False, _NO_LIST
            await self._begin_at(once=False)
        except (TooManyLookupRequestException, NotAllowedError) as error:
            log.info("topics of %s are listed every %g s: %s", self._pattern.text, self._poll_period_s, error)
            await self._begin_at(once=True)

    async def _begin_at(self, *, once: bool) -> None:
        await self._client.pool.wait_resumed()
        address = self._addresses[self._turn % len(self._addresses)]
        stream = self._client.pool.stream(address, TopicWatchStream)
        request = self._pattern.make_request(by_broker=self._by_broker)
        request.hash, request.once = self._hash, once
        watching = _Watching(stream, self)
        received_before = stream.received_messages
        try:
            watching.begin(request)
            await self._client.operations.wait_for(
                watching.listed, f"{address} has not listed the topics of {self._pattern.namespace}"
            )
        except BaseException as error:
            self._turn += 1
            watching.close()
            if isinstance(error, Timeout):
                stream.break_if_silent(received_before)
            raise
        if once:
            watching.close()
        else:
            self._watching = watching

    def apply(self, added: Iterable[str], deleted: Iterable[str], *, is_list: bool, new_hash: str) -> None:
        """Apply a whole list, or a whole change."""
        before = self.names
        names = {} if is_list else dict(before)
        for text in deleted:
            names.pop(text, None)
        for text in added:
            if (name := self._parse(text)) is not None:
                names[text] = name
        self.names, self._hash = names, new_hash
        if names.keys() != before.keys():
            self._on_changed()

    def warn_namespace_missing(self) -> None:
        """Log once that the namespace does not exist: its name may be misspelled, and no topic would ever match."""
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the namespace %s does not exist: the consumer of %s waits until it is created, and has topics",
                self._pattern.namespace,
                self._pattern.text,
            )

    def _parse(self, text: str) -> TopicName | None:
        try:
            name = TopicName.parse(text)
        except InvalidTopicName as error:
            log.warning("a broker lists a topic that can't be: %s", error)
            return None
        return name if self._by_broker or self._pattern.matches(name) else None


class _Watching:
    """One watch of one broker. Is a `TopicWatchChannel`."""

    def __init__(self, stream: TopicWatchStream, watch: TopicWatch) -> None:
        loop = asyncio.get_running_loop()
        self.listed: asyncio.Future[None] = loop.create_future()
        # Why the watch has ended.
        self.ended: asyncio.Future[MagnetarException] = loop.create_future()
        self._stream = stream
        self._watch = watch
        self._id: int | None = None
        # Parts of a list, or change, that is not complete.
        self._added: list[str] = []
        self._deleted: list[str] = []

    def begin(self, request: WatchTopics) -> None:
        try:
            self._id = self._stream.attach(self)
        except TransportError as error:
            raise from_transport(error) from error
        self._stream.begin_watch(self._id, request)

    def close(self) -> None:
        if self._id is not None:
            self._stream.end_watch(self._id)
            self._id = None

    def updated(self, update: TopicsUpdate) -> None:
        if update.HasField("problem"):
            self._stream.detach(update.watch_id)
            self._id = None
            self._end(from_problem(update.problem))
            return
        self._added += update.added
        self._deleted += update.deleted
        if len(self._added) + len(self._deleted) > MAX_NAMES:
            self.close()
            self._end(UnknownError(f"a broker lists more than {MAX_NAMES:,} topics of a namespace"))
            return
        if update.hash:
            added, self._added = self._added, []
            deleted, self._deleted = self._deleted, []
            if update.time_ms and not self._watch.listed_ms:
                self._watch.listed_ms = update.time_ms
            if update.namespace_missing:
                self._watch.warn_namespace_missing()
            if update.is_list or added or deleted:
                self._watch.apply(added, deleted, is_list=update.is_list, new_hash=update.hash)
            if not self.listed.done():
                self.listed.set_result(None)

    def disconnected(self, error: TransportError) -> None:
        self._id = None
        self._end(from_transport(error))

    def _end(self, error: MagnetarException) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
        if not self.listed.done():
            self.listed.set_exception(error)
