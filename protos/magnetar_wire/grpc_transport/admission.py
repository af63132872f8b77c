"""What a server takes at a time, so that no client can have it take memory without end (CHK-49).

gRPC's core bounds one message, one header and how many streams a connection has; a thousand connections with a thousand
half-sent messages each it would take. So calls are let in here:

- requests that are being **received**: so many at a time, each of the largest size at worst. An honest one takes a
  moment. When another one comes and there is no room, the one that has been received for longest is broken off, if it
  has had its grace: whoever sends a byte a second keeps nobody out.
- requests that are being **answered**: so many bytes in all; one that would go above is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque

from magnetar_wire.grpc_transport.options import GrpcOptions
from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.transport import Code, Refusal

__all__ = ["Admission"]


class Admission:
    def __init__(self, options: GrpcOptions) -> None:
        self._options = options
        # Who receives a request, since when: the longest first.
        self._receiving: dict[asyncio.Task[object], float] = {}
        # Who waits for room to receive, the longest first.
        self._waiting: deque[asyncio.Future[None]] = deque()
        # The requests that are being answered.
        self._pending_bytes = 0

    async def receive(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes | None:
        """The request of a call; None where the client broke off. Raises `Refusal` where there is no room."""
        while len(self._receiving) >= self._options.grpc_max_receiving:
            await self._wait_for_room()
        reading: asyncio.Task[object] = asyncio.ensure_future(context.read())
        self._receiving[reading] = asyncio.get_running_loop().time()
        try:
            await asyncio.wait([reading])
        finally:
            del self._receiving[reading]
            self._wake_next()
            if not reading.done():  # cancelled ourselves: the read must not outlive the call
                reading.cancel()
                await asyncio.wait([reading])
        if reading.cancelled():
            raise Refusal(Code.RESOURCE_EXHAUSTED, "the request took too long to arrive while others waited")
        request = reading.result()
        if not isinstance(request, bytes):
            return None
        if self._pending_bytes + len(request) > self._options.grpc_max_pending_bytes:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"requests of {self._pending_bytes} bytes are being answered")
        self._pending_bytes += len(request)
        return request

    def answered(self, request: bytes) -> None:
        self._pending_bytes -= len(request)

    async def _wait_for_room(self) -> None:
        """Waits until somebody has received; breaks the slowest off when it has had its grace."""
        loop = asyncio.get_running_loop()
        grace_s = self._options.grpc_receiving_grace_ms / 1000
        waiter = loop.create_future()
        self._waiting.append(waiter)
        try:
            while not waiter.done():
                # There is one: whoever receives last wakes whoever waits.
                slowest, since = next(iter(self._receiving.items()))
                await asyncio.wait([waiter], timeout=max(0.0, since + grace_s - loop.time()))
                if not waiter.done() and since + grace_s <= loop.time():
                    slowest.cancel()
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
