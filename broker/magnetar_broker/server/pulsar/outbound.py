"""The frames that are sent to one client. Frames of one turn of the event loop, such as a thousand results, are one
write.

**Capacity.** Entries for consumers are limited before they are read (topics/dispatch/delivery_capacity.py):
`free_bytes` counts the bytes that wait here and in the transport. A client that takes nothing costs at most the
connection's limit, and no other client waits for it. Answers are not limited here. Instead the connection is not read
while its client does not take them (`is_behind`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker.settings.listeners import HIGH_WATER_BYTES
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget, OutboxCapacity

__all__ = ["OutboundFrames"]

# Frames of this size on average are written one by one; smaller ones are joined first.
_LARGE_FRAME_BYTES: Final = 8_192


class OutboundFrames(OutboxCapacity):
    __slots__ = (
        "_flushed_bytes",
        "_frames",
        "_is_flush_scheduled",
        "_loop",
        "_max_waiting_bytes",
        "_on_taken",
        "_reading_bytes",
        "_transport",
        "_unwritten_bytes",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        settings: BrokerServiceSettings,
        outbox_budget: OutboxBudget,
        on_taken: Callable[[], object],
    ) -> None:
        """`on_taken` is called whenever the client may have taken bytes."""
        super().__init__(settings.max_queued_bytes_per_stream, outbox_budget, self._offer_soon)
        self._transport = transport
        self._on_taken = on_taken
        self._max_waiting_bytes = self._max_bytes + settings.max_waiting_answers_bytes
        self._loop = asyncio.get_running_loop()
        self._frames: list[bytes] = []
        # Of these frames.
        self._unwritten_bytes = 0
        self._is_flush_scheduled = False
        # Bytes passed to the transport since the connection was opened.
        self._flushed_bytes = 0
        # Of entries that are being read for its consumers.
        self._reading_bytes = 0
        # The transport reports that bytes were taken only if more than the upper mark had waited. So the mark is below
        # what may wait, and below what each connection may always queue (`OutboxBudget`).
        high = min(HIGH_WATER_BYTES, self._max_bytes) - 1
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

    def release(self) -> None:
        """Drop the frames of a connection that is lost, and return all memory to the budget."""
        self._frames, self._unwritten_bytes = [], 0
        super().release()

    def update_capacity(self) -> None:
        """Offer the capacity that is free now, because the client may have taken bytes."""
        waiting = self.waiting_bytes
        if waiting or self._reading_bytes or self.queued_bytes:
            self._count(waiting)
        if self._waiting:
            self.offer()
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
        return waiting > 0 and self._budget.free_bytes_of_stream(self._max_waiting_bytes, waiting) < 0

    def _count(self, waiting: int) -> None:
        self.add(waiting + (0 if self.is_closed else self._reading_bytes) - self.queued_bytes)

    # Capacity for consumers.

    def free_bytes(self) -> int:
        """Return how many more bytes may wait here; 0 or less: none."""
        if self.is_closed:
            return 0
        waiting = self._unwritten_bytes + self._transport.get_write_buffer_size()
        return self._budget.free_bytes_of_stream(self._max_bytes, waiting + self._reading_bytes)

    def reserve(self, size_bytes: int) -> None:
        """Count entries that are being read. `queued_bytes` and the budget have them when frames are written next."""
        self._reading_bytes += size_bytes
        if size_bytes < 0:
            self._offer_soon()

    def _offer_soon(self) -> None:
        if self._waiting:
            self._loop.call_soon(self.update_capacity)
