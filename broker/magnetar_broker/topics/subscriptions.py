"""A topic's subscriptions: found, created, changed and deleted by name.

A durable subscription is its cursor. It has a `Subscription` object only while it has consumers or is being changed. A
subscription that is not durable ends with its last consumer. The two kinds have separate names, so a reader may have
the name of a durable subscription.

All changes of a subscription that wait for storage (creation, deletion, seek, reset, skip, expiry, progress) go through
`SubscriptionChanges`, which runs them one at a time per subscription. Each looks its subscription up when it begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

from magnetar_broker.counters import Deliveries, DeliveryCounters
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.interface import TopicCursors
from magnetar_broker.cursors.subscription_limits import check_subscription_name
from magnetar_broker.errors import BrokerError, TopicUnloaded, UnreadableEntry
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.client_positions import StartPosition, find_start
from magnetar_broker.topics.consumer import Consumer, ConsumerSink, check_open_request
from magnetar_broker.topics.consumer_limits import check_consumers, check_type
from magnetar_broker.topics.dispatch.dispatch_rates import TopicRates
from magnetar_broker.topics.dispatch.exclusive_and_failover import LastActiveConsumer
from magnetar_broker.topics.progress_subscription import (
    NO_OWNER,
    ProgressOwner,
    advance,
    check_consumable,
    check_settable,
)
from magnetar_broker.topics.subscribe_counts import SubscribeCounts
from magnetar_broker.topics.subscription import Subscription
from magnetar_broker.topics.subscription_changes import SubscriptionChanges, SubscriptionKey
from magnetar_broker.topics.subscription_stats import (
    Backlog,
    SubscriptionStats,
    cursor_stats,
    subscription_stats,
    unopened_stats,
)
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_protos.broker_pb2 import ErrorCode, OpenConsumer, StartAt, StartMessageId
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["Subscriptions"]

T = TypeVar("T")

_log = logging.getLogger(__name__)
# The length of generated consumer names, before they are written as hex.
_TOKEN_BYTES: Final = 5
# Up to 64 consecutive lost entries are each tried, to find the first readable one behind them.
_EXACT: Final = 64
# Entries that `skip` counts before other tasks get a turn.
_SKIPPED_TOGETHER: Final = 1_000


class Subscriptions:
    __slots__ = (
        "_changes",
        "_clock",
        "_closed",
        "_cursors",
        "_last_active",
        "_last_used_ms",
        "_loaded",
        "_log",
        "_name",
        "_randomness",
        "_read_settings",
        "_settings",
        "_subscribe_counts",
        "_tasks",
        "deliveries",
        "rates",
    )
    _subscription_class: ClassVar[type[Subscription]] = Subscription

    def __init__(
        self,
        name: TopicName,
        log: Log,
        cursors: TopicCursors,
        settings: SubscriptionSettings,
        clock: Clock,
        randomness: Randomness,
        read_settings: Callable[[], Awaitable[SubscriptionSettings]] | None = None,
        rates: TopicRates | None = None,
    ) -> None:
        """`read_settings` returns the settings by the present policies, or raises `BrokerError`. `rates`: those of
        dispatches; by default those of `settings`."""
        self.rates = rates or TopicRates(settings, clock)
        self._name = name
        self._read_settings = read_settings
        self._log = log
        self._cursors = cursors
        self._settings = settings
        self._clock = clock
        self._randomness = randomness
        # Subscriptions that have consumers, or are being changed.
        self._loaded: dict[SubscriptionKey, Subscription] = {}
        # Of durable subscriptions that are not loaded.
        self._last_active: dict[str, LastActiveConsumer] = {}
        # When durable subscriptions were used last since the topic was opened, in ms since 1970.
        self._last_used_ms: dict[str, int] = {}
        self._subscribe_counts = SubscribeCounts()
        self.deliveries = Deliveries()
        self._tasks = TopicTasks()
        self._changes = SubscriptionChanges(self._tasks, self._loaded.get)
        # Why all requests are refused: the topic is closed.
        self._closed: BrokerError | None = None

    def time_ms(self) -> int:
        return self._clock.time_ms()

    @property
    def consumers(self) -> int:
        """The number of connected consumers."""
        return sum(len(subscription.consumers) for subscription in self._loaded.values())

    @property
    def has_consumers_of_one_schema(self) -> bool:
        """Whether a consumer is connected that reads bytes, or by a schema of its own."""
        return any(
            not consumer.takes_any_schema
            for subscription in self._loaded.values()
            for consumer in subscription.consumers
        )

    @property
    def names(self) -> list[str]:
        """The names of durable subscriptions."""
        return list(self._cursors.names())

    def appended(self) -> None:
        """Deliver new entries of the log."""
        for subscription in list(self._loaded.values()):
            try:
                if (dispatcher := subscription.dispatcher) is not None:
                    dispatcher.run()
            except Exception:  # noqa: BLE001 (the others go on)
                _log.exception("Topic %s: subscription %s failed to deliver new entries", self._name, subscription.name)

    def report_growth(self, partitions: int) -> None:
        for subscription in self._loaded.values():
            for consumer in subscription.consumers:
                consumer.sink.topic_grew(partitions)

    def report_end(self) -> None:
        """Notify the consumers that have reached the end of a terminated topic."""
        for subscription in list(self._loaded.values()):
            subscription.report_end()

    def release_trimmed_entries(self) -> None:
        """The cursors have moved out of deleted ledgers: the entries there are not delivered or counted any more."""
        for subscription in list(self._loaded.values()):
            subscription.release_trimmed_entries()

    def stats(self) -> list[SubscriptionStats]:
        """Return the statistics of all subscriptions, the durable ones first."""
        found = []
        for cursor in self._cursors.durable_cursors():
            loaded = self._loaded.get((cursor.name, True))
            counters = self.deliveries.known_of(cursor.name)
            found.append(cursor_stats(cursor, counters) if loaded is None else subscription_stats(loaded, self._log))
        found += [
            unopened_stats(one, self._log, self.deliveries.known_of(one.name))
            for one in self._cursors.unopened_cursors()
        ]
        for (_, durable), subscription in self._loaded.items():
            if not durable:
                found.append(subscription_stats(subscription, self._log))
        return found

    def counters(self) -> Iterator[DeliveryCounters]:
        """Yield the counters of subscriptions and of their consumers."""
        yield from self.deliveries.durable()
        for subscription in self._loaded.values():
            yield from () if subscription.durable else (subscription.counters,)
            yield from (consumer.counters for consumer in subscription.consumers)

    async def wait_for_cursor(self, name: str) -> Cursor:
        """Return the cursor of the durable subscription when it is open. Raises `BrokerError`."""
        self._check_open()
        await self._cursors.wait_until_open(name)
        self._check_open()
        return self._cursor(name)

    async def measure_backlog(self, name: str) -> Backlog:
        """Count the messages from the durable subscription's first one that is not acknowledged on, acknowledged ones
        behind it included. Raises `BrokerError`."""
        position, tries = self._cursor(name).mark_delete, 0
        while True:
            try:
                first = await self._log.read(self._log.first_after(position), 1, 1)
                break
            except UnreadableEntry as error:  # counts from the first readable entry behind it, in growing steps
                tries += 1
                position = Position(error.position.ledger_id, error.position.entry_id + tries // _EXACT)
        if not first:
            return Backlog(0, 0)
        bits = self._cursor(name).get_acknowledged_messages(first[0].position)
        acknowledged = (~bits & bits + 1).bit_length() - 1  # the first messages of a batch
        messages = max(0, self._log.next_index - (first[0].index - first[0].messages + 1) - acknowledged)
        return Backlog(messages, first[0].broker_time_ms)

    # Consumers.

    async def subscribe(self, opened: OpenConsumer, sink: ConsumerSink) -> Consumer:
        """Open a consumer, and call the sink's `opened`. Raises `BrokerError`."""
        check_open_request(opened)
        check_consumable(opened.subscription, opened.subscription_properties)
        check_type(self._name, self._settings, opened.type)
        if opened.incarnation and opened.incarnation != self._log.incarnation:
            raise BrokerError(
                ErrorCode.INCARNATION_CHANGED,
                f"topic {self._name} was deleted and recreated: its incarnation was {opened.incarnation}, "
                f"and is {self._log.incarnation}; positions of the old topic are not valid in the new one",
            )
        self._check_rate(opened, sink.address)
        name = opened.consumer_name or self._randomness.token(_TOKEN_BYTES).hex()
        subscription = await self._find_to_join(opened)
        try:
            check_consumable(subscription.name, subscription.cursor.properties)
            self._check_limits(opened, sink.address)
            return subscription.join(opened, name, sink)
        finally:
            subscription.release()

    def _check_rate(self, opened: OpenConsumer, address: str) -> None:
        rate = self._settings.subscribe_rate
        host, name = address.rpartition(":")[0], opened.consumer_name or opened.consumer_id
        if not self._subscribe_counts.count(host, opened.subscription, name, rate, self._clock.monotonic()):
            raise BrokerError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"consumer {name!r} has subscribed to {self._name} {rate.per_consumer} times in "
                f"{rate.period_seconds:,.0f} s, the maximum (subscribe_throttling_rate_per_consumer, or the policy "
                "subscribe_rate): retry later",
            )

    def _check_limits(self, opened: OpenConsumer, address: str) -> None:
        """Raise `BrokerError` if the topic accepts no such consumer. Nothing is awaited between this and the joining:
        others may have joined, or policies may have changed, since the request came."""
        check_type(self._name, self._settings, opened.type)
        connected = [
            consumer.sink.address
            for subscription in self._loaded.values()
            for consumer in subscription.consumers
            if not consumer.sink.is_broken
        ]
        check_consumers(self._name, self._settings, connected, address)

    def apply_settings(self) -> None:
        """Apply changed limits to the consumers that are connected."""
        for subscription in list(self._loaded.values()):
            subscription.apply_settings()

    async def _find_to_join(self, opened: OpenConsumer) -> Subscription:
        """Return the subscription to join, created if that is allowed. It is not being changed, and nothing is awaited
        after that was checked."""
        key = opened.subscription, opened.durable
        while True:
            self._check_open()
            if self._changes.is_changing(key):
                await self._changes.wait_for_changes(key)
            elif (loaded := self._loaded.get(key)) is not None:
                # A consumer whose connection is closed, and which has not left yet, must not refuse another one. With
                # the last consumer the subscription is released: a consumer that joined that object would get nothing.
                loaded.remove_disconnected()
                if self._loaded.get(key) is loaded:
                    return loaded
            elif not opened.durable:
                start = await self._find_start(opened.start)
                if not self._changes.is_changing(key) and key not in self._loaded:
                    self._check_open()
                    self._cursors.check_capacity(self._count_transient())
                    return self._load_transient(opened.subscription, start)
            elif (cursor := self._cursors.get(opened.subscription)) is not None:
                return self._load(cursor)
            elif opened.subscription in self._cursors.names():
                await self._cursors.wait_until_open(opened.subscription)
            elif not await self._may_create():
                if opened.subscription in self._cursors.names():
                    continue
                raise self._not_found(opened.subscription)
            else:
                await self.create(opened.subscription, opened.start, opened.subscription_properties, may_exist=True)

    async def _may_create(self) -> bool:
        """Return whether subscriptions are created on first use."""
        if self._read_settings is None:
            return self._settings.allow_auto_subscription_creation
        return (await self._read_settings()).allow_auto_subscription_creation

    def _count_transient(self) -> int:
        """Return the number of subscriptions that are not durable."""
        return sum(not durable for _, durable in self._loaded)

    async def _find_start(self, at: StartAt) -> StartPosition:
        return await find_start(self._log, at)

    def _load_transient(self, name: str, start: StartPosition) -> Subscription:
        cursor = self._cursors.create_transient(name, start.mark_delete)
        if start.skipped is not None:
            cursor.acknowledge((), [start.skipped])
        return self._load(cursor)

    def _load(self, cursor: Cursor) -> Subscription:
        counters = self.deliveries.of_durable(cursor.name) if cursor.is_durable else self.deliveries.of_transient()
        subscription = self._subscription_class(
            cursor,
            self._log,
            self._name.partition_index,
            self._settings,
            self._clock,
            self._tasks,
            self._changes,
            self._released,
            self._delete_cursor,
            counters,
            self.rates.of_subscription(cursor.name, counters, durable=cursor.is_durable),
        )
        if cursor.is_durable and (last_active := self._last_active.get(cursor.name)) is not None:
            subscription.last_active = last_active
        self._loaded[subscription.key] = subscription
        return subscription

    def _released(self, subscription: Subscription) -> None:
        if self._loaded.get(subscription.key) is subscription:
            del self._loaded[subscription.key]
            if subscription.durable and subscription.last_active.name:
                self._last_active[subscription.name] = subscription.last_active
            if subscription.durable and subscription.left_ms:
                self._last_used_ms[subscription.name] = subscription.left_ms

    # Administration of durable subscriptions, by name. All methods raise `BrokerError`.

    async def create(
        self, name: str, start: StartAt, properties: Mapping[str, str] | None = None, *, may_exist: bool = False
    ) -> None:
        check_subscription_name(name)
        self._check_open()
        await self._changes.run_change(
            (name, True), lambda: self._create(name, start, dict(properties or {}), may_exist)
        )

    async def make_on_first_use(self, name: str, start: StartAt) -> None:
        """Create the subscription unless it exists. Raises NOT_ALLOWED if only administrators may create it."""
        if name not in self._cursors.names() and not await self._may_create():
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"topic {self._name} has no subscription {name!r:.200}, and it is not created on first use "
                "(allow_auto_subscription_creation): create it first",
            )
        await self.create(name, start, may_exist=True)

    def exclusive_consumer(self, name: str, durable: bool) -> Consumer | None:
        """Return the consumer of the subscription that excludes others. None: there is none."""
        loaded = self._loaded.get((name, durable))
        return None if loaded is None else loaded.exclusive_consumer

    async def _create(self, name: str, start: StartAt, properties: dict[str, str], may_exist: bool) -> None:
        if name in self._cursors.names():
            if may_exist:
                return
            raise BrokerError(
                ErrorCode.ALREADY_EXISTS, f"topic {self._name} already has a subscription {name}: use another name"
            )
        position = await self._find_start(start)
        self._cursors.check_capacity(self._count_transient())
        cursor = await self._cursors.create(name, position.mark_delete, properties)
        if position.skipped is not None:
            cursor.acknowledge((), [position.skipped])
            await cursor.wait_until_saved()

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete the subscription, with `force` also if it has consumers. Its cursor may be damaged or not open."""
        await self._change(
            name, lambda subscription: self._delete(subscription, force), lambda: self._delete_named(name)
        )

    async def _delete(self, subscription: Subscription, force: bool) -> None:
        if subscription.consumers and not force:
            raise BrokerError(
                ErrorCode.CONSUMER_BUSY,
                f"subscription {subscription.name} has {len(subscription.consumers)} consumer(s): close "
                "them, or delete it with force",
            )
        await self._delete_cursor(subscription)
        subscription.end_deleted()

    async def _delete_cursor(self, subscription: Subscription) -> None:
        if not subscription.durable:
            return
        await self._delete_named(subscription.name)
        self._released(subscription)
        self._last_active.pop(subscription.name, None)

    async def delete_if(self, name: str, check: Callable[[], bool]) -> bool:
        """Delete the subscription if it has no consumers and `check`, which is called at the last moment, returns True.
        Return whether it was deleted."""

        async def delete(subscription: Subscription) -> bool:
            if subscription.consumers or not check():
                return False
            await self._delete(subscription, force=False)
            return True

        return await self._change(name, delete)

    def find_last_use(self, name: str) -> int:
        """Return when the durable subscription was used last, in ms since 1970: now, if it has consumers. 0: it was not
        used since the topic was opened."""
        loaded = self._loaded.get((name, True))
        if loaded is not None and loaded.consumers:
            return self._clock.time_ms()
        left_ms = 0 if loaded is None else loaded.left_ms
        return max(left_ms, self._last_used_ms.get(name, 0))

    def record_use(self, name: str) -> None:
        """Note that the durable subscription is used now."""
        self._last_used_ms[name] = self._clock.time_ms()

    async def _delete_named(self, name: str) -> None:
        await self._cursors.delete(name)
        self._last_active.pop(name, None)
        self._last_used_ms.pop(name, None)
        self.deliveries.forget(name)
        self.rates.forget(name)

    async def reset(self, name: str, to: StartAt) -> None:
        """Move the subscription and its consumers, as a seek does. If its cursor is damaged, or can't be opened now,
        the cursor is replaced, and its other acknowledgements are lost."""
        await self._change(name, lambda subscription: subscription.seek(to), lambda: self._replace(name, to))

    async def _replace(self, name: str, to: StartAt) -> None:
        position = await find_start(self._log, to)
        if self._cursors.get(name) is not None:  # it was opened in the meantime
            await self._loaded_or_load(name).seek(to)
            return
        cursor = await self._cursors.replace(name, position.mark_delete)
        self._last_active.pop(name, None)
        if position.skipped is not None:
            cursor.acknowledge((), [position.skipped])
            await cursor.wait_until_saved()

    async def skip(self, name: str, entries: int) -> int:
        """Acknowledge the next entries, each of which may be a batch. Returns their number."""
        if entries < 0:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{entries} entries can't be skipped: use 0 or more")
        return await self._change(name, lambda subscription: self._skip(subscription, entries))

    async def _skip(self, subscription: Subscription, entries: int) -> int:
        return await subscription.skip_to(await self._nth_open(subscription.cursor, entries))

    async def skip_all(self, name: str) -> int:
        """Acknowledge all entries that the log has now; also known as clear_backlog."""
        return await self._change(name, lambda subscription: subscription.skip_to(self._log.last))

    async def expire(self, name: str, older_than_s: float) -> int:
        """Acknowledge the entries that a broker received before that time."""
        if not older_than_s >= 0:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, f"messages can't be older than {older_than_s} s: use 0 or more"
            )
        before_ms = max(0, int(self._clock.time_ms() - older_than_s * 1000))
        return await self._change(name, lambda subscription: self._expire(subscription, before_ms))

    async def _expire(self, subscription: Subscription, before_ms: int) -> int:
        first_left = await self._log.find_first_at_time(before_ms)
        return await subscription.expire_up_to(first_left.previous)

    def expire_now(self, name: str, position: Position) -> bool:
        """Acknowledge all entries up to the position; they are saved soon. Return False if that is not possible now,
        since the subscription is being changed."""
        if self._changes.is_changing((name, True)):
            return False
        if self._closed is None and self._cursors.get(name) is not None:
            subscription = self._loaded_or_load(name)
            subscription.expire_now(position)
            subscription.release()
        return True

    async def expire_before(self, name: str, first_left: StartMessageId) -> int:
        """Acknowledge everything before a message that the log has, or the next one. Returns the number of entries."""
        return await self._change(name, lambda subscription: self._expire_before(subscription, first_left))

    async def _expire_before(self, subscription: Subscription, first_left: StartMessageId) -> int:
        if (named := Position(first_left.ledger_id, first_left.entry_id)) > self._log.last:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, f"{named} is after the last entry of {self._name}, {self._log.last}"
            )
        start = await find_start(self._log, StartAt(message_id=first_left))
        if start.skipped is not None and not subscription.cursor.is_acknowledged(start.skipped[0]):
            subscription.cursor.acknowledge((), [start.skipped])
        return await subscription.expire_up_to(start.mark_delete)

    async def evict(self, name: str, find_end: Callable[[], Position | None]) -> int:
        """Acknowledge the entries up to `find_end()`, which is called in the subscription's turn; None: none. Returns
        their number."""

        async def evict(subscription: Subscription) -> int:
            end = find_end()
            return 0 if end is None else await subscription.skip_to(end)

        return await self._change(name, evict)

    def get_properties(self, name: str) -> Mapping[str, str]:
        """Return the properties of a durable subscription."""
        unopened = next((one for one in self._cursors.unopened_cursors() if one.name == name), None)
        return self._cursor(name).properties if unopened is None else unopened.properties

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of a durable subscription, durably."""

        async def change(subscription: Subscription) -> None:
            check_settable(name, subscription.cursor.properties, properties)
            await self._cursors.set_properties(name, properties)

        await self._change(name, change)

    async def advance(
        self, name: str, to: StartAt, *, only_make: bool = False, owner: ProgressOwner = NO_OWNER
    ) -> Position:
        """Acknowledge all messages before `to`, for a reader of the log (progress_subscription.py). Return the
        subscription's mark-delete position.

        `only_make`: create the subscription. One that has an owner is not moved.
        """
        check_subscription_name(name)
        owner.check()
        self._check_open()
        return await self._changes.run_change((name, True), lambda: self._advance(name, to, only_make, owner))

    async def _advance(self, name: str, to: StartAt, only_make: bool, owner: ProgressOwner) -> Position:
        await self._cursors.wait_until_open(name)
        if self._cursors.get(name) is None:
            await self._create(name, to, owner.properties, may_exist=False)  # also if it is within a batch
        subscription = self._loaded_or_load(name)
        await advance(subscription, self._cursors, self._log, to, only_make, owner)
        self.record_use(name)
        return subscription.cursor.mark_delete

    async def _change(
        self,
        name: str,
        change: Callable[[Subscription], Coroutine[Any, Any, T]],
        unopened: Callable[[], Coroutine[Any, Any, T]] | None = None,
    ) -> T:
        """Change the durable subscription that has the name when the change begins. `unopened` is called instead if its
        cursor can't be opened; without it the change is refused."""
        self._check_open()

        async def begin() -> T:
            try:
                await self._cursors.wait_until_open(name, wait_again=unopened is None)
            except TopicUnloaded:
                raise
            except BrokerError:
                if unopened is None:
                    raise
                return await unopened()
            return await change(self._loaded_or_load(name))

        return await self._changes.run_change((name, True), begin)

    async def _nth_open(self, cursor: Cursor, entries: int) -> Position:
        position = cursor.mark_delete
        for number in range(min(entries, cursor.count_unacknowledged())):
            position = self._log.first_after(position)
            while position <= self._log.last and cursor.is_acknowledged(position):
                position = self._log.first_after(cursor.find_unacknowledged_after(position).previous)
            if position > self._log.last:
                return self._log.last
            if number % _SKIPPED_TOGETHER == 0:
                await asyncio.sleep(0)
        return position

    # The end.

    async def close(self, problem: BrokerError | None = None) -> None:
        """End all consumers and cancel all changes. The topic closes the cursors."""
        self.end(problem or TopicUnloaded(f"topic {self._name} was closed by this broker: look it up again"))
        await self._tasks.cancel()

    def end(self, problem: BrokerError) -> None:
        """End all consumers at once. Changes that run go on until they fail."""
        if self._closed is None:
            self._closed = problem
        for subscription in list(self._loaded.values()):
            subscription.end(self._closed.problem)
            subscription.receipts.fail(self._closed)
        self._loaded.clear()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise BrokerError(self._closed.code, str(self._closed))

    def _loaded_or_load(self, name: str) -> Subscription:
        """Return a durable subscription. Only for a change: it releases the subscription when it has ended."""
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
            f"topic {self._name} has no subscription {name!r}: create it, or enable "
            "allow_auto_subscription_creation and subscribe",
        )
