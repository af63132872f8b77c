"""How much a server receives at a time, so that no client can make it allocate unlimited memory (CHK-49).

gRPC's core limits one piece of a message (`wire.py`), one header, and the number of streams of a connection. It would
accept a thousand connections with a thousand half-sent messages each. So calls, and messages larger than a piece, are
admitted here:

- messages that are being **received**: a limited number at a time, each of the maximum size at worst. A normal message
  takes a moment. If another message arrives and no slot is free, the one that has been in reception for longest is
  cancelled, if it has had its grace: a client that sends a byte per second blocks nobody. A large message of a stream
  keeps its slot until the service has received it, with a longer grace: the service may be waiting for its disk.
- calls that are being **answered**: a limited number of bytes in total; a call above the limit is refused.

The rest of a stream's memory is limited per stream (`served_stream.py`), and over all streams. The number of streams is
limited, too, in total and for each connection (`listener.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import join_pieces
from magnetar_wire.pipe import SharedBytes
from magnetar_wire.transport import Code, Refusal

__all__ = ["Admission", "Slot"]


class Slot:
    """The slot of one message that is being received."""

    def __init__(self, until: float) -> None:
        # The time from which it may be cancelled in favor of another message.
        self.until = until
        self.cancel_reception: Callable[[], object] | None = None


class Admission:
    """The slots and the pending calls of one listener."""

    def __init__(self, settings: GrpcSettings) -> None:
        self._settings = settings
        self._slots: dict[Slot, None] = {}
        # The waiters for a slot, the longest first.
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Messages that wait in streams, for the service or for the client.
        self.held_by_streams = SharedBytes(settings.grpc_max_stream_bytes)
        # The bytes of calls that are being answered.
        self._pending_bytes = 0

    async def receive(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes | None:
        """Return the request of a call, or None if the client disconnected. Raise `Refusal` if there is no capacity."""
        slot = await self.acquire_slot()
        reading: asyncio.Task[bytes | None] = asyncio.get_running_loop().create_task(_request(context))
        slot.cancel_reception = reading.cancel
        try:
            await asyncio.wait([reading])
        finally:
            self.release_slot(slot)
            if not reading.done():  # this task was cancelled: the read must not outlive the call
                reading.cancel()
                await asyncio.wait([reading])
        if reading.cancelled():
            raise Refusal(Code.RESOURCE_EXHAUSTED, "the request took too long to arrive while others waited: try again")
        request = reading.result()
        if request is None:
            return None
        if self._pending_bytes + len(request) > self._settings.grpc_max_pending_bytes:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED,
                f"the server is busy with requests of {self._pending_bytes} bytes: try again later",
            )
        self._pending_bytes += len(request)
        return request

    def release_request(self, request: bytes) -> None:
        """Release the bytes of a request that `receive` returned."""
        self._pending_bytes -= len(request)

    async def acquire_slot(self) -> Slot:
        """Wait for a slot. The caller must `release_slot` it, and set how the reception is cancelled."""
        while len(self._slots) >= self._settings.grpc_max_receiving:
            await self._wait_for_slot()
        slot = Slot(asyncio.get_running_loop().time() + self._settings.grpc_receiving_grace_ms / 1000)
        self._slots[slot] = None
        return slot

    def extend_grace(self, slot: Slot) -> None:
        """Extend the grace of a message that is complete, and that the service has not received yet."""
        if slot.until != math.inf:
            slot.until = asyncio.get_running_loop().time() + self._settings.grpc_processing_grace_ms / 1000

    def release_slot(self, slot: Slot) -> None:
        """Release a slot."""
        del self._slots[slot]
        self._wake_next()

    async def _wait_for_slot(self) -> None:
        """Wait until a slot is released. Cancel the slowest reception when its grace is over."""
        loop = asyncio.get_running_loop()
        grace_s = self._settings.grpc_receiving_grace_ms / 1000
        waiter = loop.create_future()
        self._waiting.append(waiter)
        try:
            while not waiter.done():
                # There may be no slots in use: woken waiters have not taken them yet.
                slowest = min(self._slots, key=lambda slot: slot.until, default=None)
                until = math.inf if slowest is None else slowest.until
                if slowest is not None and until <= loop.time():
                    slowest.until = until = math.inf  # it is about to leave; the next waiter cancels the next one
                    if slowest.cancel_reception is not None:
                        slowest.cancel_reception()
                # Receptions that end earlier may have begun by then.
                await asyncio.wait([waiter], timeout=min(max(grace_s, 0.001), max(0.0, until - loop.time())))
        except asyncio.CancelledError:
            if waiter.done():  # the slot goes to the next waiter
                self._wake_next()
            raise
        finally:
            waiter.cancel()

    def _wake_next(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


async def _request(context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes | None:
    first = await context.read()
    return await join_pieces(first, context.read) if isinstance(first, bytes) else None
