"""A consumer on its client's event loop: its parts, one for each topic or partition, and what they have in common.

All parts put what comes into one receiver queue, from which the fronts (_consumer.py, aio/_consumer.py) take it. What
the application acknowledges comes in through an inbox from whatever thread; here it is given to the part that it
belongs to, and leaves when the time or the number is reached for which acknowledgements are gathered.

**All or none.** The first part is opened by itself, then the others at once; if any of them can't be, all are closed
and the consumer was not made. Two consumers that want an exclusive subscription to a partitioned topic meet at the
first part, so one of them gets all. Later each part reconnects by itself.

**A topic that grows** is noticed by asking now and then. What is new is read from the earliest message: it was
published when this consumer was there already.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from magnetar._ack_inbox import Inbox
from magnetar._acks import Receipt
from magnetar._client_core import ClientCore
from magnetar._consumer_options import ConsumerOptions, ReaderOptions, topic_names
from magnetar._consumer_part import ConsumerPart
from magnetar._enums import ConsumerType, InitialPosition
from magnetar._message import Delivered, Era, Message
from magnetar._options import parse_topic_name
from magnetar._places import place_of, start_at
from magnetar._receiver_queue import ReceiverQueue
from magnetar._refusing import Refusing
from magnetar._targets import Target, Targets
from magnetar.exceptions import AlreadyClosed, InvalidConfiguration, MagnetarException
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.clock import Timer
from magnetar_wire.message_id import MessageId
from magnetar_wire.topic_name import TopicName

__all__ = ["ConsumerCore", "open_consumer", "open_reader"]

log = logging.getLogger("magnetar")


class ConsumerCore:
    """A `Member` of its client, and the `PartOwner` of its parts."""

    def __init__(
        self,
        client: ClientCore,
        names: Sequence[TopicName],
        options: ConsumerOptions,
        start: StartAt,
        *,
        durable: bool = True,
    ) -> None:
        self.options = options
        # One for all parts, and for as long as it lives: partitions are spread over a Failover subscription's consumers
        # by their names.
        self.name = options.consumer_name or client.randomness.token(5).hex()
        self.queue = ReceiverQueue()
        self.parts: list[ConsumerPart] = []
        self.shared = options.consumer_type is ConsumerType.Shared
        # Why nothing can be asked of it any more.
        self.over: MagnetarException | None = None
        # Called on the loop for a part, and whether it is the one that is served.
        self.on_active: Callable[[ConsumerPart, bool], object] | None = None
        # Called on the loop when messages of a part were handed out.
        self.on_handed_out: Callable[[ConsumerPart], object] | None = None
        self.post: Final = client.call_soon
        self._client = client
        self.clock = client.clock
        self.names = list(names)
        # Partitions of each, as far as is known; 0: it has none.
        self._partitions: dict[TopicName, int] = {}
        self._start = start
        self._durable = durable
        self.targets = Targets()
        size = options.ack_grouping_max_size if options.ack_grouping_time_ms else 1
        self.acknowledged: Inbox[Target] = Inbox(self.post, self.acknowledge_soon, self._acknowledge_now, size)
        self._ack_timer: Timer | None = None
        self.refusing = Refusing(options.backoff, self.clock, self.post, self.give_acknowledged)
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # Its life.

    async def open(self) -> None:
        """Raises what the first part that can't be opened meets."""
        try:
            for name in self.names:
                self._partitions[name] = 0 if name.is_partition else await self._count(name)
            for name in self.names:
                for part_name in _parts(name, self._partitions[name]):
                    part = self._add_part(part_name, self._start)
                    if not self._durable and self.options.start_message_id_inclusive:
                        part.start_at(await part.where.with_last(self._start))
            self._check_parts()
            await self.parts[0].open()
            await self._open_all(self.parts[1:])
            if not self._durable:
                for part in self.parts:
                    await part.where.find_behind(self._start)
        except BaseException:
            await asyncio.shield(self._close_parts())
            self.end(AlreadyClosed("the consumer could not be opened"))
            raise
        interval_s = self.options.auto_update_partitions_interval_seconds
        if interval_s and any(self._partitions.values()):
            self._spawn(self._watch_growth(interval_s))

    def _check_parts(self) -> None:
        if len(self.parts) == 1:
            return
        if self._start.WhichOneof("at") == "place":
            raise InvalidConfiguration(
                f"{self.names[0]} has {len(self.parts)} partitions, and a message's id is in one of them: read that "
                "one, or start at earliest, latest or a time"
            )
        if self.options.receiver_queue_size == 0:
            raise InvalidConfiguration(
                f"receiver_queue_size = 0 can't be kept with {len(self.parts)} topics or partitions: use 1 or more"
            )

    async def _count(self, name: TopicName) -> int:
        return await self._client.lookup.count_partitions(str(name))

    def _add_part(self, name: TopicName, start: StartAt) -> ConsumerPart:
        part = ConsumerPart(name, self.name, self.options, self._client, self.queue, self, start, durable=self._durable)
        self.parts.append(part)
        self.targets.add(part)
        self._share()
        return part

    def _share(self) -> None:
        options, count = self.options, len(self.parts)
        size = options.receiver_queue_size
        if count > 1:
            size = min(size, max(1, options.max_total_receiver_queue_size_across_partitions // count))
        for part in self.parts:
            part.permits.share(size, max(1, options.receiver_queue_bytes // count))

    def describe_topics(self) -> str:
        """Name every topic, and its partitions."""
        return ", ".join(
            f"{name} (partitions 0 to {count - 1})" if (count := self._partitions.get(name, 0)) else str(name)
            for name in self.names
        )

    async def _open_all(self, parts: Sequence[ConsumerPart]) -> None:
        """At once; one that can't be opened ends the others' attempts."""
        opening = [asyncio.get_running_loop().create_task(part.open()) for part in parts]
        try:
            for task in opening:
                await task
        finally:
            for task in opening:
                task.cancel()
            if opening:
                await asyncio.wait(opening)
            for task in opening:  # looked at, so that nobody complains
                task.cancelled() or task.exception()

    async def _watch_growth(self, interval_s: float) -> None:
        while True:
            await self.clock.sleep(interval_s)
            for name, known in list(self._partitions.items()):
                if not known:
                    continue
                try:
                    await self._grow(name, known, await self._count(name))
                except MagnetarException as error:
                    log.info("%s could not be asked for its partitions: %s", name, error)

    async def _grow(self, name: TopicName, known: int, now: int) -> None:
        for index in range(known, now):
            part = self._add_part(name.partition(index), StartAt(earliest=True))
            try:
                await part.open()
            except BaseException:
                self.parts.remove(part)
                self.targets.remove(part)
                await asyncio.shield(part.close())
                raise
            self._partitions[name] = index + 1

    async def close(self) -> None:
        """Sends what is acknowledged, and leaves."""
        if self.over is not None:
            return
        self.over = AlreadyClosed("the consumer is closed")
        self.give_acknowledged()
        try:
            await self._close_parts()
        finally:
            self.end(self.over)

    async def _close_parts(self) -> None:
        closing = [asyncio.get_running_loop().create_task(part.close()) for part in self.parts]
        if closing:
            try:
                await asyncio.wait(closing)
            finally:
                for task in closing:
                    task.cancel()

    def end(self, error: MagnetarException) -> None:
        """At once. Who waits for something meets the error."""
        self.over = self.over or error
        self._client.remove_member(self)
        self.refusing.end()
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        for part in self.parts:
            part.end(error)
        self.queue.fail(error)

    def forked(self, error: MagnetarException) -> None:
        """In a child: of what there was nothing is used but this error."""
        self.over = error
        self.queue.replace_lock()
        self.queue.fail(error)

    async def wait_ended(self) -> None:
        tasks = [*self._tasks, *(part.reopening for part in self.parts if part.reopening is not None)]
        if tasks:
            await asyncio.wait(tasks)

    def check_open(self) -> None:
        if self.over is not None:
            raise type(self.over)(*self.over.args)

    async def unsubscribe(self) -> None:
        """Deletes the subscription; the consumer is over."""
        self.check_open()
        self.give_acknowledged()
        for part in self.parts:
            await part.unsubscribe()
        await self.close()

    def part_failed(self, part: ConsumerPart, error: MagnetarException) -> None:
        log.error("the consumer of %s can't go on: %s", part.topic, error)
        self.end(error)

    @property
    def connected(self) -> bool:
        return self.over is None and all(part.connected for part in self.parts)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    # Where it is.

    async def seek(self, where: Callable[[ConsumerPart], StartAt | None]) -> None:
        """Every part to the place that is said for it; None: it stays where it is."""
        self.check_open()
        self.give_acknowledged()
        for part in self.parts:
            to = where(part)
            if to is not None:
                await part.seek(to)

    async def last_message_ids(self) -> list[MessageId]:
        """Of each part; of one without messages `earliest`'s place, with its topic."""
        self.check_open()
        return [await part.where.last_message_id(part.partition) for part in self.parts]

    async def has_message_available(self) -> bool:
        """Whether a read will return, if nobody else reads."""
        self.check_open()
        if len(self.queue):
            return True
        for part in self.parts:
            if await part.where.has_more():
                return True
        return False

    # Acknowledging.

    def acknowledge_soon(self) -> None:
        """On the loop: what is gathered leaves when its time has come."""
        if self.over is not None:
            return
        wait_ms = self.options.ack_grouping_time_ms
        if not wait_ms:
            self._acknowledge_now()
        elif self._ack_timer is None:
            self._ack_timer = self.clock.call_later(wait_ms / 1000, self._acknowledge_now)

    def _acknowledge_now(self) -> None:
        if self._ack_timer is not None:
            self._ack_timer.cancel()
            self._ack_timer = None
        self.give_acknowledged()
        for part in self.parts:
            part.acknowledge()

    def give_acknowledged(self) -> None:
        self.give(self.acknowledged.drain())

    def give(self, targets: Iterable[Target]) -> dict[ConsumerPart, dict[tuple[int, int], Era]]:
        """Gives each to its part. Returns whose they were, and of which eras."""
        by_entry: dict[Delivered, list[int]] = {}
        touched: dict[ConsumerPart, dict[tuple[int, int], Era]] = {}
        for target in targets:
            if isinstance(target, Message):
                places = by_entry.get(target._delivered)
                if places is None:
                    by_entry[target._delivered] = [target._at]
                else:
                    places.append(target._at)
            else:
                target.give()
                era = target.era
                touched.setdefault(target.part, {})[era.opening, era.epoch] = era
        for delivered, places in by_entry.items():
            part: ConsumerPart = delivered.era.origin
            part.acks.add(delivered, places)
            era = delivered.era
            touched.setdefault(part, {})[era.opening, era.epoch] = era
        return touched

    async def acknowledge(self, targets: Sequence[Target]) -> None:
        """At once, with all that was gathered; returns when it is durable."""
        self.check_open()
        if not targets:
            return
        receipt = Receipt(asyncio.get_running_loop().create_future())
        for part, eras in self.give(targets).items():
            part.acks.want_receipt(eras.values(), receipt)
        self._acknowledge_now()
        await self._client.operations.wait_for(receipt.future, "the broker has not answered an acknowledgement")

    def ask_for_all(self) -> None:
        """All that is not acknowledged comes again. From any thread, which is handed out nothing else before: to
        acknowledge that, up to and with it, would acknowledge what comes again."""
        for part in self.parts[:]:
            self.queue.shut(part.source)
        self.post(self._redeliver_all)

    def _redeliver_all(self) -> None:
        if self.over is None:
            self.give_acknowledged()
            for part in self.parts:
                self.refusing.forget(part)
                part.redeliver(None)

    # What parts tell.

    def starts_anew(self, part: ConsumerPart) -> None:
        self.refusing.forget(part)

    def handed_out(self, part: ConsumerPart) -> None:
        if self.on_handed_out is not None:
            self.on_handed_out(part)

    def active_changed(self, part: ConsumerPart, active: bool) -> None:
        if self.on_active is not None:
            self.on_active(part, active)

    # Waiting.

    def hungry(self) -> None:
        """On the loop: somebody waits for more than there is."""
        for part in self.parts:
            part.flow(eager=True)
        if self.queue.batches_waiting and all(part.permits.outstanding <= 0 for part in self.parts):
            self.queue.set_full()


def _parts(name: TopicName, partitions: int) -> list[TopicName]:
    return [name.partition(index) for index in range(partitions)] if partitions else [name]


async def open_consumer(
    client: ClientCore, topic: str | Sequence[str] | re.Pattern[str], options: ConsumerOptions
) -> ConsumerCore:
    """Open a consumer of a topic, or of several."""
    client.check_open()
    start = StartAt(earliest=True) if options.initial_position is InitialPosition.Earliest else StartAt(latest=True)
    core = ConsumerCore(client, topic_names(topic), options, start)
    await core.open()
    client.add_member(core)
    return core


async def open_reader(client: ClientCore, topic: str, start: MessageId | int, options: ReaderOptions) -> ConsumerCore:
    """Open the consumer that a reader is: of a subscription that nobody else has, and that is not durable.

    What was read is acknowledged now and then. Only the broker's count of unacknowledged messages depends on it.
    """
    client.check_open()
    name = parse_topic_name(topic)
    if not isinstance(start, (MessageId, int)) or isinstance(start, bool):
        raise InvalidConfiguration(f"a reader starts at a message's id or a time in ms, not at {start!r}")
    token = client.randomness.token(5).hex()
    prefix = options.subscription_role_prefix
    consumer_options = options.for_consumer(f"{prefix}-reader-{token}" if prefix else f"reader-{token}")
    at = start_at(start, inclusive=options.start_message_id_inclusive)
    core = ConsumerCore(client, [name], consumer_options, at, durable=False)
    core.on_handed_out = _acknowledge_read
    await core.open()
    client.add_member(core)
    return core


def _acknowledge_read(part: ConsumerPart) -> None:
    last = part.source.read
    if last is not None and last._delivered.era is part.era:
        ledger_id, entry_id, index = place_of(last)
        part.acks.add_cumulative(part.era, ledger_id, entry_id, index, last._delivered.batch_size)
        part.acknowledge()
