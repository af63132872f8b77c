"""The status of a call or a stream that failed, and sending it.

The status is sent once, in a task of its own, since a stream may be cancelled by code that can't wait. Then the handler
raises the error of that task: gRPC's library expects its own error, and must not be used afterwards.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.outcomes import FAILED, make_trailers, shorten, to_status_code
from magnetar_wire.transport import Refusal

__all__ = ["ErrorStatus"]


class ErrorStatus:
    """The error status of one call or stream. Only the first status counts."""

    def __init__(self, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        self._context = context
        self._sending: asyncio.Task[Any] | None = None

    @property
    def is_sent(self) -> bool:
        return self._sending is not None

    def send_refusal(self, refusal: Refusal) -> None:
        self._send(to_status_code(refusal.code), shorten(str(refusal)), make_trailers(refusal.code.value))

    def send_failure(self) -> None:
        self._send(
            grpc.StatusCode.INTERNAL, "the server failed to handle the request: see its log", make_trailers(FAILED)
        )

    def send_cancelled(self) -> None:
        """Send a status without a mark: the client gets `Disconnected`."""
        self._send(grpc.StatusCode.CANCELLED, "the server is shutting down", ())

    async def wait_sent(self) -> NoReturn:
        """Wait until the status is sent, and raise the error with which the handler must end."""
        assert self._sending is not None
        try:
            await self._sending
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError:  # the client has disconnected
            raise asyncio.CancelledError from None
        raise AssertionError("abort always raises")

    def _send(self, status: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str], ...]) -> None:
        """Start sending a status. Only the first one counts."""
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._context.abort(status, details, trailing))
            # It always raises, and the handler may be cancelled before it retrieves the error.
            self._sending.add_done_callback(lambda sending: sending.cancelled() or sending.exception())
