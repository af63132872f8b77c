"""Carry admin calls over HTTP, by the routes of their table: for brokers of Magnetar, and of Pulsar.

It implements `Transport`, so that all that is above it is the same as with gRPC: which broker is called next, what is
sent again, and what an error means (_calls.py). A call is not a message of its own here: it becomes a request of
Pulsar's REST API, and the answer to that becomes the call's response.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from magnetar._connections.endpoint_check import describe_http_endpoints
from magnetar.admin._http_answers import Refused, choose_route, make_problem, read_response
from magnetar.admin._http_exchange import AnswerTooLarge, HttpExchange
from magnetar.exceptions import InvalidConfiguration
from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_wire.admin.call import AdminCall
from magnetar_wire.admin.calls import ADMIN_CALLS
from magnetar_wire.transport import DeadlinePassed, Disconnected, NotReached

__all__ = ["HttpTransport"]

# Each call in flight has a thread. More calls wait.
_MAX_CALLS: Final = 32


class HttpTransport:
    def __init__(self, *, tls: bool, ca_file: str = "") -> None:
        """`ca_file`: certificates of the authorities to trust, in PEM; empty: the system's."""
        self._tls = _make_tls_context(ca_file) if tls else None
        self._slots = asyncio.Semaphore(_MAX_CALLS)

    def connect(self, address: str) -> Any:
        return _HttpConnection(address, self._tls, self._slots)

    async def listen(self, address: str, service: Any) -> Any:
        raise NotImplementedError("a client does not listen")

    async def describe_endpoints(self, addresses: Sequence[str], *, failed: bool) -> str:
        return await describe_http_endpoints(addresses, tls=self._tls is not None)


class _HttpConnection:
    """The calls to one address. Each has a connection of its own."""

    def __init__(self, address: str, tls: ssl.SSLContext | None, slots: asyncio.Semaphore) -> None:
        self._address = address
        self._tls = tls
        self._slots = slots
        self._calls: set[_Call] = set()

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        call = ADMIN_CALLS[method.removeprefix("admin.")]
        message: Any = call.request.FromString(request)
        try:
            route = choose_route(call, message)
        except Refused as refused:
            return _encode_problem(call, refused.problem)
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self._slots.acquire()
        except TimeoutError:
            raise NotReached(f"{_MAX_CALLS} calls are in flight, and none has ended within {timeout_s:.3g} s") from None
        try:
            exchange = HttpExchange(self._address, route.write(message), self._tls, timeout_s)

            def work() -> bytes:
                try:
                    return bytes(read_response(call, route, exchange.run()).SerializeToString())
                except AnswerTooLarge as error:
                    text = f"{self._address}: {error}. The call has ended, but its result is not known"
                    return _encode_problem(call, make_problem(ErrorCode.INTERNAL_ERROR, text))

            return await self._run(_Call(self._address, exchange, work), deadline, timeout_s)
        finally:
            self._slots.release()

    async def _run(self, one: _Call, deadline: float, timeout_s: float) -> bytes:
        self._calls.add(one)
        try:
            async with asyncio.timeout_at(deadline):
                return await one.run()
        except TimeoutError:
            if one.exchange.abort():
                raise DeadlinePassed(f"{self._address} did not answer within {timeout_s:.3g} s") from None
            raise NotReached(f"{self._address} can't be reached within {timeout_s:.3g} s") from None
        finally:
            one.exchange.abort()
            self._calls.discard(one)

    def open_stream(self, method: str) -> Any:
        raise NotImplementedError("there are no streams over HTTP")

    def reset_backoff(self) -> None:
        """There is none: each call connects."""

    async def close(self) -> None:
        for one in list(self._calls):
            one.close()


class _Call:
    """Runs an exchange in a thread, which the end of the process does not wait for."""

    def __init__(self, address: str, exchange: HttpExchange, work: Callable[[], bytes]) -> None:
        self.exchange = exchange
        self._address = address
        self._work = work
        self._done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def run(self) -> bytes:
        try:
            threading.Thread(target=self._run_in_thread, name="magnetar http", daemon=True).start()
        except RuntimeError as error:
            raise NotReached(f"no request can be sent now: {error}") from None
        return await self._done

    def close(self) -> None:
        """End the call with an error, because the client is closed or the process forks."""
        was_sent = self.exchange.abort()
        error = Disconnected if was_sent else NotReached
        self._end(None, error(f"the connection to {self._address} was closed"))

    def _run_in_thread(self) -> None:
        result: bytes | None = None
        failure: Exception | None = None
        try:
            result = self._work()
        except Exception as error:  # noqa: BLE001 (raised to the caller)
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._done.get_loop().call_soon_threadsafe(self._end, result, failure)

    def _end(self, result: bytes | None, failure: Exception | None) -> None:
        if self._done.done():
            return
        if failure is not None:
            self._done.set_exception(failure)
        else:
            assert result is not None
            self._done.set_result(result)


def _encode_problem(call: AdminCall, problem: Problem) -> bytes:
    response: Any = call.response(problem=problem)
    return bytes(response.SerializeToString())


def _make_tls_context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise InvalidConfiguration(f"the certificates in {ca_file!r} can't be read: {error}") from None
