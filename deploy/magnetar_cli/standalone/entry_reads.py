"""The standalone's bookie, as far as it is reached from outside the process: entries can be read, and nothing else.

    clients ──gRPC──► one address ──┬─ read ──────────► the bookie   (plain reads: no fence, nothing changed)
                                    └─ all else ──────► the broker

Brokers and the bookie speak within the process. But who is given a plan of a topic's log reads its entries past the
broker, as Spark's tasks do, and those are other processes. A broker and a bookie share no call of a name, so the one
gRPC address that a standalone has answers for both, and is what the bookie is registered with; within the process the
same address names the bookie itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from magnetar_protos.ledger_pb2 import ReadRequest
from magnetar_wire.transport import Code, Connection, Listener, Peer, Refusal, Service, Stream, Transport

__all__ = ["ListensForBoth"]

_READ: Final = "read"


class ListensForBoth:
    """A broker's transport, whose listener passes entry reads on to the bookie."""

    def __init__(self, transport: Transport, listening: Callable[[str], Service]) -> None:
        """`listening` is told of the address as soon as it is there, before anybody is served, and gives the bookie."""
        self._transport = transport
        self._listening = listening

    def connect(self, address: str) -> Connection:
        return self._transport.connect(address)

    async def listen(self, address: str, service: Service) -> Listener:
        both = _Both(service)
        listener = await self._transport.listen(address, both)
        try:
            both.bookie = self._listening(listener.address)
        except BaseException:
            await listener.close()
            raise
        return listener


class _Both:
    def __init__(self, broker: Service) -> None:
        self._broker = broker
        # None: the listener is not there yet.
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
