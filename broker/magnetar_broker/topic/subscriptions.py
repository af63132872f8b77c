"""A topic's subscriptions: found, made, changed and deleted by name.

A durable subscription is its cursor; a `Subscription` stands beside it only while it has consumers or something is done
to it. One that is not durable lives as long as its consumers. Both kinds have names of their own, so a reader may bear
the name of a durable subscription.

Whatever makes or deletes a durable one by name is done one after the other for that name (`_busy`). None of it is
broken off by a caller that goes away: it is done whole, in a task of the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from magnetar_broker.core.counters import Deliveries, DeliveryCounters
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, TopicGivenUp, UnreadableEntry
from magnetar_broker.managed_ledger.interface import Cursor, CursorTable, Log
from magnetar_broker.topic.consumer import Consumer, ConsumerSink
from magnetar_broker.topic.progress import advance
from magnetar_broker.topic.served_history import ServedHistory
from magnetar_broker.topic.start_place import find_start
from magnetar_broker.topic.subscription import Subscription
from magnetar_broker.topic.subscription_options import SubscriptionOptions
from magnetar_broker.topic.subscription_stats import SubscriptionStats, cursor_stats, subscription_stats
from magnetar_broker.topic.tasks_in_order import TasksInOrder
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer, StartAt, SubscriptionType
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["Subscriptions"]

_log = logging.getLogger(__name__)
_MAX_NAME_BYTES: Final = 768
_MAX_PROPERTIES_BYTES: Final = 65_536
# Of names that are made here.
_TOKEN_BYTES: Final = 5
# Of so many lost entries in a row each is looked at for what is readable behind them.
_EXACT: Final = 64
# How many places are skipped before others have their turn.
_SKIPPED_TOGETHER: Final = 1_000


class Subscriptions:
    __slots__ = (
        "_busy",
        "_clock",
        "_closed",
        "_cursors",
        "_histories",
        "_loaded",
        "_log",
        "_name",
        "_options",
        "_randomness",
        "_tasks",
        "deliveries",
    )

    def __init__(
        self,
        name: TopicName,
        log: Log,
        cursors: CursorTable,
        options: SubscriptionOptions,
        clock: Clock,
        randomness: Randomness,
    ) -> None:
        self._name = name
        self._log = log
        self._cursors = cursors
        self._options = options
        self._clock = clock
        self._randomness = randomness
        # Those with consumers, or to which something is being done; by name, and whether they are durable.
        self._loaded: dict[tuple[str, bool], Subscription] = {}
        # Of durable ones that are not loaded: who was served last, and how often that had changed.
        self._histories: dict[str, ServedHistory] = {}
        self.deliveries = Deliveries()
        # Names of durable ones that are being made or deleted.
        self._busy: dict[str, asyncio.Future[None]] = {}
        self._tasks = TasksInOrder()
        # Why there are no subscriptions here any more.
        self._closed: BrokerError | None = None

    async def open(self) -> None:
        """Nothing is loaded before somebody asks for it."""

    @property
    def consumers(self) -> int:
        """How many are connected."""
        return sum(len(subscription.consumers) for subscription in self._loaded.values())

    @property
    def names(self) -> list[str]:
        """Of the durable ones."""
        return [cursor.name for cursor in self._cursors.durable()]

    def appended(self) -> None:
        """There are new entries to read."""
        for subscription in list(self._loaded.values()):
            try:
                subscription.run()
            except Exception:  # noqa: BLE001 (the others go on)
                _log.exception("topic %s: subscription %s could not go on", self._name, subscription.name)

    def stats(self) -> list[SubscriptionStats]:
        """The durable ones, and the others."""
        found = []
        for cursor in self._cursors.durable():
            loaded = self._loaded.get((cursor.name, True))
            counters = self.deliveries.known_of(cursor.name)
            found.append(cursor_stats(cursor, counters) if loaded is None else subscription_stats(loaded, self._log))
        for (_, durable), subscription in self._loaded.items():
            if not durable:
                found.append(subscription_stats(subscription, self._log))
        return found

    def counters(self) -> Iterator[DeliveryCounters]:
        """Of subscriptions and their consumers."""
        yield from self.deliveries.durable()
        for subscription in self._loaded.values():
            yield from () if subscription.durable else (subscription.counters,)
            yield from (consumer.counters for consumer in subscription.consumers)

    async def backlog_messages(self, name: str) -> int:
        """How many messages stand behind the durable subscription's mark-delete position, those of acknowledged entries
        among them. Raises `BrokerError`."""
        cursor = self._cursor(name)
        place, tries = cursor.mark_delete, 0
        while True:
            try:
                first = await self._log.read(self._log.first_after(place), 1, 1)
                break
            except UnreadableEntry as error:  # counted from what is readable behind it; steps grow where that is far
                tries += 1
                place = Position(error.position.ledger_id, error.position.entry_id + tries // _EXACT)
        if not first:
            return 0
        return max(0, self._log.next_index - (first[0].index - first[0].messages + 1))

    # Consumers.

    async def subscribe(self, opened: OpenConsumer, sink: ConsumerSink) -> Consumer:
        """Tells the sink, too (`opened`). Raises `BrokerError`."""
        _check(opened)
        if opened.incarnation and opened.incarnation != self._log.incarnation:
            raise BrokerError(
                ErrorCode.INCARNATION_CHANGED,
                f"topic {self._name} was deleted and made again: it was {opened.incarnation}, and is "
                f"{self._log.incarnation}; what is known of the old one says nothing of this one",
            )
        name = opened.consumer_name or self._randomness.token(_TOKEN_BYTES).hex()
        while True:
            subscription = await self._found(opened)
            if not subscription.waiting:
                break
            await subscription.changed()
        try:
            return subscription.join(opened, name, sink)
        finally:
            subscription.release()

    async def _found(self, opened: OpenConsumer) -> Subscription:
        """The one that is meant, made if need be; nothing is awaited after it was seen to be there."""
        while True:
            self._check_open()
            if (loaded := self._loaded.get((opened.subscription, opened.durable))) is not None:
                return loaded
            if not opened.durable:
                return await self._transient(opened)
            if (busy := self._busy.get(opened.subscription)) is not None:
                await asyncio.shield(busy)
            elif (cursor := self._cursors.get(opened.subscription)) is not None:
                return self._load(cursor)
            elif not self._options.allow_auto_subscription_creation:
                raise self._not_found(opened.subscription)
            else:
                await self.create(opened.subscription, opened.start, opened.subscription_properties, may_exist=True)

    async def _transient(self, opened: OpenConsumer) -> Subscription:
        start = await find_start(self._log, opened.start)
        self._check_open()
        loaded = self._loaded.get((opened.subscription, False))
        if loaded is not None:
            return loaded
        cursor = self._cursors.create_transient(opened.subscription, start.mark_delete)
        if start.passed_over is not None:
            cursor.acknowledge((), [start.passed_over])
        return self._load(cursor)

    def _load(self, cursor: Cursor) -> Subscription:
        subscription = Subscription(
            cursor,
            self._log,
            self._name.partition_index,
            self._options,
            self._clock,
            self._tasks,
            self._released,
            self._delete_unsubscribed,
            self.deliveries.of_durable(cursor.name) if cursor.durable else self.deliveries.of_transient(),
        )
        if cursor.durable and (history := self._histories.get(cursor.name)) is not None:
            subscription.history = history
        self._loaded[cursor.name, cursor.durable] = subscription
        return subscription

    def _released(self, subscription: Subscription) -> None:
        key = subscription.name, subscription.durable
        if self._loaded.get(key) is subscription:
            del self._loaded[key]
            if subscription.durable and not subscription.deleting and subscription.history:
                self._histories[subscription.name] = subscription.history

    # By name, as the admin does it. All are for durable subscriptions, and raise `BrokerError`.

    async def create(
        self, name: str, start: StartAt, properties: Mapping[str, str] | None = None, *, may_exist: bool = False
    ) -> None:
        _check_name(name)
        self._check_open()
        await self._tasks.whole(self._create(name, start, dict(properties or {}), may_exist))

    async def make_on_first_use(self, name: str, start: StartAt) -> None:
        """Unless it is there. Raises NOT_ALLOWED where only administrators make subscriptions."""
        if self._cursors.get(name) is None and not self._options.allow_auto_subscription_creation:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"topic {self._name} has no subscription {name!r:.200}, and none is made on first use "
                "(allow_auto_subscription_creation)",
            )
        await self.create(name, start, may_exist=True)

    def holder(self, name: str, durable: bool) -> Consumer | None:
        """Who has the subscription to itself."""
        loaded = self._loaded.get((name, durable))
        if loaded is None or loaded.type != SubscriptionType.EXCLUSIVE:
            return None
        return next(iter(loaded.consumers), None)

    async def _create(self, name: str, start: StartAt, properties: dict[str, str], may_exist: bool) -> None:
        async with self._claimed(name):
            if self._cursors.get(name) is not None:
                if may_exist:
                    return
                raise BrokerError(
                    ErrorCode.ALREADY_EXISTS, f"topic {self._name} has a subscription {name} already: use another name"
                )
            place = await find_start(self._log, start)
            cursor = await self._cursors.create(name, place.mark_delete, properties)
            if place.passed_over is not None:
                cursor.acknowledge((), [place.passed_over])
                await cursor.saved()

    async def delete(self, name: str, *, force: bool = False) -> None:
        """With `force`, also from under its consumers."""
        subscription = self._durable(name)
        await subscription.whole(self._delete(subscription, force))

    async def _delete(self, subscription: Subscription, force: bool) -> None:
        async with subscription.changing():
            if subscription.consumers and not force:
                raise BrokerError(
                    ErrorCode.CONSUMER_BUSY,
                    f"subscription {subscription.name} has {len(subscription.consumers)} consumer(s): close them, or "
                    "delete it by force",
                )
            await self._delete_unsubscribed(subscription)
            gone = BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"subscription {subscription.name} was deleted")
            subscription.end(gone.problem)

    async def _delete_unsubscribed(self, subscription: Subscription) -> None:
        """The caller has it to itself (`changing`)."""
        if not subscription.durable:
            return
        async with self._claimed(subscription.name):
            if self._cursors.get(subscription.name) is not subscription.cursor:
                raise self._not_found(subscription.name)
            subscription.deleting = True
            try:
                await self._cursors.delete(subscription.name)
            except BaseException:
                subscription.deleting = False
                raise
            self._released(subscription)
            self._histories.pop(subscription.name, None)
            self.deliveries.forget(subscription.name)

    async def reset(self, name: str, to: StartAt) -> None:
        """Moves it, for its consumers too, as a seek does."""
        subscription = self._durable(name)
        await subscription.whole(subscription.seek(to))

    async def skip(self, name: str, entries: int) -> int:
        """Acknowledges the next ones, a batch being one, and returns how many there were."""
        if entries < 0:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{entries} entries can't be skipped: use 0 or more")
        subscription = self._durable(name)
        return await subscription.whole(self._skip(subscription, entries))

    async def _skip(self, subscription: Subscription, entries: int) -> int:
        async with subscription.changing():
            position = await self._nth_open(subscription.cursor, entries)
            return await subscription.skip_to(position)

    async def skip_all(self, name: str) -> int:
        """Everything that there is now; also known as clear_backlog."""
        subscription = self._durable(name)
        return await subscription.whole(self._skip_to(subscription, self._log.last))

    async def expire(self, name: str, older_than_s: float) -> int:
        """Acknowledges what a broker took longer ago than that."""
        if not older_than_s >= 0:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"nothing is older than {older_than_s} s: use 0 or more")
        subscription = self._durable(name)
        begin = await self._log.first_at_time(max(0, int(self._clock.time_ms() - older_than_s * 1000)))
        expired = await subscription.whole(self._skip_to(subscription, begin.previous))
        subscription.counters.expired_entries += expired
        return expired

    async def advance(self, name: str, to: StartAt, *, only_make: bool = False) -> None:
        """Acknowledges everything in front of that place, for a reader whose progress it is (progress.py).

        `only_make`: unless it is there already, or somebody else was faster.
        """
        if self._cursors.get(name) is None:
            await self.create(name, to, may_exist=True)  # there, within a batch, too
        subscription = self._durable(name)
        await subscription.whole(advance(subscription, self._log, None if only_make else to))

    async def _skip_to(self, subscription: Subscription, position: Position) -> int:
        async with subscription.changing():
            return await subscription.skip_to(position)

    async def _nth_open(self, cursor: Cursor, entries: int) -> Position:
        position = cursor.mark_delete
        for number in range(min(entries, cursor.open_entries())):
            position = self._log.first_after(position)
            while position <= self._log.last and cursor.acknowledged(position):
                position = self._log.first_after(cursor.first_open_after(position).previous)
            if position > self._log.last:
                return self._log.last
            if number % _SKIPPED_TOGETHER == 0:
                await asyncio.sleep(0)
        return position

    # The end.

    async def close(self, problem: BrokerError | None = None) -> None:
        """Ends all consumers, and whatever is being done. The cursors are somebody else's to close."""
        if self._closed is None:
            self._closed = problem or TopicGivenUp(f"topic {self._name} was closed here: look it up again")
        for subscription in list(self._loaded.values()):
            subscription.end(self._closed.problem)
            subscription.receipts.fail(self._closed)
        self._loaded.clear()
        await self._tasks.cancel()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise BrokerError(self._closed.code, str(self._closed))

    def _durable(self, name: str) -> Subscription:
        """Loaded; whoever gets it makes it wait, or it is let go."""
        self._check_open()
        loaded = self._loaded.get((name, True))
        return loaded if loaded is not None else self._load(self._cursor(name))

    def _cursor(self, name: str) -> Cursor:
        cursor = self._cursors.get(name)
        if cursor is None:
            raise self._not_found(name)
        return cursor

    def _not_found(self, name: str) -> BrokerError:
        return BrokerError(
            ErrorCode.SUBSCRIPTION_NOT_FOUND,
            f"topic {self._name} has no subscription {name!r}: create it, or subscribe where "
            "allow_auto_subscription_creation is on",
        )

    @asynccontextmanager
    async def _claimed(self, name: str) -> AsyncIterator[None]:
        while (busy := self._busy.get(name)) is not None:
            await asyncio.shield(busy)
        done = self._busy[name] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._busy[name]
            done.set_result(None)


def _check(opened: OpenConsumer) -> None:
    _check_name(opened.subscription)
    if opened.type == SubscriptionType.KEY_SHARED:
        raise BrokerError(ErrorCode.UNSUPPORTED, "Key_Shared is not supported yet: use Shared or Failover")
    if opened.type not in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER, SubscriptionType.SHARED):
        raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"there is no subscription type {opened.type}")
    if opened.read_compacted:
        raise BrokerError(ErrorCode.UNSUPPORTED, "compacted topics are not supported yet: read without read_compacted")
    size = len(opened.consumer_name.encode())
    if size > _MAX_NAME_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a consumer's name of {size} bytes is too long: use {_MAX_NAME_BYTES} at most",
        )
    for properties in (opened.properties, opened.subscription_properties):
        size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
        if size > _MAX_PROPERTIES_BYTES:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"properties of {size} bytes are too many: use {_MAX_PROPERTIES_BYTES} at most",
            )


def _check_name(name: str) -> None:
    size = len(name.encode())
    if not 0 < size <= _MAX_NAME_BYTES:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a subscription's name of {size} bytes is not possible: use 1 … {_MAX_NAME_BYTES}",
        )
