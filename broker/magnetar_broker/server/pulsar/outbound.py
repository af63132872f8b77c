"""The frames that are sent to one client. Frames of one turn of the event loop, such as a thousand receipts, are one
write.

**Capacity.** Entries for consumers are limited before they are read: `capacity_for` returns how many more bytes the
connection, and all connections together (server/outbox_budget.py), may queue. A client that takes nothing costs at most
that, and no other client waits for it. Answers are not limited here. Instead the connection is not read while its
client does not take them (`is_behind`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker.server.outbox_budget import OutboxBudget
from magnetar_broker.settings.listeners import HIGH_WATER_BYTES
from magnetar_broker.settings.service import BrokerServiceSettings

__all__ = ["OutboundFrames"]

# Frames of this size on average are written one by one; smaller ones are joined first.
_LARGE_FRAME_BYTES: Final = 8_192


class OutboundFrames:
    __slots__ = (
        "_counted_bytes",
        "_flushed_bytes",
        "_frames",
        "_is_closed",
        "_is_flush_scheduled",
        "_loop",
        "_max_queued_bytes",
        "_max_waiting_bytes",
        "_on_taken",
        "_outbox_budget",
        "_reserved_bytes",
        "_transport",
        "_unwritten_bytes",
        "_without_capacity",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        settings: BrokerServiceSettings,
        outbox_budget: OutboxBudget,
        on_taken: Callable[[], object],
    ) -> None:
        """`on_taken` is called whenever the client may have taken bytes."""
        self._transport = transport
        self._outbox_budget = outbox_budget
        self._on_taken = on_taken
        self._max_queued_bytes = settings.max_queued_bytes_per_stream
        self._max_waiting_bytes = self._max_queued_bytes + settings.max_waiting_answers_bytes
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._frames: list[bytes] = []
        # Of these frames.
        self._unwritten_bytes = 0
        self._is_flush_scheduled = False
        # Bytes passed to the transport since the connection was opened.
        self._flushed_bytes = 0
        # Bytes that are being read for consumers, and bytes of this connection that the budget counts.
        self._reserved_bytes = 0
        self._counted_bytes = 0
        # Callbacks of consumers that found no capacity, in that order.
        self._without_capacity: dict[Callable[[], object], None] = {}
        # The transport reports that bytes were taken only if more than the upper mark had waited. So the mark is below
        # what may wait, and below what each connection may always queue (outbox_budget.py).
        high = min(HIGH_WATER_BYTES, self._max_queued_bytes) - 1
        transport.set_write_buffer_limits(high=high, low=high // 4)

    def write(self, data: bytes) -> None:
        """Send a frame at the end of this turn of the event loop."""
        self._frames.append(data)
        self._unwritten_bytes += len(data)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self.flush)

    def write_all(self, parts: Sequence[bytes], size_bytes: int) -> None:
        """Send several frames, or parts of frames, whose total size the caller knows."""
        self._frames += parts
        self._unwritten_bytes += size_bytes
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Pass all frames to the transport."""
        self._is_flush_scheduled = False
        frames, self._frames = self._frames, []
        size, self._unwritten_bytes = self._unwritten_bytes, 0
        transport = self._transport
        if not frames or transport.is_closing():
            return
        self._flushed_bytes += size
        if size > _LARGE_FRAME_BYTES * len(frames):
            transport.writelines(frames)
        else:
            transport.write(b"".join(frames))
        self.update_capacity()

    def close(self) -> None:
        """Offer no more capacity to consumers."""
        self._is_closed = True
        self._without_capacity.clear()

    def release(self) -> None:
        """Drop the frames of a connection that is lost, and return their memory to the budget."""
        self._frames, self._unwritten_bytes = [], 0
        self._count(0)

    def update_capacity(self) -> None:
        """Offer the capacity that is free now, because the client may have taken bytes."""
        waiting = self.waiting_bytes
        if waiting or self._reserved_bytes or self._counted_bytes:
            self._count(waiting)
        if self._without_capacity:
            self._offer_capacity()
        self._on_taken()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were written here, and that the client's side has not taken."""
        return self._unwritten_bytes + self._transport.get_write_buffer_size()

    @property
    def taken_bytes(self) -> int:
        """Bytes that the client's side has taken since the connection was opened."""
        return self._flushed_bytes - self._transport.get_write_buffer_size()

    @property
    def is_behind(self) -> bool:
        """Whether more bytes wait than may wait. The transport reports when the client has taken some."""
        waiting = self._unwritten_bytes + self._transport.get_write_buffer_size()
        return waiting > 0 and self._outbox_budget.free_bytes(self._max_waiting_bytes, waiting) < 0

    def _count(self, size_bytes: int) -> None:
        size_bytes += 0 if self._is_closed else self._reserved_bytes
        self._outbox_budget.queued_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes

    # Capacity for consumers.

    def capacity_for(self, on_capacity: Callable[[], object]) -> int:
        """Return how many bytes of entries may be read for this connection.

        If there is no capacity, `on_capacity` is called once there is.
        """
        if self._is_closed:
            return 0
        # Not by `_free_bytes`: this is called several times for each message.
        waiting = self._transport.get_write_buffer_size()
        free = self._outbox_budget.free_bytes(
            self._max_queued_bytes, waiting + self._unwritten_bytes + self._reserved_bytes
        )
        if free <= 0:
            self._without_capacity[on_capacity] = None
        return free

    def forget(self, on_capacity: Callable[[], object]) -> None:
        self._without_capacity.pop(on_capacity, None)

    def reserve(self, size_bytes: int) -> None:
        """Reserve capacity for entries that are being read; below 0: return it."""
        self._reserved_bytes += size_bytes
        if size_bytes < 0 and self._without_capacity:
            self._loop.call_soon(self.update_capacity)

    @property
    def _free_bytes(self) -> int:
        return self._outbox_budget.free_bytes(self._max_queued_bytes, self.waiting_bytes + self._reserved_bytes)

    def _offer_capacity(self) -> None:
        """Call consumers while there is capacity. One that finds none joins the end of the line."""
        for _ in range(len(self._without_capacity)):
            if self._is_closed or not self._without_capacity or self._free_bytes <= 0:
                return
            on_capacity = next(iter(self._without_capacity))
            del self._without_capacity[on_capacity]
            on_capacity()
