"""Administration of a topic's subscriptions, by name: creation, deletion, reset, skip, expiry, properties, progress.

Administrators request these, the broker itself when messages or subscriptions expire or a backlog quota is reached, and
readers of the log that store their progress. All but creation are for durable subscriptions that exist.

All changes of a subscription that wait for storage go through `SubscriptionChanges`, which runs them one at a time per
subscription. Each looks its subscription up when it begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.subscription_limits import check_subscription_name
from magnetar_broker.errors import BrokerError, TopicUnloaded, UnreadableEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.client_positions import find_start
from magnetar_broker.topics.loaded_subscriptions import LoadedSubscriptions
from magnetar_broker.topics.progress_subscription import NO_OWNER, ProgressOwner, advance, check_settable
from magnetar_broker.topics.subscription import Subscription
from magnetar_broker.topics.subscription_changes import DELETION
from magnetar_broker.topics.subscription_stats import Backlog
from magnetar_protos.broker_pb2 import ErrorCode, StartAt, StartMessageId

__all__ = ["AdministeredSubscriptions"]

T = TypeVar("T")

# Up to 64 consecutive lost entries are each tried, to find the first readable one behind them.
_EXACT: Final = 64
# Entries that `skip` counts before other tasks get a turn.
_SKIPPED_TOGETHER: Final = 1_000


class AdministeredSubscriptions(LoadedSubscriptions):
    """All methods raise `BrokerError`."""

    __slots__ = ()

    async def create(
        self, name: str, start: StartAt, properties: Mapping[str, str] | None = None, *, may_exist: bool = False
    ) -> None:
        check_subscription_name(name)
        self._check_open()
        await self._changes.run_change(
            (name, True), "its creation", lambda: self._create(name, start, dict(properties or {}), may_exist)
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

    async def _may_create(self) -> bool:
        """Return whether subscriptions are created on first use."""
        if self._read_settings is None:
            return self._settings.allow_auto_subscription_creation
        return (await self._read_settings()).allow_auto_subscription_creation

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
        self.record_use(name)
        if position.skipped is not None:
            cursor.acknowledge((), [position.skipped])
            await cursor.wait_until_saved()

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Delete the subscription, with `force` also if it has consumers. Its cursor may be damaged or not open."""
        await self._change(
            name, DELETION, lambda subscription: self._delete(subscription, force), lambda: self._delete_named(name)
        )

    async def _delete(self, subscription: Subscription, force: bool) -> None:
        if subscription.consumers and not force:
            raise BrokerError(
                ErrorCode.CONSUMER_BUSY,
                f"subscription {subscription.name} has {len(subscription.consumers)} consumer(s): close "
                "them, or delete it with force",
            )
        await self._delete_cursor(subscription)
        subscription.close_after_deletion()

    async def delete_if(self, name: str, check: Callable[[], bool]) -> bool:
        """Delete the subscription if it has no consumers and `check`, which is called at the last moment, returns True.
        Return whether it was deleted."""

        async def delete(subscription: Subscription) -> bool:
            if subscription.consumers or not check():
                return False
            await self._delete(subscription, force=False)
            return True

        return await self._change(name, DELETION, delete)

    async def reset(self, name: str, to: StartAt) -> None:
        """Move the subscription and its consumers, as a seek does. If its cursor is damaged, or can't be opened now,
        the cursor is replaced, and its other acknowledgements are lost."""
        await self._change(name, "a reset", lambda subscription: subscription.seek(to), lambda: self._replace(name, to))

    async def _replace(self, name: str, to: StartAt) -> None:
        position = await find_start(self._log, to)
        if self._cursors.get(name) is not None:  # it was opened in the meantime
            await self._loaded_or_load(name).seek(to)
            return
        cursor = await self._cursors.replace(name, position.mark_delete)
        self.record_use(name)  # only the new one is known
        self._last_active.pop(name, None)
        if position.skipped is not None:
            cursor.acknowledge((), [position.skipped])
            await cursor.wait_until_saved()

    async def skip(self, name: str, entries: int) -> int:
        """Acknowledge the next entries, each of which may be a batch. Returns their number."""
        if entries < 0:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{entries} entries can't be skipped: use 0 or more")
        return await self._change(name, "a skip", lambda subscription: self._skip(subscription, entries))

    async def _skip(self, subscription: Subscription, entries: int) -> int:
        return await subscription.skip_to(await self._nth_open(subscription.cursor, entries))

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

    async def skip_all(self, name: str) -> int:
        """Acknowledge all entries that the log has now; also known as clear_backlog."""
        return await self._change(name, "a skip", lambda subscription: subscription.skip_to(self._log.last))

    async def expire(self, name: str, older_than_s: float) -> int:
        """Acknowledge the entries that a broker received before that time."""
        if not older_than_s >= 0:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, f"messages can't be older than {older_than_s} s: use 0 or more"
            )
        before_ms = max(0, int(self._clock.time_ms() - older_than_s * 1000))
        return await self._change(name, "an expiry", lambda subscription: self._expire(subscription, before_ms))

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
            subscription.release_if_idle()
        return True

    async def expire_before(self, name: str, first_left: StartMessageId) -> int:
        """Acknowledge everything before a message that the log has, or the next one. Returns the number of entries."""
        return await self._change(name, "an expiry", lambda subscription: self._expire_before(subscription, first_left))

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

        return await self._change(name, "an eviction", evict)

    def get_properties(self, name: str) -> Mapping[str, str]:
        """Return the properties of a durable subscription."""
        unopened = next((one for one in self._cursors.unopened_cursors() if one.name == name), None)
        return self._cursor(name).properties if unopened is None else unopened.properties

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of a durable subscription, durably."""

        async def change(subscription: Subscription) -> None:
            check_settable(name, subscription.cursor.properties, properties)
            await self._cursors.set_properties(name, properties)

        await self._change(name, "a change of its properties", change)

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
        return await self._changes.run_change(
            (name, True), "progress of its reader", lambda: self._advance(name, to, only_make, owner)
        )

    async def _advance(self, name: str, to: StartAt, only_make: bool, owner: ProgressOwner) -> Position:
        await self._cursors.wait_until_open(name)
        if self._cursors.get(name) is None:
            await self._create(name, to, owner.properties, may_exist=False)  # also if it is within a batch
        subscription = self._loaded_or_load(name)
        await advance(subscription, self._cursors, self._log, to, only_make, owner)
        self.record_use(name)
        return subscription.cursor.mark_delete

    async def measure_backlog(self, name: str) -> Backlog:
        """Count the messages from the durable subscription's first one that is not acknowledged on, less acknowledged
        ones. How many messages an entry has that is acknowledged as a whole is not in memory: one is subtracted, so for
        batches the number is an upper bound. Raises `BrokerError`."""
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
        cursor, start = self._cursor(name), first[0].position
        before = Position(start.ledger_id, start.entry_id - 1)
        entries = self._log.entries_between(before, self._log.last) - cursor.count_unacknowledged()
        acknowledged = max(0, entries) + cursor.count_acknowledged_messages()
        messages = max(0, self._log.next_index - (first[0].index - first[0].messages + 1) - acknowledged)
        return Backlog(messages, first[0].broker_time_ms)

    async def _change(
        self,
        name: str,
        what: str,
        change: Callable[[Subscription], Coroutine[Any, Any, T]],
        unopened: Callable[[], Coroutine[Any, Any, T]] | None = None,
    ) -> T:
        """Change the durable subscription that has the name when the change begins; `what` names the change. `unopened`
        is called instead if its cursor can't be opened; without it the change is refused."""
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

        return await self._changes.run_change((name, True), what, begin)
