"""Make admin calls: send a call to any of the brokers, and return its decoded response.

The call's row in the table of admin calls (magnetar_wire/admin/calls.py) says whether it may be sent again:

- An idempotent call goes to the addresses of the service URL like a client's lookups (_connections/lookup.py): to the
  next one after an error, and also if one is silent for a while.
- Any other call goes to the next one only if nothing was done: the broker was not reached, or it reports that it did
  nothing (it has no metadata session, or too many calls). If the answer was lost, the caller gets an error that says
  that the outcome is unknown, since only the caller knows whether a second attempt is right.

If no broker could do it, they are called again after a pause, until the operation's time is over.

The transport is gRPC's; with an http:// URL it is `_http_transport.py`, to which all of this applies as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from magnetar._connections.connection_pool import ConnectionPool
from magnetar._connections.endpoint_check import EndpointCheck, check_service_url
from magnetar._connections.lookup import AnyBroker
from magnetar._connections.operations import Operations
from magnetar._connections.service_url import http_scheme, parse_http_url, parse_service_url
from magnetar._errors import check_request_size, from_problem, from_transport
from magnetar.admin._values import make_request
from magnetar.exceptions import (
    ConnectError,
    MagnetarException,
    ServiceUnitNotReady,
    TooManyLookupRequestException,
    UnknownError,
)
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.randomness import Randomness, SystemRandomness
from magnetar_wire.transport import Code, NotReached, Rejected, Transport, TransportError

__all__ = ["AdminCalls"]

# The minimum timeout of an attempt, even if the operation's time is nearly over.
_MIN_ATTEMPT_S: Final = 0.1
# The maximum timeout of an attempt of an idempotent call, in operations with a longer timeout. A broker answers
# within half of it, if only with an error.
_MAX_ATTEMPT_S: Final = 60.0
# An idempotent call goes to the next broker as well if one is silent for this long. It may load many topics.
_SILENCE_S: Final = 3.0
# Errors name at most this many addresses.
_MAX_NAMED: Final = 5


class AdminCalls:
    def __init__(
        self,
        service_url: str,
        operation_timeout_s: float,
        transport: Callable[[], Transport],
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        listener_name: str = "",
    ) -> None:
        self.listener_name = listener_name
        self.over_http = bool(http_scheme(service_url))
        if not self.over_http:
            check_service_url(service_url)
        self._addresses = (parse_http_url if self.over_http else parse_service_url)(service_url)
        self._timeout_s = operation_timeout_s
        self._transport = transport
        self._clock = clock or SystemClock()
        self._any = AnyBroker(self._addresses, self._clock, _SILENCE_S)
        self._randomness = randomness or SystemRandomness()
        self._connect()

    def set_operation_timeout(self, seconds: float) -> None:
        self._timeout_s = self._operations.timeout_s = seconds

    async def call(self, name: str, /, **fields: Any) -> Any:
        """Make the call with these fields of the request, and return its response. Fields that are None stay unset."""
        call = ADMIN_CALLS[name]
        request = make_request(call, fields)
        return await (self._repeat(call, request) if call.idempotent else self._send_once(call, request))

    async def names(self, name: str, /, **fields: Any) -> list[str]:
        """Return the names in all pages of a list."""
        found: list[str] = []
        while True:
            answer = await self.call(name, **fields, after=found[-1] if found else "")
            found += answer.names
            if not answer.more or not answer.names:
                return found

    async def _repeat(self, call: AdminCall, request: Message) -> Any:
        send_to = self._sender(call, request, _MAX_ATTEMPT_S)
        started = self._clock.monotonic()
        try:
            return await self._operations.retry(lambda: self._any.ask(send_to))
        except ConnectError as error:
            if error.found is not None:
                raise
            raise self._unanswered(call, error, self._clock.monotonic() - started) from error.__cause__

    async def _send_once(self, call: AdminCall, request: Message) -> Any:
        send_to = self._sender(call, request)

        async def attempt() -> Any:
            try:
                return await self._any.ask_in_turn(send_to, _nothing_done)
            except MagnetarException as error:
                if _nothing_done(error):
                    raise
                return _Final(_unknown(call, error))

        outcome = await self._operations.retry(attempt)
        if isinstance(outcome, _Final):
            raise outcome.error
        return outcome

    def _unanswered(self, call: AdminCall, error: ConnectError, tried_s: float) -> ConnectError:
        """Return the error of an idempotent call: whether it was done does not matter."""
        addresses = ", ".join(self._addresses[:_MAX_NAMED]) + (", …" if len(self._addresses) > _MAX_NAMED else "")
        reached = not isinstance(error.__cause__, NotReached)
        problem = f"admin.{call.name} failed" if reached else "no broker can be reached"
        return ConnectError(f"{problem} at {addresses}, tried for {tried_s:.3g} s: {error}")

    def _sender(
        self, call: AdminCall, request: Message, max_attempt_s: float = math.inf
    ) -> Callable[[str], Coroutine[Any, Any, Any]]:
        """Return a function that sends the request to one broker, and waits for the answer as long as there is time
        left, `max_attempt_s` at most."""
        encoded = request.SerializeToString()
        check_request_size(encoded, f"admin.{call.name}")
        deadline = self._clock.monotonic() + self._timeout_s

        async def send_to(address: str) -> Any:
            connection = await self._pool.connection(address)
            timeout_s = min(max(deadline - self._clock.monotonic(), _MIN_ATTEMPT_S), max_attempt_s)
            try:
                answer = await connection.call(f"admin.{call.name}", encoded, timeout_s=timeout_s)
            except TransportError as error:
                raise from_transport(error) from error
            return _decode(call, answer)

        return send_to

    def _connect(self) -> None:
        transport = self._transport()
        self._pool = ConnectionPool(transport, self._addresses, self._clock)
        self._endpoint_check = EndpointCheck(self._addresses, self._clock, transport, over_http=self.over_http)
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
class _Final:
    """An error that ends the operation."""

    error: MagnetarException


def _unknown(call: AdminCall, error: MagnetarException) -> MagnetarException:
    """Return the error of a call that may have been done, if its request was sent and the answer was lost."""
    if not isinstance(error.__cause__, TransportError) or isinstance(error.__cause__, Rejected):
        return error
    unknown = ConnectError(f"whether admin.{call.name} was done is not known: {error}")
    unknown.__cause__ = error.__cause__
    return unknown


def _nothing_done(error: MagnetarException) -> bool:
    """Whether the call was not done, and may succeed later or at another broker."""
    cause = error.__cause__
    if isinstance(cause, Rejected):
        return cause.code in (Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED)
    return isinstance(cause, NotReached) or isinstance(error, ServiceUnitNotReady | TooManyLookupRequestException)


def _decode(call: AdminCall, answer: bytes) -> Any:
    try:
        response: Any = call.response.FromString(answer)
    except DecodeError as error:
        raise UnknownError(f"the response to admin.{call.name} can't be read: {error}") from error
    if response.HasField("problem"):
        raise from_problem(response.problem)
    return response
