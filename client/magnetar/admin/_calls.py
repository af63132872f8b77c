"""An administrator's way to the brokers: any of them is asked, and does or forwards it.

What only looks is asked again after a trouble of the moment. What changes something is asked again only where nobody
was reached, so nothing was done: where the answer was lost, the caller is told so, since only the caller can tell
whether a second attempt would be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar._connections import Connections
from magnetar._problems import from_problem, from_transport
from magnetar._service_url import parse_service_url
from magnetar.exceptions import ConnectError, MagnetarException, UnknownError
from magnetar_protos import admin_pb2 as pb
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.randomness import Randomness, SystemRandomness
from magnetar_wire.transport import NotReached, Transport, TransportError

__all__ = ["AdminCalls"]

A = TypeVar("A", bound=Message)


class AdminCalls:
    def __init__(
        self,
        service_url: str,
        operation_timeout_s: float,
        transport: Callable[[], Transport],
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        # Whom to ask next comes first.
        self._addresses = list(parse_service_url(service_url))
        self._timeout_s = operation_timeout_s
        self._transport = transport
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self.connections = self._new_connections()

    async def look(self, method: str, request: Message, kind: type[A]) -> A:
        return await self.connections.retried(lambda: self._ask(method, request, kind))

    async def change(self, method: str, request: Message) -> None:
        await self._ask(method, request, pb.Done)

    async def names(self, method: str, within: str = "", *, include_system: bool = False) -> list[str]:
        """All pages of them."""
        found: list[str] = []
        while True:
            request = pb.NamesRequest(within=within, after=found[-1] if found else "", include_system=include_system)
            answer = await self.look(method, request, pb.NamesAnswer)
            found += answer.names
            if not answer.more or not answer.names:
                return found

    async def _ask(self, method: str, request: Message, kind: type[A]) -> A:
        encoded = request.SerializeToString()
        refused: MagnetarException | None = None
        for address in list(self._addresses):
            connection = await self.connections.connection(address)
            try:
                answer = await connection.call(f"admin.{method}", encoded, timeout_s=self._timeout_s)
                return _read(kind.FromString, answer, method)
            except NotReached as error:
                refused = from_transport(error)
                if self._addresses[0] == address:
                    self._addresses.append(self._addresses.pop(0))
            except TransportError as error:
                told = from_transport(error)
                if isinstance(told, ConnectError):
                    told = ConnectError(f"whether admin.{method} was done is not known: {error}")
                raise told from error
        assert refused is not None
        raise refused

    def _new_connections(self) -> Connections:
        return Connections(
            self._transport(),
            self._addresses,
            self._clock,
            self._randomness,
            operation_timeout_s=self._timeout_s,
        )

    def forked(self) -> None:
        """In the child of a fork: what there was is the parent's."""
        self.connections = self._new_connections()

    async def close(self) -> None:
        await self.connections.close()


def _read(parse: Callable[[bytes], A], answer: bytes, method: str) -> A:
    try:
        parsed: Any = parse(answer)
    except DecodeError as error:
        raise UnknownError(f"the answer to admin.{method} can't be read: {error}") from error
    if parsed.HasField("problem"):
        raise from_problem(parsed.problem)
    read: A = parsed
    return read
