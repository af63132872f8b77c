"""The topics of a pattern's consumer: those that match when it is created, and those that appear later.

A topic is *listed* if brokers list it (`_patterns/topic_watch.py`), and *joined* if it is among the consumer's
partitions. Each listed topic that is not joined is opened, a limited number at a time, and again after growing pauses
if that fails. A joined topic that was deleted, which its own consumer learns from its broker, leaves; if it is listed
again, or still, since it was deleted and recreated between two lists, it is opened again. Partitions are topics of the
list like others.

**From the first message.** A topic that was not in the first list has been created since, so its subscription begins
at the earliest message. One of the first list begins at the consumer's initial position, or, if that is the latest one
and the topic could not be opened at once, where it was when the list was made.

**No topic is created**: a topic that was deleted a moment ago must not return (`OpenConsumer.must_exist`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from magnetar._client_core import ClientCore
from magnetar._connections.operations import Backoff
from magnetar._consuming.consumer_partitions import CONCURRENT_OPENINGS, ConsumerPartitions
from magnetar._consuming.partition_consumer import PartitionConsumer
from magnetar._patterns.topic_pattern import TopicPattern
from magnetar._patterns.topic_watch import TopicWatch
from magnetar._prefetching.read_position import Start
from magnetar.exceptions import AlreadyClosed, ConsumerBusy, MagnetarException, TopicNotFound
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.topic_name import TopicName

__all__ = ["PatternTopics"]

log = logging.getLogger("magnetar")

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 60.0


class PatternTopics:
    def __init__(
        self,
        client: ClientCore,
        pattern: TopicPattern,
        joined: ConsumerPartitions,
        start: Start,
        *,
        poll_period_s: float,
        is_excluded: Callable[[TopicName], bool],
        start_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """`is_excluded`: topics that are not consumed although they match. `start_task` runs a task until the consumer
        ends."""
        self._client = client
        self._watch = TopicWatch(client, pattern, poll_period_s, self._on_listed)
        self._joined = joined
        self._start = start
        self._is_excluded = is_excluded
        self._start_task = start_task
        self._slots = asyncio.Semaphore(CONCURRENT_OPENINGS)
        # Topics of the first list that were never joined.
        self._first: set[str] = set()
        # Topics that are opened now or later, each by a task; and those of them that wait for their next attempt.
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._pausing: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the topics that match now. Raises an error if there are some and none can be opened, and `ConsumerBusy`
        if another consumer has one of them exclusively; others that can't be opened are retried."""
        await self._watch.open()
        self._first = set(self._watch.names)
        names = self._missing()
        errors: list[MagnetarException] = []

        async def open_one(partition: PartitionConsumer) -> None:
            try:
                await self._open(partition)
            except MagnetarException as error:
                errors.append(error)
                self._joined.drop([partition], error)
                if not isinstance(error, TopicNotFound):
                    log.warning("%s could not be opened, and is retried: %s", partition.topic, error)

        added = self._joined.add(names, self._start, of_pattern=True)
        await _run_all([open_one(partition) for partition in added])
        errors = [error for error in errors if not isinstance(error, TopicNotFound)]
        for error in errors:
            if isinstance(error, ConsumerBusy) or len(errors) == len(added):
                raise error
        self.run()

    def run(self) -> None:
        """Follow the list until `stop`, or until the consumer ends."""
        self._running = self._start_task(self._watch.run())
        self._on_listed()

    async def stop(self) -> None:
        """Open no more topics. Returns when the openings have ended."""
        self._pausing.clear()
        tasks = [*self._opening.values()] + ([] if self._running is None else [self._running])
        self._opening, self._running = {}, None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def end(self) -> None:
        """The consumer ends, with its tasks."""
        self._watch.close()

    def left(self, partition: PartitionConsumer, error: MagnetarException) -> None:
        """A joined topic is not served any more, because of this error."""
        if isinstance(error, TopicNotFound):
            log.info("%s was deleted, and is no longer consumed", partition.topic)
        else:
            log.warning("%s is not consumed now, and is retried: %s", partition.topic, error)
        self._joined.drop([partition], error)
        self._on_listed(after_failure=True)

    def _missing(self) -> list[TopicName]:
        """Return the topics that are listed, and neither joined nor being opened."""
        return [
            name
            for text, name in self._watch.names.items()
            if text not in self._joined.by_topic and text not in self._opening and not self._is_excluded(name)
        ]

    def _on_listed(self, *, after_failure: bool = False) -> None:
        if self._running is None:
            return
        for text in [text for text in self._pausing if text not in self._watch.names]:
            self._opening.pop(text).cancel()  # so that it is opened at once when it is listed again
            self._pausing.discard(text)
        missing = self._missing()
        later = [name for name in missing if str(name) in self._first]
        newer = [name for name in missing if str(name) not in self._first]
        # Added together, since the receiver queue is divided among all.
        for names, start in ((later, self._late_start()), (newer, Start(StartAt(earliest=True)))):
            if after_failure:
                for name in names:
                    self._begin_opening(name, None, start)
            elif names:
                for name, partition in zip(names, self._joined.add(names, start, of_pattern=True), strict=True):
                    self._begin_opening(name, partition, start)

    def _late_start(self) -> Start:
        """Return where a topic of the first list begins that is opened later."""
        if self._start.at.WhichOneof("at") == "latest" and self._watch.listed_ms:
            return Start(StartAt(time_ms=self._watch.listed_ms))
        return self._start

    def _begin_opening(self, name: TopicName, partition: PartitionConsumer | None, start: Start) -> None:
        task = self._opening[str(name)] = self._start_task(self._join(name, partition, start))
        task.add_done_callback(lambda done: self._forget_task(str(name), done))

    def _forget_task(self, text: str, task: asyncio.Task[None]) -> None:
        if self._opening.get(text) is task:
            del self._opening[text]

    async def _join(self, name: TopicName, partition: PartitionConsumer | None, start: Start) -> None:
        """Open a topic until that succeeds, or it is listed no more. None: after a pause."""
        backoff = Backoff(self._client.randomness, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        is_reported = False
        while True:
            if partition is None:
                self._pausing.add(str(name))
                await self._client.clock.sleep(backoff.next())
                self._pausing.discard(str(name))
                [partition] = self._joined.add([name], start, of_pattern=True)
            try:
                await self._open(partition)
                return
            except MagnetarException as error:
                self._joined.drop([partition], error)
                if not (is_reported or isinstance(error, TopicNotFound)):
                    log.warning("%s could not be opened, and is retried: %s", name, error)
                    is_reported = True
                partition = None
            except BaseException:  # the openings are stopped
                self._joined.drop([partition], AlreadyClosed(f"the opening of {name} was stopped"))
                raise

    async def _open(self, partition: PartitionConsumer) -> None:
        async with self._slots:
            await partition.open()
        self._first.discard(partition.topic)


async def _run_all(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run them at once, and cancel those that are left if one fails, or this is cancelled."""
    async with asyncio.TaskGroup() as tasks:
        for work in works:
            tasks.create_task(work)
