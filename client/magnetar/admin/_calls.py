"""An administrator's way to the brokers: any of them is asked, and does it or has it done by the one whose it is.

What only looks is asked of the addresses of the service's URL as a client's questions are (_lookup.py): of the next
one after any trouble of the moment, and besides where one is silent for a while. What changes something goes on to the
next only where nothing was done: nobody was reached, or the broker says so (it has no metadata session, or too much to
do). Where the answer was lost the caller is told so, since only the caller can tell whether a second attempt would be
right. When none could do it they are asked again after a pause, until the operation's time is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar._connection_pool import ConnectionPool
from magnetar._endpoint_check import EndpointCheck, check_service_url
from magnetar._errors import from_problem, from_transport
from magnetar._lookup import AnyBroker
from magnetar._operations import Operations
from magnetar._service_url import parse_service_url
from magnetar.exceptions import (
    ConnectError,
    MagnetarException,
    ServiceUnitNotReady,
    TooManyLookupRequestException,
    UnknownError,
)
from magnetar_protos import admin_pb2 as pb
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.randomness import Randomness, SystemRandomness
from magnetar_wire.transport import Code, NotReached, Rejected, Transport, TransportError

__all__ = ["AdminCalls"]

# Where hardly any time is left a broker has so long all the same.
_LEAST_WAIT_S: Final = 0.1
# A look is sent again if it is not answered for this long, in operations with a longer time-out. A broker answers
# within half of it, if only by an error.
_MAX_LOOK_S: Final = 60.0
# A look may open many topics, so the next broker is not asked for it at once.
_PATIENCE_S: Final = 3.0

# Errors name this many addresses.
_NAMED: Final = 5

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
        check_service_url(service_url)
        self._addresses = parse_service_url(service_url)
        self._timeout_s = operation_timeout_s
        self._transport = transport
        self._clock = clock or SystemClock()
        self._any = AnyBroker(self._addresses, self._clock, _PATIENCE_S)
        self._randomness = randomness or SystemRandomness()
        self._connect()

    def set_operation_timeout(self, seconds: float) -> None:
        self._timeout_s = self._operations.timeout_s = seconds

    async def look(self, method: str, request: Message, kind: type[A]) -> A:
        ask_at = self._asking(method, request, kind, _MAX_LOOK_S)
        started = self._clock.monotonic()
        try:
            return await self._operations.retry(lambda: self._any.ask(ask_at))
        except ConnectError as error:
            if error.found is not None:
                raise
            raise self._unanswered(method, error, self._clock.monotonic() - started) from error.__cause__

    async def change(self, method: str, request: Message) -> None:
        await self.changed(method, request, pb.Done)

    async def changed(self, method: str, request: Message, kind: type[A]) -> A:
        """What is answered to a change."""
        ask_at = self._asking(method, request, kind)

        async def attempt() -> A | _Told:
            try:
                return await self._any.ask_in_turn(ask_at, _nothing_done)
            except MagnetarException as error:
                if _nothing_done(error):
                    raise
                return _Told(_unknown(method, error))

        outcome = await self._operations.retry(attempt)
        if isinstance(outcome, _Told):
            raise outcome.error
        return outcome

    def _unanswered(self, method: str, error: ConnectError, tried_s: float) -> ConnectError:
        """The error of a look, which may be repeated, so that it does not matter whether it was done."""
        addresses = ", ".join(self._addresses[:_NAMED]) + (", …" if len(self._addresses) > _NAMED else "")
        reached = not isinstance(error.__cause__, NotReached)
        problem = f"admin.{method} failed" if reached else "no broker can be reached"
        return ConnectError(f"{problem} at {addresses}, tried for {tried_s:.3g} s: {error}")

    async def names(self, method: str, within: str = "", *, include_system: bool = False) -> list[str]:
        """All pages of them."""
        found: list[str] = []
        while True:
            request = pb.NamesRequest(within=within, after=found[-1] if found else "", include_system=include_system)
            answer = await self.look(method, request, pb.NamesAnswer)
            found += answer.names
            if not answer.more or not answer.names:
                return found

    def _asking(
        self, method: str, request: Message, kind: type[A], max_attempt_s: float = math.inf
    ) -> Callable[[str], Coroutine[Any, Any, A]]:
        """Return a function that sends the request to one broker, and waits for the answer as long as there is time
        left, `max_attempt_s` at most."""
        encoded = request.SerializeToString()
        deadline = self._clock.monotonic() + self._timeout_s

        async def ask_at(address: str) -> A:
            connection = await self._pool.connection(address)
            timeout_s = min(max(deadline - self._clock.monotonic(), _LEAST_WAIT_S), max_attempt_s)
            try:
                answer = await connection.call(f"admin.{method}", encoded, timeout_s=timeout_s)
            except TransportError as error:
                raise from_transport(error) from error
            return _read(kind.FromString, answer, method)

        return ask_at

    def _connect(self) -> None:
        transport = self._transport()
        self._pool = ConnectionPool(transport, self._addresses)
        self._endpoint_check = EndpointCheck(self._addresses, self._clock, transport)
        self._operations = Operations(self._pool, self._endpoint_check, self._clock, self._randomness, self._timeout_s)

    async def suspend(self) -> None:
        """Close all connections before a fork, and open none until `resume`."""
        self._endpoint_check.stop(self._pool.cancel)
        await self._pool.suspend()

    def resume(self) -> None:
        self._pool.resume()

    def forked(self) -> None:
        """Connect again in the child of a fork: the old connections are the parent's."""
        self._connect()

    async def close(self) -> None:
        self._endpoint_check.stop(self._pool.cancel)
        await self._pool.close()


@dataclass(frozen=True, slots=True)
class _Told:
    """What the caller is told, and is not tried again."""

    error: MagnetarException


def _unknown(method: str, error: MagnetarException) -> MagnetarException:
    """The error of a change that may have been done: a request was sent, and its answer did not come."""
    if not isinstance(error.__cause__, TransportError) or isinstance(error.__cause__, Rejected):
        return error
    unknown = ConnectError(f"whether admin.{method} was done is not known: {error}")
    unknown.__cause__ = error.__cause__
    return unknown


def _nothing_done(error: MagnetarException) -> bool:
    """It was not done, and may be a moment later, or by another broker."""
    cause = error.__cause__
    if isinstance(cause, Rejected):
        return cause.code in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)
    return isinstance(cause, NotReached) or isinstance(error, ServiceUnitNotReady | TooManyLookupRequestException)


def _read(parse: Callable[[bytes], A], answer: bytes, method: str) -> A:
    try:
        parsed: Any = parse(answer)
    except DecodeError as error:
        raise UnknownError(f"the answer to admin.{method} can't be read: {error}") from error
    if parsed.HasField("problem"):
        raise from_problem(parsed.problem)
    read: A = parsed
    return read
