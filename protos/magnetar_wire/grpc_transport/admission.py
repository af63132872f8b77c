"""What a server takes at a time, so that no client can have it take memory without end (CHK-49).

gRPC's core bounds one piece of a message (`wire.py`), one header and how many streams a connection has; a thousand
connections with a thousand half-sent messages each it would take. So what is larger than a piece is let in here, and
every call:

- messages that are being **received**: so many at a time, each of the largest size at worst. An honest one takes a
  moment. When another one comes and there is no room, the one that has been received for longest is broken off, if it
  has had its grace: whoever sends a byte a second keeps nobody out. A large message of a stream keeps its place until
  the service has taken it, with a longer grace: the service may be waiting for its disk.
- calls that are being **answered**: so many bytes in all; one that would go above is refused.

What a stream holds beside that is bounded per stream (`served_stream.py`), and over all of them; and so is how many
streams there are, in all and of one connection (`listener.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable

from magnetar_wire.grpc_transport.options import GrpcOptions
from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.grpc_transport.wire import joined
from magnetar_wire.pipe import SharedBytes
from magnetar_wire.transport import Code, Refusal

__all__ = ["Admission", "Place"]


class Place:
    """Of one message that is being received."""

    def __init__(self, until: float) -> None:
        # When it may be broken off, if somebody else waits.
        self.until = until
        self.break_off: Callable[[], object] | None = None


class Admission:
    def __init__(self, options: GrpcOptions) -> None:
        self._options = options
        self._places: dict[Place, None] = {}
        # Who waits for a place, the longest first.
        self._waiting: deque[asyncio.Future[None]] = deque()
        # What waits in streams, for the service or for the client.
        self.held_by_streams = SharedBytes(options.grpc_max_stream_bytes)
        # The calls that are being answered.
        self._pending_bytes = 0

    async def receive(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes | None:
        """The request of a call; None where the client broke off. Raises `Refusal` where there is no room."""
        place = await self.enter()
        reading: asyncio.Task[bytes | None] = asyncio.get_running_loop().create_task(_request(context))
        place.break_off = reading.cancel
        try:
            await asyncio.wait([reading])
        finally:
            self.leave(place)
            if not reading.done():  # cancelled ourselves: the read must not outlive the call
                reading.cancel()
                await asyncio.wait([reading])
        if reading.cancelled():
            raise Refusal(Code.RESOURCE_EXHAUSTED, "the request took too long to arrive while others waited: try again")
        request = reading.result()
        if request is None:
            return None
        if self._pending_bytes + len(request) > self._options.grpc_max_pending_bytes:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED,
                f"the server is busy with requests of {self._pending_bytes} bytes: try again later",
            )
        self._pending_bytes += len(request)
        return request

    def answered(self, request: bytes) -> None:
        self._pending_bytes -= len(request)

    async def enter(self) -> Place:
        """A place, when there is one. Whoever has it leaves, and says how to break it off."""
        while len(self._places) >= self._options.grpc_max_receiving:
            await self._wait_for_room()
        place = Place(asyncio.get_running_loop().time() + self._options.grpc_receiving_grace_ms / 1000)
        self._places[place] = None
        return place

    def received(self, place: Place) -> None:
        """It is there as a whole, and waits for the service."""
        if place.until != math.inf:
            place.until = asyncio.get_running_loop().time() + self._options.grpc_taking_grace_ms / 1000

    def leave(self, place: Place) -> None:
        del self._places[place]
        self._wake_next()

    async def _wait_for_room(self) -> None:
        """Waits until somebody has left; breaks the slowest off when it has had its grace."""
        loop = asyncio.get_running_loop()
        grace_s = self._options.grpc_receiving_grace_ms / 1000
        waiter = loop.create_future()
        self._waiting.append(waiter)
        try:
            while not waiter.done():
                # There may be none: those that were woken have not come yet.
                slowest = min(self._places, key=lambda place: place.until, default=None)
                until = math.inf if slowest is None else slowest.until
                if slowest is not None and until <= loop.time():
                    slowest.until = until = math.inf  # it is about to leave; the next who waits takes the next
                    if slowest.break_off is not None:
                        slowest.break_off()
                # Others may have come by then whose time is up earlier.
                await asyncio.wait([waiter], timeout=min(max(grace_s, 0.001), max(0.0, until - loop.time())))
        except asyncio.CancelledError:
            if waiter.done():  # it was this one's turn, and is the next one's now
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
    return await joined(first, context.read) if isinstance(first, bytes) else None
