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

from magnetar._ack_targets import AckTarget
from magnetar._ack_timeouts import AckTimeoutTracker
from magnetar._loop_inbox import CallSoon, LoopInbox
from magnetar._message import DeliveredEntry, DeliveryEpoch, Message
from magnetar._pending_acks import AckReceipt, PendingAcks
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
        self._inbox: LoopInbox[AckTarget] = LoopInbox(call_soon, self.send_soon, self.send_now, max_size)
        # Adds a target, from any thread. It is called for each message, so it is the inbox's own method.
        self.add = self._inbox.add
        # None: messages don't time out.
        self.timeouts: AckTimeoutTracker | None = None
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

        last: DeliveredEntry | None = None
        rows: list[int] = []
        for target in targets:
            if isinstance(target, Message):
                if target._entry is not last:  # most messages follow one of the same entry
                    last = target._entry
                    rows = rows_by_entry[last]
                rows.append(target._row)
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
