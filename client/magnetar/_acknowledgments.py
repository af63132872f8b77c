"""Acknowledgements of one consumer, from the application's threads to its partitions.

The application acknowledges in any thread. `AckGroupingTracker` collects that in a `LoopInbox`. On the loop it adds
each acknowledgement to the `PendingAcks` of the partition that delivered the message, and has the partitions send them:
every `ack_grouping_time_ms`, as soon as there are `ack_grouping_max_size`, or at once if a receipt is requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from magnetar._message import DeliveredEntry, DeliveryEpoch, Message
from magnetar._pending_acks import AckReceipt, PendingAcks
from magnetar_wire.clock import Clock, Timer

__all__ = ["AckGroupingTracker", "AckTarget", "LoopInbox", "MessageIdTarget"]

T = TypeVar("T")
CallSoon = Callable[[Callable[[], object]], object]


@dataclass(slots=True, frozen=True)
class MessageIdTarget:
    """A message that the application names by its id; with `cumulative` all messages up to and including it."""

    # Its origin is the partition of the id.
    epoch: DeliveryEpoch
    ledger_id: int
    entry_id: int
    # -1: the whole entry.
    batch_index: int
    batch_size: int
    cumulative: bool


# What is acknowledged, also negatively.
AckTarget = Message | MessageIdTarget


class AckGroupingTracker:
    def __init__(
        self,
        call_soon: CallSoon,
        clock: Clock,
        send_partitions: Callable[[], object],
        *,
        grouping_time_ms: float,
        max_size: int,
    ) -> None:
        """`send_partitions` has each partition send its pending acknowledgements."""
        self._clock = clock
        self._send_partitions = send_partitions
        self._grouping_time_ms = grouping_time_ms
        self._inbox: LoopInbox[AckTarget] = LoopInbox(
            call_soon, self.send_soon, self.send_now, max_size if grouping_time_ms else 1
        )
        # Adds a target, from any thread. It is called for each message, so it is the inbox's own method.
        self.add = self._inbox.add
        self._timer: Timer | None = None
        self._is_closed = False

    # On the loop.

    def send_soon(self) -> None:
        """Send what is collected when the grouping time is over."""
        if self._is_closed:
            return
        if not self._grouping_time_ms:
            self.send_now()
        elif self._timer is None:
            self._timer = self._clock.call_later(self._grouping_time_ms / 1000, self.send_now)

    def send_now(self) -> None:
        self._cancel_timer()
        self.distribute()
        self._send_partitions()

    def send_with_receipt(self, targets: Iterable[AckTarget]) -> asyncio.Future[None]:
        """Send these now, with all that is collected. The future completes when they are durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: Exception | None) -> None:
            if future.done():  # it was cancelled, or has timed out
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        receipt = AckReceipt(settle)
        for acks, epochs in self._add_to_partitions(targets).items():
            acks.request_receipt(epochs.values(), receipt)
        self.send_now()
        return future

    def distribute(self) -> None:
        """Add what is collected to the partitions' pending acknowledgements."""
        self._add_to_partitions(self._inbox.drain())

    def _add_to_partitions(
        self, targets: Iterable[AckTarget]
    ) -> dict[PendingAcks, dict[tuple[int, int], DeliveryEpoch]]:
        """Return the changed partitions' acknowledgements, with the epochs of the targets."""
        rows_by_entry: dict[DeliveredEntry, list[int]] = {}
        changed: dict[PendingAcks, dict[tuple[int, int], DeliveryEpoch]] = {}

        def pending_acks(epoch: DeliveryEpoch) -> PendingAcks:
            acks: Any = epoch.origin.acks
            changed.setdefault(acks, {})[epoch.opening, epoch.number] = epoch
            found: PendingAcks = acks
            return found

        for target in targets:
            if isinstance(target, Message):
                rows = rows_by_entry.get(target._entry)
                if rows is None:
                    rows_by_entry[target._entry] = [target._row]
                else:
                    rows.append(target._row)
            else:
                acks = pending_acks(target.epoch)
                add = acks.add_cumulative if target.cumulative else acks.add_message
                add(target.epoch, target.ledger_id, target.entry_id, target.batch_index, target.batch_size)
        for entry, rows in rows_by_entry.items():
            pending_acks(entry.epoch).add_rows(entry, rows)
        return changed

    def close(self) -> None:
        self._is_closed = True
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LoopInbox(Generic[T]):
    """A list to which any thread adds, and which the loop empties.

    The loop is notified of the first item, and again when there are `size` items. Each other item costs an append.
    """

    def __init__(
        self,
        call_soon: CallSoon,
        on_first: Callable[[], object],
        on_full: Callable[[], object],
        size: int,
    ) -> None:
        """Both are called on the loop. `on_first` must lead to a call of `drain`."""
        self._call_soon = call_soon
        self._on_first = on_first
        self._on_full = on_full
        self._size = size
        self._items: list[T] = []
        # The loop was notified, and has not drained the items since.
        self._is_notified = False
        self._is_notified_full = False

    def add(self, item: T) -> None:
        # In this order: `drain` resets the flags before it copies the items.
        self._items.append(item)
        try:
            if not self._is_notified:
                self._is_notified = True
                self._call_soon(self._on_first)
            if len(self._items) >= self._size and not self._is_notified_full:
                self._is_notified_full = True
                self._call_soon(self._on_full)
        except BaseException:  # Ctrl-C: it is not known whether the loop was notified
            self._is_notified = self._is_notified_full = False
            raise

    def drain(self) -> list[T]:
        """Remove all items and return them. On the loop."""
        self._is_notified = self._is_notified_full = False
        items = self._items[:]
        del self._items[: len(items)]
        return items
