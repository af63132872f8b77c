"""A subscription that has consumers, or is being changed.

It holds the dispatch rule with its dispatcher (topics/dispatch), and the cursor, which is all that is stored. Joining,
leaving, permits and acknowledgements take effect at once, in one step. Changes that wait for storage, such as a seek or
a deletion, run one at a time (subscription_changes.py), and the subscription is paused in the meantime.

A seek or a reset begins the new epoch before the cursor moves. So acknowledgements that arrive while it moves are
refused as stale, and can't undo it. The epoch is reported to consumers when the cursor has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.acknowledgments import (
    AckReceipts,
    apply_acknowledgement,
    check_acknowledgement,
    check_ranges,
)
from magnetar_broker.topics.client_positions import StartPosition, find_last_acknowledged, find_start
from magnetar_broker.topics.consumer import Consumer, ConsumerSink
from magnetar_broker.topics.consumer_limits import check_joining
from magnetar_broker.topics.dispatch.dispatch_rates import SubscriptionDispatchRates
from magnetar_broker.topics.dispatch.dispatch_rule import (
    ConsumerUpdates,
    DispatchContext,
    DispatchRule,
    create_dispatch_limits,
)
from magnetar_broker.topics.dispatch.dispatcher import Dispatcher
from magnetar_broker.topics.dispatch.exclusive_and_failover import LastActiveConsumer
from magnetar_broker.topics.dispatch.subscription_types import DISPATCH_RULES, name_type
from magnetar_broker.topics.expected_reconnections import ExpectedReconnections
from magnetar_broker.topics.subscription_changes import DELETION, SubscriptionChanges, SubscriptionKey
from magnetar_broker.topics.topic_tasks import TopicTasks
from magnetar_protos.broker_pb2 import (
    Acknowledge,
    EntryRange,
    ErrorCode,
    OpenConsumer,
    Problem,
    StartAt,
    StartMessageId,
    SubscriptionType,
)
from magnetar_wire.clock import Clock

__all__ = ["Subscription"]

_TAKE_OVER_BITS: Final = 32


class Subscription:
    # Whether messages wait for consumers.
    stores_messages: ClassVar[bool] = True
    __slots__ = (
        "_changes",
        "_clock",
        "_consumers",
        "_delete_cursor",
        "_on_released",
        "_partition",
        "_rates",
        "_reconnections",
        "_settings",
        "_tasks",
        "counters",
        "cursor",
        "dispatcher",
        "is_paused",
        "last_active",
        "left_at",
        "log",
        "receipts",
        "time_ms",
        "type",
    )

    def __init__(
        self,
        cursor: Cursor,
        log: Log,
        partition: int,
        settings: SubscriptionSettings,
        clock: Clock,
        tasks: TopicTasks,
        changes: SubscriptionChanges,
        on_released: Callable[[Subscription], object],
        delete_cursor: Callable[[Subscription], Coroutine[Any, Any, None]],
        counters: DeliveryCounters,
        rates: SubscriptionDispatchRates,
    ) -> None:
        self.cursor = cursor
        self.log = log
        self._partition = partition
        self._settings = settings
        self._clock = clock
        # For statistics: called once for each batch of deliveries, and for each request.
        self.time_ms = clock.time_ms
        self._tasks = tasks
        self._changes = changes
        # Called when the subscription has no consumers and nothing to do.
        self._on_released = on_released
        # Deletes what is stored of the subscription. Called in a change.
        self._delete_cursor = delete_cursor
        # The type of its consumers, or of the last ones if there are none.
        self.type = SubscriptionType.EXCLUSIVE
        # An ordered set.
        self._consumers: dict[Consumer, None] = {}
        # None while there are no consumers.
        self.dispatcher: Dispatcher | None = None
        # A change waits or runs: no delivery begins, no consumer joins, and this object is not dropped.
        self.is_paused = changes.is_changing(self.key)
        self._reconnections = ExpectedReconnections(clock, self.release_if_idle)
        self.last_active = LastActiveConsumer()
        # When the last consumer left, of the monotonic clock. None: there was none.
        self.left_at: float | None = None
        self.receipts = AckReceipts(cursor, self.release_if_idle)
        self.counters = counters
        self._rates = rates

    @property
    def name(self) -> str:
        return self.cursor.name

    @property
    def durable(self) -> bool:
        return self.cursor.is_durable

    @property
    def key(self) -> SubscriptionKey:
        return self.cursor.name, self.cursor.is_durable

    @property
    def incarnation(self) -> str:
        return self.log.incarnation

    @property
    def consumers(self) -> list[Consumer]:
        return list(self._consumers)

    @property
    def is_idle(self) -> bool:
        is_saving = self.durable and self.receipts.is_waiting
        return not self._consumers and not self.is_paused and not is_saving and not self._reconnections.are_expected

    @property
    def rule(self) -> DispatchRule | None:
        return None if self.dispatcher is None else self.dispatcher.rule

    @property
    def current_change(self) -> str:
        """The name of the change that waits or runs; empty: none does."""
        return self._changes.find_current(self.key)

    def has(self, consumer: Consumer) -> bool:
        return consumer in self._consumers

    def is_active(self, consumer: Consumer) -> bool:
        return self.dispatcher is not None and self.dispatcher.rule.is_active(consumer)

    @property
    def exclusive_consumer(self) -> Consumer | None:
        """The consumer that excludes others. None: there is none."""
        if self.dispatcher is None or self.dispatcher.rule.max_consumers != 1:
            return None
        return next(iter(self._consumers), None)

    # Joining and leaving.

    def join(self, opened: OpenConsumer, name: str, sink: ConsumerSink) -> Consumer:
        """Add a consumer and start delivery to it. Raises `BrokerError`, with CONSUMER_BUSY if another consumer
        excludes it, and CONSUMER_ASSIGN_ERROR if it can't have the slots that it requests."""
        holder = self.exclusive_consumer
        check_joining(
            self.log.name,
            self.name,
            self._settings,
            requested=opened.type,
            present=self.type,
            consumers=len(self._consumers),
            exclusive_consumer="" if holder is None else f"{holder.name} from {holder.sink.address}",
        )
        consumer = Consumer(self, name, sink, opened, self._clock.time_ms())
        if self.dispatcher is None:
            self.type = opened.type
            context = DispatchContext(self._partition, self.log.cache, self.counters.count_mixed_batch)
            rule = DISPATCH_RULES[opened.type](create_dispatch_limits(self._settings), self.cursor.mark_delete, context)
            self.dispatcher = Dispatcher(self.name, rule, self.log, self.cursor, self._clock, self._tasks, self._rates)
            self.dispatcher.is_paused = self.is_paused
        updates = self.dispatcher.rule.join(consumer, self.cursor.mark_delete)
        self._consumers[consumer] = None
        self._reconnections.count_one()
        self._record_active()
        sink.opened(consumer)
        updates.active = [(one, active) for one, active in updates.active if one is not consumer]
        self._report(updates)
        self._dispatch()
        return consumer

    def leave(self, consumers: Sequence[Consumer]) -> None:
        """Remove consumers, for example all of a connection. Some may have left before."""
        left = [one for one in consumers if one in self._consumers]
        if not left or self.dispatcher is None:
            return
        for one in left:
            del self._consumers[one]
        updates = self.dispatcher.rule.leave(left, self.cursor.mark_delete)
        if not self._consumers:
            self.left_at = self._clock.monotonic()
            self.dispatcher.stop()
            self.dispatcher = None
            self.release_if_idle()
            return
        self._record_active()
        self._report(updates)
        self._dispatch()

    def remove_disconnected(self) -> None:
        """Remove consumers whose connections are closed. If no consumer is left, the subscription may be released."""
        self.leave([one for one in self._consumers if one.sink.is_broken])

    def _record_active(self) -> None:
        """Record a change of the active consumer. One that is about to leave gets nothing, and does not count."""
        active = None if self.dispatcher is None else self.dispatcher.rule.active_consumer
        if isinstance(active, Consumer) and not active.sink.is_broken and self.last_active.replace(active.name):
            self.cursor.record_take_over()

    @property
    def moves_and_take_overs(self) -> int:
        """`moves` of the client protocol: a number that changes when earlier deliveries may not be acknowledged any
        more, because the subscription was moved or another consumer took over."""
        return (self.cursor.moves << _TAKE_OVER_BITS) + self.cursor.take_overs

    def retain_for_reconnect(self, seconds: float) -> None:
        """Retain the subscription, durable or not, until the consumer that is closed now has reconnected, and all for
        which this was called before, or the time is over."""
        self._reconnections.expect(seconds)

    def release_if_idle(self) -> None:
        """Drop this object if the subscription has no consumers and nothing to do."""
        if self.is_idle:
            self._on_released(self)

    def close_consumers(self, problem: Problem | None) -> None:
        """Close all consumers, and report the problem to their clients. The subscription is not used any more."""
        self._reconnections.stop()
        consumers, self._consumers = self.consumers, {}
        if self.dispatcher is not None:
            self.dispatcher.rule.end()
            self.dispatcher.stop()
            self.dispatcher = None
        for consumer in consumers:
            consumer.sink.ended(problem)

    def _dispatch(self) -> None:
        """Deliver entries, unless all consumers have left."""
        if self.dispatcher is not None:
            self.dispatcher.dispatch()

    # Requests of consumers, which are handled without waiting.

    def flow(self, consumer: Consumer, epoch: int, permits: int) -> None:
        """Grant permits to a consumer, which count if it is still in this epoch."""
        if self.dispatcher is not None and consumer in self._consumers:
            self.counters.last_flow_ms = consumer.counters.last_flow_ms = self.time_ms()
            self.dispatcher.rule.grant(consumer, epoch, permits)
            self.dispatcher.dispatch()

    def recheck(self, consumer: Consumer) -> None:
        """Deliver more entries: the consumer's outbox has capacity again."""
        if self.dispatcher is not None and consumer in self._consumers:
            self.dispatcher.rule.recheck(consumer)
            self.dispatcher.dispatch()

    def redeliver(self, consumer: Consumer, epoch: int, ranges: Sequence[EntryRange]) -> None:
        """Redeliver unacknowledged entries of a consumer; all of them if `ranges` is empty. Raises `BrokerError`."""
        checked = check_ranges(ranges, self.log)
        if self.dispatcher is None or consumer not in self._consumers or (ranges and not checked):
            # All named entries are trimmed. Without this check an empty list would redeliver all entries.
            return
        self._report(self.dispatcher.rule.redeliver(consumer, epoch, checked, self.cursor.mark_delete))
        self.dispatcher.dispatch()

    def acknowledge(self, consumer: Consumer, request: Acknowledge, *, active_only: bool = True) -> None:
        """Acknowledge messages at a consumer's request. It counts at once; `receipts` reports when it is durable.

        Raises `BrokerError` if the request, or a part of it, does not count; the other parts do.
        """
        checked = check_acknowledgement(request, self.log)
        if self.dispatcher is None or consumer not in self._consumers:
            raise BrokerError(ErrorCode.NOT_FOUND, f"consumer {consumer.name} has left subscription {self.name}")
        rule = self.dispatcher.rule
        is_late = active_only and not rule.is_active(consumer)
        if is_late or request.epoch < consumer.acknowledged_from:
            raise checked.problem or BrokerError(
                ErrorCode.STALE_EPOCH,
                f"these messages of subscription {self.name} were delivered before it was moved or another "
                f"consumer became active: they have epoch {request.epoch}, and acknowledgements count from "
                f"epoch {consumer.acknowledged_from} on, and only from the active consumer",
            )
        if request.cumulative and not rule.delivers_in_order:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"subscription {self.name} is {name_type(self.type)}: a cumulative "
                "acknowledgement would acknowledge messages of other consumers. Acknowledge each message",
            )
        mark_delete, unacked = self.cursor.mark_delete, rule.unacked_messages
        count = apply_acknowledgement(request, checked, self.log, self.cursor, rule, consumer)
        messages = count if rule.delivers_in_order else max(0, unacked - rule.unacked_messages)
        now_ms = self.time_ms()
        for counters in (self.counters, consumer.counters):
            counters.acknowledged_entries += count
            counters.acknowledged += messages
            counters.last_acknowledged_ms = now_ms
        if self.cursor.mark_delete != mark_delete:
            self.counters.last_advanced_ms = now_ms
        self.dispatcher.dispatch()
        self.report_end()
        if checked.problem is not None:
            raise checked.problem

    def release_trimmed_entries(self) -> None:
        """The log has deleted ledgers, and the cursor has moved out of them: consumers need not acknowledge them."""
        if self.dispatcher is not None:
            self.dispatcher.rule.record_acknowledged_up_to(self.cursor.mark_delete)
            self.dispatcher.dispatch()

    def _report(self, updates: ConsumerUpdates) -> None:
        """Report changes to the consumers that have not left in the meantime."""
        if updates.rewound and self.dispatcher is not None:
            self.dispatcher.rewind()
        for one in updates.epochs:
            if isinstance(one, Consumer) and one in self._consumers:
                one.has_reached_end = False
                one.sink.epoch_began(one)
        for one, active in updates.active:
            if isinstance(one, Consumer) and one in self._consumers:
                one.sink.active_changed(active)
        self.report_end()

    def report_end(self) -> None:
        """Notify consumers, once in an epoch, that they get no more messages: the topic is terminated, and everything
        is acknowledged."""
        if not self.log.is_terminated or self.is_paused or self.cursor.count_unacknowledged():
            return
        for one in self.consumers:
            if not one.has_reached_end:
                one.has_reached_end = True
                one.sink.reached_end(one)

    def find_epoch_start(self) -> StartMessageId | None:
        """Return the message after which the deliveries of the present epoch begin. None: they are not in order."""
        if not DISPATCH_RULES[self.type].delivers_in_order:
            return None
        return find_last_acknowledged(self.cursor, self.log)

    # Settings and pauses.

    def apply_settings(self) -> None:
        """Apply changed limits to the consumers that are connected."""
        if self.dispatcher is not None:
            self.dispatcher.rule.set_limits(create_dispatch_limits(self._settings))
            self.dispatcher.dispatch()

    def pause(self) -> None:
        """Begin no delivery until `resume` is called: a change of the subscription waits or runs."""
        self.is_paused = True
        if self.dispatcher is not None:
            self.dispatcher.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        if self.dispatcher is not None:
            self.dispatcher.is_paused = False
            self.dispatcher.retry()  # reading may continue at another position
        self.report_end()
        self.release_if_idle()

    # Changes, which wait for storage. Those that no consumer requests are run by `AdministeredSubscriptions`.

    async def seek_for(self, consumer: Consumer, to: StartAt, moves_and_take_overs: int | None) -> None:
        """Seek at a consumer's request, unless the subscription was moved since the consumer got this number. Raises
        `BrokerError`."""
        await self._changes.run_change(
            self.key, "a seek", lambda: self.seek(to, lambda: self._check_may_seek(consumer, moves_and_take_overs))
        )

    async def seek(self, to: StartAt, check: Callable[[], None] = lambda: None) -> None:
        """Move the cursor, in a new epoch, if `check` does not raise. The caller runs it as a change."""
        start = await find_start(self.log, to)
        check()
        updates = ConsumerUpdates()
        if self.dispatcher is not None:
            updates = self.dispatcher.rule.begin_move()
            self.dispatcher.rewind()
        try:
            await self._move_to(start)
        finally:
            # The epoch has ended even if this failed: unacknowledged messages are redelivered.
            if self.dispatcher is not None:
                self.dispatcher.rule.end_move(self.cursor.mark_delete)
                self._report(updates)

    def _check_connected(self, consumer: Consumer) -> None:
        if consumer not in self._consumers:
            raise BrokerError(ErrorCode.NOT_FOUND, f"consumer {consumer.name} has left subscription {self.name}")

    def _check_may_seek(self, consumer: Consumer, moves_and_take_overs: int | None) -> None:
        self._check_connected(consumer)
        # Each move is reported to consumers, but not each take-over.
        if moves_and_take_overs is not None and moves_and_take_overs >> _TAKE_OVER_BITS != self.cursor.moves:
            raise BrokerError(
                ErrorCode.STALE_EPOCH,
                f"subscription {self.name} was moved after consumer {consumer.name} had requested a seek: seek again",
            )

    async def _move_to(self, start: StartPosition) -> None:
        await self.cursor.move_to(start.mark_delete)
        if start.skipped is not None:
            self.cursor.acknowledge((), [start.skipped])
            await self.cursor.wait_until_saved()

    async def skip_to(self, position: Position) -> int:
        """Acknowledge all entries up to `position`, durably, and return their number. The caller runs it as a
        change."""
        # Counted before it is saved: entries that are published in the meantime are not acknowledged.
        skipped = self._acknowledge_up_to(position)
        await self.cursor.wait_until_saved()
        return skipped

    async def expire_up_to(self, position: Position) -> int:
        """Acknowledge all entries up to `position`, as `skip_to` does, and count them as expired."""
        expired = self._acknowledge_up_to(position)
        self._count_expired(expired)
        await self.cursor.wait_until_saved()
        return expired

    def expire_now(self, position: Position) -> None:
        """Acknowledge all entries up to `position`, which expire. They are saved soon. Not while a change waits."""
        self._count_expired(self._acknowledge_up_to(position))
        self._dispatch()
        self.report_end()

    def _acknowledge_up_to(self, position: Position) -> int:
        before = self.cursor.count_unacknowledged()
        if position > self.cursor.mark_delete:
            self.cursor.acknowledge_up_to(min(position, self.log.last))
            if self.dispatcher is not None:
                self.dispatcher.rule.record_acknowledged_up_to(self.cursor.mark_delete)
            self.counters.last_advanced_ms = self.time_ms()
        return before - self.cursor.count_unacknowledged()

    def _count_expired(self, entries: int) -> None:
        self.counters.expired_entries += entries
        self.counters.last_expired_ms = self.time_ms()

    async def unsubscribe_for(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription at a consumer's request. `force`: also if it has other consumers. Raises
        `BrokerError`."""
        await self._changes.run_change(self.key, DELETION, lambda: self._unsubscribe(consumer, force))

    async def _unsubscribe(self, consumer: Consumer, force: bool) -> None:
        self._check_connected(consumer)
        if len(self._consumers) > 1 and not force:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"subscription {self.name} has {len(self._consumers)} consumers, and only the last one may "
                "delete it: close the others first",
            )
        await self._delete_cursor(self)
        if any(one is not consumer for one in self._consumers):
            self.close_after_deletion()
        else:
            self.leave([consumer])

    def close_after_deletion(self) -> None:
        """Close all consumers of a subscription that was deleted."""
        deleted = BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"subscription {self.name} was deleted")
        self.close_consumers(deleted.problem)
