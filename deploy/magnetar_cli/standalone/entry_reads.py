"""The gRPC address that a standalone's broker and bookie share. Only reads of entries are passed to the bookie.

    clients ──gRPC──► one address ──┬─ read ──────────► the bookie   (reads without fencing, which change nothing)
                                    └─ other calls ───► the broker

The broker calls the bookie within the process. But Spark's tasks, which are other processes, read entries directly from
bookies. Broker and bookie have no call of the same name, so one gRPC address can serve both. The bookie is registered
with this address; within the process it names the bookie, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_protos.ledger_pb2 import ReadRequest
from magnetar_wire.transport import Code, Connection, Listener, Peer, Refusal, Service, Stream, Transport

__all__ = ["SharedListenerTransport"]

_READ: Final = "read"


class SharedListenerTransport:
    """A broker's transport whose listener passes entry reads to the bookie."""

    def __init__(self, transport: Transport, start_bookie: Callable[[str], Service]) -> None:
        """`start_bookie` is called with the listener's address before the broker serves clients."""
        self._transport = transport
        self._start_bookie = start_bookie

    def connect(self, address: str) -> Connection:
        return self._transport.connect(address)

    async def listen(self, address: str, service: Service) -> Listener:
        shared = _SharedService(service)
        listener = await self._transport.listen(address, shared)
        try:
            shared.bookie = self._start_bookie(listener.address)
        except BaseException:
            await listener.close()
            raise
        return listener


class _SharedService:
    def __init__(self, broker: Service) -> None:
        self._broker = broker
        # None: the listener is not open yet.
        self.bookie: Service | None = None

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method != _READ:
            return await self._broker.call(peer, method, request)
        if self.bookie is None:
            raise Refusal(Code.UNAVAILABLE, "the bookie has not started yet")
        try:
            fences = ReadRequest.FromString(request).fence
        except DecodeError as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"the {method} request can't be decoded: {error}") from None
        if fences:
            raise Refusal(
                Code.PERMISSION_DENIED, "fencing reads are refused: only the broker of this process may fence"
            )
        return await self.bookie.call(peer, method, request)

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        await self._broker.stream(peer, method, stream)
