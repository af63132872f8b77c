"""A subscription while it has consumers, or something is done to it.

It holds the rule of dispatch, the dispatcher that reads for it, and the cursor, which alone
lasts. Everything that changes at once does so in one step: who joins, leaves, grants, acknowledges. What waits for
storage, moving and deleting the cursor, is done one after the other (subscription_changes.py); the subscription is
paused meanwhile.

A seek or a reset begins the new epoch before the cursor moves, so what is acknowledged meanwhile is refused as stale
and can't undo it. Consumers are told when it has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import Cursor, Log
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.ack_receipts import AckReceipts
from magnetar_broker.topics.acknowledgments import acknowledge, check_ranges, read_acknowledge
from magnetar_broker.topics.consumer import Consumer, ConsumerSink
from magnetar_broker.topics.delivery_runs import delivery_runs
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState
from magnetar_broker.topics.dispatch.dispatch_rule import ConsumerUpdates, Deliverable, DispatchRule
from magnetar_broker.topics.dispatch.dispatcher import Dispatcher
from magnetar_broker.topics.dispatch.exclusive_and_failover import SingleActiveRule
from magnetar_broker.topics.dispatch.shared import SharedRule
from magnetar_broker.topics.served_history import ServedHistory
from magnetar_broker.topics.start_position import StartPosition, find_start
from magnetar_broker.topics.subscription_changes import SubscriptionChanges, SubscriptionKey
from magnetar_broker.topics.tasks_in_order import TopicTasks
from magnetar_protos.broker_pb2 import (
    Acknowledge,
    EntryRange,
    ErrorCode,
    MessagePlace,
    OpenConsumer,
    Problem,
    StartAt,
    SubscriptionType,
)
from magnetar_wire.clock import Clock, Timer

__all__ = ["Subscription"]

_SHARED: Final = SubscriptionType.SHARED
_TAKE_OVER_BITS: Final = 32


class Subscription:
    __slots__ = (
        "_changes",
        "_clock",
        "_consumers",
        "_delete_cursor",
        "_dispatcher",
        "_kept",
        "_let_go",
        "_log",
        "_partition",
        "_released",
        "_settings",
        "_tasks",
        "counters",
        "cursor",
        "history",
        "paused",
        "receipts",
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
        released: Callable[[Subscription], object],
        delete_cursor: Callable[[Subscription], Coroutine[Any, Any, None]],
        counters: DeliveryCounters,
    ) -> None:
        self.cursor = cursor
        self._log = log
        self._partition = partition
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._changes = changes
        # It has no consumers and nothing to do any more.
        self._released = released
        # Deletes what is stored of the subscription, in a change.
        self._delete_cursor = delete_cursor
        # Of its consumers; of the last ones, where there are none.
        self.type = SubscriptionType.EXCLUSIVE
        self._consumers: dict[ConsumerState, Consumer] = {}
        # While there are consumers.
        self._dispatcher: Dispatcher | None = None
        # A change waits or runs: nothing is delivered, nobody joins, and this object is not dropped.
        self.paused = changes.is_changing(self.key)
        # Until when it stays though nobody is there, and how many have not come back.
        self._kept: Timer | None = None
        self._let_go = 0
        self.history = ServedHistory()
        self.receipts = AckReceipts(cursor, tasks, self.release)
        self.counters = counters

    @property
    def name(self) -> str:
        return self.cursor.name

    @property
    def durable(self) -> bool:
        return self.cursor.durable

    @property
    def key(self) -> SubscriptionKey:
        return self.cursor.name, self.cursor.durable

    @property
    def incarnation(self) -> str:
        return self._log.incarnation

    @property
    def consumers(self) -> list[Consumer]:
        return list(self._consumers.values())

    @property
    def idle(self) -> bool:
        receipts = self.durable and self.receipts.waiting
        return not self._consumers and not self.paused and not receipts and self._kept is None

    @property
    def dispatch(self) -> DispatchRule | None:
        return None if self._dispatcher is None else self._dispatcher.dispatch

    @property
    def dispatcher(self) -> Dispatcher | None:
        return self._dispatcher

    def has(self, consumer: Consumer) -> bool:
        return consumer.state in self._consumers

    def is_active(self, consumer: Consumer) -> bool:
        return self._dispatcher is not None and self._dispatcher.dispatch.is_active(consumer.state)

    # Joining and leaving.

    def join(self, opened: OpenConsumer, name: str, sink: ConsumerSink) -> Consumer:
        """Add a consumer and start delivery to it. Raises `BrokerError`, with CONSUMER_BUSY if another consumer
        excludes it."""
        self._check_joining(opened)
        consumer = Consumer(self, ConsumerState(name, opened.priority_level, sink), sink, opened, self._clock.time_ms())
        if self._dispatcher is None:
            self.type = opened.type
            self._dispatcher = Dispatcher(
                self.name, self._rule(), self._log, self.cursor, self._clock, self._tasks, self._deliver
            )
            self._dispatcher.paused = self.paused
        self._consumers[consumer.state] = consumer
        self._came_back()
        changes = self._dispatcher.dispatch.join(consumer.state, self.cursor.mark_delete)
        self._note_who_is_served()
        sink.opened(consumer)
        changes.active = [(state, active) for state, active in changes.active if state is not consumer.state]
        self._tell(changes)
        self.run()
        return consumer

    def keep_for_return(self, seconds: float) -> None:
        """A consumer is let go, and about to come back: until as many have joined as were let go, or that time is over,
        it stays, durable or not."""
        let_go = self._let_go + 1
        self._not_kept()
        self._let_go = let_go
        self._kept = self._clock.call_later(seconds, self._kept_long_enough)

    def _came_back(self) -> None:
        if self._let_go > 1:
            self._let_go -= 1
        else:
            self._not_kept()

    def _not_kept(self) -> None:
        self._let_go = 0
        if self._kept is not None:
            self._kept.cancel()
            self._kept = None

    def _kept_long_enough(self) -> None:
        self._not_kept()
        self.release()

    def remove_disconnected(self) -> None:
        """Remove consumers whose connections are closed. If no consumer is left, the subscription may be released."""
        self.leave_together([one for one in self.consumers if one.sink.broken])

    def _check_joining(self, opened: OpenConsumer) -> None:
        if not self._consumers:
            return
        if opened.type != self.type:
            wanted, has = SubscriptionType.Name(opened.type), SubscriptionType.Name(self.type)
            raise BrokerError(
                ErrorCode.CONSUMER_BUSY,
                f"subscription {self.name} has {len(self._consumers)} consumer(s) of type {has}, so one of "
                f"type {wanted} can't join: use {has}, or another subscription, or wait until they have "
                "disconnected",
            )
        if self.type == SubscriptionType.EXCLUSIVE:
            [holder] = self.consumers
            raise BrokerError(
                ErrorCode.CONSUMER_BUSY,
                f"Exclusive consumer is already connected: {holder.name} from {holder.sink.address} uses "
                f"subscription {self.name}; use Failover or Shared to have more than one",
            )
        most = self._settings.max_consumers_per_subscription
        if 0 < most <= len(self._consumers):
            raise BrokerError(
                ErrorCode.CONSUMER_BUSY,
                f"subscription {self.name} has {len(self._consumers)} consumers, and max_consumers_per_subscription "
                f"is {most}",
            )

    def _rule(self) -> DispatchRule:
        limits, mark_delete = self._settings.limits, self.cursor.mark_delete
        if self.type == _SHARED:
            return SharedRule(limits, mark_delete)
        return SingleActiveRule(limits, mark_delete, self._partition)

    def leave(self, consumer: Consumer) -> None:
        """It may have left already."""
        self.leave_together([consumer])

    def leave_together(self, consumers: Sequence[Consumer]) -> None:
        """Those of one connection, which may be thousands."""
        left = [one.state for one in consumers if self._consumers.pop(one.state, None) is not None]
        if not left or self._dispatcher is None:
            return
        changes = self._dispatcher.dispatch.leave_together(left, self.cursor.mark_delete)
        if not self._consumers:
            self._dispatcher.stop()
            self._dispatcher = None
            self.release()
            return
        self._note_who_is_served()
        self._tell(changes)
        self.run()

    def _note_who_is_served(self) -> None:
        """Not one that is about to leave: it gets nothing."""
        assert self._dispatcher is not None
        for consumer in self._consumers.values() if self.type != _SHARED else ():
            if not self._dispatcher.dispatch.is_active(consumer.state) or consumer.sink.broken:
                continue
            if self.history.served(consumer.name):
                self.cursor.taken_over()

    @property
    def moves(self) -> int:
        """Changes when what was delivered may not be acknowledged any more: it was moved, or changed hands."""
        return (self.cursor.moves << _TAKE_OVER_BITS) + self.cursor.take_overs

    def release(self) -> None:
        if self.idle:
            self._released(self)

    def end(self, problem: Problem | None) -> None:
        """All its consumers, for good."""
        self._not_kept()
        consumers, self._consumers = self.consumers, {}
        if self._dispatcher is not None:
            self._dispatcher.stop()
            self._dispatcher = None
        for consumer in consumers:
            consumer.sink.ended(problem)

    # Requests of consumers. They are handled without waiting.

    def run(self) -> None:
        if self._dispatcher is not None:
            self._dispatcher.run()

    def flow(self, consumer: Consumer, epoch: int, permits: int) -> None:
        if self._dispatcher is not None and consumer.state in self._consumers:
            self._dispatcher.dispatch.grant(consumer.state, epoch, permits)
            self._dispatcher.run()

    def on_capacity(self, consumer: Consumer) -> None:
        if self._dispatcher is not None and consumer.state in self._consumers:
            self._dispatcher.dispatch.ready(consumer.state)
            self._dispatcher.run()

    def redeliver(self, consumer: Consumer, epoch: int, ranges: Sequence[EntryRange]) -> None:
        checked = check_ranges(ranges, self._log)
        if self._dispatcher is None or consumer.state not in self._consumers or (ranges and not checked):
            # All named entries are trimmed. Without this check an empty list would redeliver all entries.
            return
        self._tell(self._dispatcher.dispatch.redeliver(consumer.state, epoch, checked, self.cursor.mark_delete))
        self._dispatcher.run()

    def acknowledge(self, consumer: Consumer, request: Acknowledge, *, active_only: bool = True) -> None:
        acknowledged = read_acknowledge(request, self._log)
        if self._dispatcher is None or consumer.state not in self._consumers:
            raise BrokerError(ErrorCode.NOT_FOUND, f"consumer {consumer.name} has left subscription {self.name}")
        is_late = active_only and not self._dispatcher.dispatch.is_active(consumer.state)
        if is_late or request.epoch < consumer.acknowledged_from:
            raise acknowledged.problem or BrokerError(
                ErrorCode.STALE_EPOCH,
                f"these messages of subscription {self.name} were delivered before it was moved or another "
                f"consumer became active: they have epoch {request.epoch}, and acknowledgements count from "
                f"epoch {consumer.acknowledged_from} on, and only from the active consumer",
            )
        if request.cumulative and self.type == _SHARED:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"subscription {self.name} is Shared: a cumulative acknowledgement would acknowledge "
                "messages of other consumers. Acknowledge each message",
            )
        count = acknowledge(request, acknowledged, self._log, self.cursor, self._dispatcher.dispatch, consumer.state)
        self.counters.acknowledged_entries += count
        consumer.counters.acknowledged_entries += count
        self._dispatcher.run()
        if acknowledged.problem is not None:
            raise acknowledged.problem

    def batch_size(self, position: Position) -> int | None:
        if not self._log.before_first < position <= self._log.last:
            return 0
        entries = self._log.read_nowait(position, 1, 1)
        if entries is None:
            return None
        return entries[0].batch_size if entries and entries[0].position == position else 0

    async def find_batch_sizes(self, positions: Sequence[Position]) -> list[int]:
        entries = await self._log.read_at(positions)
        return [0 if entry is None else entry.batch_size for entry in entries]

    def last_before(self, ledger_id: int) -> Position | None:
        """The last entry in front of that ledger; None: there is none (any more)."""
        found = None
        at: int | None = self._log.before_first.ledger_id
        while at is not None and at < ledger_id:
            if (end := self._log.ledger_end(at)) is not None and end >= 0:
                found = Position(at, end)
            at = self._log.next_ledger(at)
        return found

    # What goes out.

    def _deliver(self, state: ConsumerState, entries: list[Deliverable]) -> None:
        consumer = self._consumers[state]
        messages = size = again = 0
        for one in entries:
            messages += one.entry.messages
            size += len(one.entry.stored)
            if one.redelivery_count:
                again += one.entry.messages
        self.counters.deliver(messages, len(entries), size, again)
        consumer.counters.deliver(messages, len(entries), size, again)
        consumer.sink.deliver(delivery_runs(state.epoch, entries))

    def _tell(self, changes: ConsumerUpdates) -> None:
        if changes.rewound and self._dispatcher is not None:
            self._dispatcher.rewound()
        for state in changes.epochs:
            if (consumer := self._consumers.get(state)) is not None:
                consumer.sink.epoch_began(consumer)
        for state, active in changes.active:
            if (consumer := self._consumers.get(state)) is not None:
                consumer.sink.active_changed(active)

    def behind(self) -> MessagePlace | None:
        if self.type == _SHARED:
            return None
        mark_delete = self.cursor.mark_delete
        first = self._log.first_after(mark_delete)
        bits = self.cursor.acknowledged_messages(first)
        if bits & 1:
            first_open = (~bits & bits + 1).bit_length() - 1
            return MessagePlace(ledger_id=first.ledger_id, entry_id=first.entry_id, batch_index=first_open - 1)
        return MessagePlace(ledger_id=mark_delete.ledger_id, entry_id=mark_delete.entry_id, batch_index=-1)

    # Changes, which wait for storage. Those without a consumer's request are run by `Subscriptions`.

    def pause(self) -> None:
        self.paused = True
        if self._dispatcher is not None:
            self._dispatcher.paused = True

    def resume(self) -> None:
        self.paused = False
        if self._dispatcher is not None:
            self._dispatcher.paused = False
            self._dispatcher.run()
        self.release()

    async def seek_for(self, consumer: Consumer, to: StartAt, moves: int | None) -> None:
        """Seeks at a consumer's request, unless it was moved since it had `moves`. Raises `BrokerError`."""
        await self._changes.run_change(self.key, lambda: self.seek(to, lambda: self._check_may_seek(consumer, moves)))

    async def seek(self, to: StartAt, check: Callable[[], None] = lambda: None) -> None:
        """Moves the cursor, under a new epoch, if `check` does not raise. The caller runs it as a change."""
        start = await find_start(self._log, to)
        check()
        changes = ConsumerUpdates()
        if self._dispatcher is not None:
            changes = self._dispatcher.dispatch.move()
            self._dispatcher.rewound()
        try:
            await self._move_to(start)
        finally:
            # Where it failed, the epoch has ended all the same: what was delivered comes again.
            if self._dispatcher is not None:
                self._dispatcher.dispatch.moved(self.cursor.mark_delete)
                self._tell(changes)

    def _check_still_here(self, consumer: Consumer) -> None:
        if consumer.state not in self._consumers:
            raise BrokerError(ErrorCode.NOT_FOUND, f"consumer {consumer.name} has left subscription {self.name}")

    def _check_may_seek(self, consumer: Consumer, moves: int | None) -> None:
        self._check_still_here(consumer)
        # Consumers are told of each move, but not of each take-over.
        if moves is not None and moves >> _TAKE_OVER_BITS != self.cursor.moves:
            raise BrokerError(
                ErrorCode.STALE_EPOCH,
                f"subscription {self.name} was moved after consumer {consumer.name} had requested a seek: seek again",
            )

    async def _move_to(self, start: StartPosition) -> None:
        await self.cursor.move_to(start.mark_delete)
        if start.passed_over is not None:
            self.cursor.acknowledge((), [start.passed_over])
            await self.cursor.saved()

    async def skip_to(self, position: Position) -> int:
        """Acknowledge all entries up to `position`, durably, and return their number. The caller runs it as a
        change."""
        before = self.cursor.open_entries()
        if position > self.cursor.mark_delete:
            self.cursor.acknowledge_up_to(min(position, self._log.last))
            if self._dispatcher is not None:
                self._dispatcher.dispatch.acknowledged_up_to(self.cursor.mark_delete)
        # Counted before it is saved: entries that are published meanwhile are open.
        skipped = before - self.cursor.open_entries()
        await self.cursor.saved()
        return skipped

    async def unsubscribe_for(self, consumer: Consumer, *, force: bool) -> None:
        """Deletes the subscription at a consumer's request. `force`: also if it has other consumers. Raises
        `BrokerError`."""
        await self._changes.run_change(self.key, lambda: self._unsubscribe(consumer, force))

    async def _unsubscribe(self, consumer: Consumer, force: bool) -> None:
        self._check_still_here(consumer)
        if len(self._consumers) > 1 and not force:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"subscription {self.name} has {len(self._consumers)} consumers, and only the last one may "
                "delete it: close the others first",
            )
        await self._delete_cursor(self)
        if any(one is not consumer for one in self.consumers):
            self.end_deleted()
        else:
            self.leave(consumer)

    def end_deleted(self) -> None:
        """Ends all consumers of a subscription that was deleted."""
        deleted = BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"subscription {self.name} was deleted")
        self.end(deleted.problem)
