"""How a call or a stream ends that does not end well.

The status is sent once, by a task of its own, since a stream may be cancelled where nobody can wait. The handler then
leaves with what sending it raised: gRPC's library wants to see its own error again, and may not be used afterwards.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from magnetar_wire.grpc_transport.outcomes import FAILED, shortened, status_of, trailers
from magnetar_wire.grpc_transport.quiet_grpc import grpc
from magnetar_wire.transport import Refusal

__all__ = ["Ending"]


class Ending:
    def __init__(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        self._context = context
        self._sending: asyncio.Task[Any] | None = None

    @property
    def begun(self) -> bool:
        return self._sending is not None

    def refused(self, refusal: Refusal) -> None:
        self._send(status_of(refusal.code), shortened(str(refusal)), trailers(refusal.code.value))

    def failed(self) -> None:
        self._send(grpc.StatusCode.INTERNAL, "the server failed to handle the request: see its log", trailers(FAILED))

    def broken_off(self) -> None:
        """No mark: to the client the connection broke."""
        self._send(grpc.StatusCode.CANCELLED, "the server is shutting down", ())

    async def sent(self) -> NoReturn:
        """Waits until the status is sent, and leaves the handler."""
        assert self._sending is not None
        try:
            await self._sending
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError:  # the client is gone
            raise asyncio.CancelledError from None
        raise AssertionError("abort always raises")

    def _send(self, status: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str], ...]) -> None:
        """The first one counts."""
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._context.abort(status, details, trailing))
            # It always raises, and the handler may be cancelled before it asks.
            self._sending.add_done_callback(lambda sending: sending.cancelled() or sending.exception())
