"""Acknowledgements of one consumer, from the application's threads to its partitions.

The application acknowledges in any thread. `AckGroupingTracker` collects that in a `LoopInbox`. On the loop it adds
each acknowledgement to the `PendingAcks` of the partition that delivered the message, and has the partitions send them:
every `ack_grouping_time_ms`, as soon as there are `ack_grouping_max_size`, or at once if a receipt is requested.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from magnetar._acknowledging.ack_targets import AckTarget
from magnetar._acknowledging.ack_timeouts import AckTimeoutTracker
from magnetar._acknowledging.pending_acks import AckReceipt, PendingAcks
from magnetar._message import DeliveredEntry, DeliveryEpoch, Message
from magnetar._threads.loop_inbox import CallSoon, LoopInbox
from magnetar_wire.clock import Clock, Timer

__all__ = ["AckGroupingTracker"]


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
        self._call_soon = call_soon
        self._max_size = max_size
        self._inbox: LoopInbox[AckTarget | DeliveredEntry] = LoopInbox(
            call_soon, self.send_soon, self.send_now, max_size
        )
        # Messages of entries in the inbox. Threads may lose a count: then they are sent when the grouping time is over.
        self._count = 0
        # None: messages don't time out.
        self.timeouts: AckTimeoutTracker | None = None
        self._timer: Timer | None = None
        self._is_closed = False

    # From any thread.

    def add(self, target: AckTarget) -> None:
        """Add a target."""
        self._inbox.add(target)

    def add_message(self, message: Message[Any]) -> None:
        """Add a message. Only its row is held: a thousand messages that wait would cost the garbage collector more time
        than the acknowledgement itself."""
        entry = message._entry
        # In this order: `_take_rows` resets the flag before it copies the rows.
        entry.acknowledged_rows.append(message._row)
        try:
            if not entry.has_collected_acks:
                entry.has_collected_acks = True
                self._inbox.add(entry)
        except BaseException:  # Ctrl-C: it is not known whether the entry was added, and other threads may rely on it
            entry.has_collected_acks = False
            self._inbox.add(entry)
            raise
        self._count += 1
        if self._count >= self._max_size:
            self._count = 0
            self._call_soon(self.send_now)

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
        self._count = 0
        self._add_to_partitions(self._inbox.drain())

    def _add_to_partitions(
        self, targets: Iterable[AckTarget | DeliveredEntry]
    ) -> dict[PendingAcks, dict[tuple[int, int], DeliveryEpoch]]:
        """Return the changed partitions' acknowledgements, with the epochs of the targets."""
        timeouts = self.timeouts
        if timeouts is not None:
            timeouts.find_received()
        rows_by_entry: defaultdict[DeliveredEntry, list[int]] = defaultdict(list)
        changed: dict[PendingAcks, dict[tuple[int, int], DeliveryEpoch]] = {}

        def pending_acks(epoch: DeliveryEpoch) -> PendingAcks:
            acks: Any = epoch.origin.acks
            changed.setdefault(acks, {})[epoch.opening, epoch.number] = epoch
            found: PendingAcks = acks
            return found

        for target in targets:
            if isinstance(target, DeliveredEntry):
                if rows := _take_rows(target):  # an entry that two threads have added has none the second time
                    rows_by_entry[target] += rows
            elif isinstance(target, Message):
                rows_by_entry[target._entry].append(target._row)
            else:
                acks = pending_acks(target.epoch)
                add = acks.add_cumulative if target.cumulative else acks.add_message
                add(target.epoch, target.ledger_id, target.entry_id, target.batch_index, target.batch_size)
                if timeouts is not None:
                    timeouts.remove(target)
        for entry, rows in rows_by_entry.items():
            pending_acks(entry.epoch).add_rows(entry, rows)
            if timeouts is not None:
                timeouts.remove_rows(entry, rows)
        return changed

    def close(self) -> None:
        self._is_closed = True
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _take_rows(entry: DeliveredEntry) -> list[int]:
    """Remove the rows that the application has acknowledged, and return them."""
    entry.has_collected_acks = False
    rows = entry.acknowledged_rows[:]
    del entry.acknowledged_rows[: len(rows)]
    return rows
