"""What listens at the service's addresses, for the warning and the error while no broker answers.

A client retries for the operation's timeout, 30 s by default, because brokers may be restarting. A user with a wrong
address should learn that sooner. So when operations have had no answer from any broker for `WARN_AFTER_S`, one warning
is logged, with what a probe finds at the addresses; the next one only after a broker has answered in the meantime. A
broker that is merely slow causes no warning.

An operation that fails because no broker could be reached, and since whose start no broker has answered, raises
ConnectError with what the probe finds then (`ConnectError.found`). It does not take longer for that: the probe has the
operation's remaining time, and `LEAST_PROBE_S` at least. After that the error has the result of the last probe, if any.

**The probe.** A broker has three ports: its own protocol (gRPC, 6652 by default), which service URLs name, Pulsar's
(6650) and HTTP (8080). gRPC reports a wrong port, a firewall and an unresolvable name alike, as a failed connection. So
the probe connects without gRPC, and the reply tells the protocol:

    sent                          received                         the address is
    HTTP/2's preface              a frame of type SETTINGS         HTTP/2: gRPC, but maybe another server
                                  HTTP/1…                          an HTTP server
                                  a TLS alert                      a server that expects TLS
    CONNECT of Pulsar's protocol  CONNECTED, or any other command  a listener for Pulsar's clients

CONNECT is sent on another connection, if the preface got no reply. The reply is not trusted: at most `_MAX_REPLY` bytes
of it are read, and a few of them shown.

Only a transport that reaches real addresses can describe them (`DescribesEndpoints`). Operations share one probe.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, runtime_checkable

from magnetar._connections.service_url import DEFAULT_PORT, other_protocol_addresses, parse_service_url
from magnetar.exceptions import AlreadyClosed, ConnectError, InvalidUrl, MagnetarException, Timeout
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.interruptible_wait import join_thread
from magnetar_wire.transport import ForeignServer, NotReached, Transport

__all__ = [
    "LEAST_PROBE_S",
    "PULSAR_CONNECT",
    "WARN_AFTER_S",
    "DescribesEndpoints",
    "EndpointCheck",
    "check_service_url",
    "describe_endpoint",
    "describe_endpoints",
    "describe_http_endpoints",
    "describe_reply",
    "is_unreachable",
]

log = logging.getLogger("magnetar")

WARN_AFTER_S: Final = 1.0
LEAST_PROBE_S: Final = 0.3
_SHOWN_ADDRESSES: Final = 5
# A URL of another protocol is refused, but its addresses are probed for this long before.
_URL_PROBE_TIMEOUT_S: Final = 0.4
_URL_PROBE_LIMIT_S: Final = 1.0
_HTTP2_SETTINGS: Final = b"\0\0\0\x04\0\0\0\0\0"
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _HTTP2_SETTINGS
# A frame with a command alone: CONNECT (type 2), whose client_version is "probe" and protocol_version 19.
PULSAR_CONNECT: Final = b"\0\0\0\x11\0\0\0\x0d" + b"\x08\x02\x12\x09" + b"\x0a\x05probe" + b"\x20\x13"
_MAX_REPLY: Final = 4096
_SHOWN_BYTES: Final = 24
_PORT_HINT: Final = f"its own protocol, whose port is {DEFAULT_PORT}"
_HTTP_PORT_HINT: Final = "its HTTP API, whose port is 8080"
# For each of: resolving and connecting, the first reply, the second one.
_TIMEOUT_S: Final = 1.5
_MAX_ADDRESSES: Final = 5


@runtime_checkable
class DescribesEndpoints(Protocol):
    def describe_endpoints(self, addresses: Sequence[str], *, failed: bool) -> Coroutine[Any, Any, str]:
        """Describe what listens there, in a sentence without its end. `failed`: a request has reached no broker.
        Otherwise the text is empty if brokers may be there."""


def is_unreachable(error: MagnetarException) -> bool:
    """Return whether a request reached no broker: no server at all, or a server that is not a broker."""
    return isinstance(error, ConnectError) and isinstance(error.__cause__, NotReached | ForeignServer)


def check_service_url(url: str) -> None:
    """Raise InvalidUrl if this is not a service URL.

    If it is a URL of another protocol of brokers, the error describes what listens at its addresses, so that the
    user sees which URL to use. On a thread with a running event loop nothing is probed, because that would block it.
    """
    try:
        parse_service_url(url)
    except InvalidUrl as error:
        addresses = other_protocol_addresses(url)
        found = _describe_blocking(addresses) if addresses and not _is_on_loop() else ""
        if found:
            raise InvalidUrl(f"{error}. {found}") from None
        raise


class EndpointCheck:
    def __init__(
        self, addresses: Sequence[str], clock: Clock, transport: Transport, *, over_http: bool = False
    ) -> None:
        self._addresses = tuple(addresses)
        self._clock = clock
        self._describer = transport if isinstance(transport, DescribesEndpoints) else None
        self._port_hint = _HTTP_PORT_HINT if over_http else _PORT_HINT
        # How many answers of brokers there were.
        self.answers = 0
        # Since the last answer: whether a request has reached no broker; whether the warning was logged, or is not
        # needed, because a probe found what may be a slow broker.
        self._failed = False
        self._warned = False
        self._slow = False
        # The result of the last probe.
        self._found = ""
        # Operations in progress.
        self._operations = 0
        self._timer: Timer | None = None
        self._probe: asyncio.Task[str] | None = None
        self._warning: asyncio.Task[None] | None = None

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Watch an operation that asks brokers until one of them answers."""
        self._operations += 1
        self._set_timer()
        try:
            yield
        finally:
            self._operations -= 1
            if not self._operations:
                self._stop_timer()

    def answered(self) -> None:
        """Note that a broker has answered, even if with an error."""
        self.answers += 1
        self._stop_timer()
        if self._warned and not self._slow:
            log.info("a broker of %s answers again", self._shown_addresses())
        self._failed = self._warned = self._slow = False
        self._found = ""

    def failed(self, error: MagnetarException) -> None:
        """Note that an attempt has failed, which may be repeated."""
        if is_unreachable(error):
            self._failed = True
            if self._slow:
                self._slow = self._warned = False
        elif not isinstance(error, ConnectError | Timeout | AlreadyClosed):
            self.answered()
        self._set_timer()

    async def explain(self, error: MagnetarException, tried_s: float, left_s: float) -> MagnetarException:
        """Return the error of an operation that no broker has answered, with what is found at the addresses in the
        operation's remaining time."""
        found = await self._describe(max(left_s, LEAST_PROBE_S)) or self._found
        if not found or not isinstance(error, ConnectError) or error.found is not None:
            return error
        explained = ConnectError(
            f"no broker answers at {self._shown_addresses()}, tried for {tried_s:.3g} s: {found}. Is a broker running "
            f"(`magnetar standalone`), and is this the address of {self._port_hint} by default?"
        )
        explained.found = found
        explained.__cause__ = error.__cause__
        return explained

    def stop(self, cancel: Callable[[asyncio.Task[Any]], None]) -> None:
        """Stop probing, before connections are closed. `cancel` cancels a task, and waits for its end later."""
        self._stop_timer()
        for task in (self._warning, self._probe):
            if task is not None:
                cancel(task)
        self._warning = self._probe = None

    def _set_timer(self) -> None:
        if self._operations and self._timer is None and not self._warned:
            self._timer = self._clock.call_later(WARN_AFTER_S, self._warn_soon)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _warn_soon(self) -> None:
        self._timer = None
        self._warned = True
        if self._describer is None:
            self._warn("")
        else:
            self._warning = asyncio.get_running_loop().create_task(self._describe_and_warn())

    async def _describe_and_warn(self) -> None:
        answers = self.answers
        found = await self._describe()
        if self.answers != answers:
            return
        if found and self._operations:
            self._warn(found)
        elif not found and not self._failed:
            self._slow = True
        else:
            self._warned = False

    def _warn(self, found: str) -> None:
        log.warning(
            "no broker has answered for %g s at %s%s; still trying",
            WARN_AFTER_S,
            self._shown_addresses(),
            f": {found}" if found else "",
        )

    async def _describe(self, limit_s: float = math.inf) -> str:
        """Probe the addresses. Return an empty text if that takes longer, or is stopped."""
        if self._describer is None:
            return ""
        probe = self._probe
        if probe is None or probe.done():
            work = self._describer.describe_endpoints(self._addresses, failed=self._failed)
            probe = self._probe = asyncio.get_running_loop().create_task(work)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        probe.add_done_callback(end)
        timer = None if limit_s == math.inf else self._clock.call_later(limit_s, end)
        try:
            await ended
        finally:
            probe.remove_done_callback(end)
            if timer is not None:
                timer.cancel()
        if not probe.done() or probe.cancelled() or probe.exception() is not None:
            return ""
        self._found = probe.result()
        return self._found

    def _shown_addresses(self) -> str:
        more = len(self._addresses) - _SHOWN_ADDRESSES
        return ", ".join(self._addresses[:_SHOWN_ADDRESSES]) + (f" and {more} more" if more > 0 else "")


async def describe_endpoints(
    addresses: Sequence[str], timeout_s: float = _TIMEOUT_S, *, failed: bool | None = True
) -> str:
    """Describe what is found at each of the first addresses, in a sentence without its end.

    `failed`: a request has failed there. False: none has, so a server that answers in HTTP/2 may be a slow broker, and
    is not described. None: no request was made, because the URL has another scheme; then it is described as a broker.
    """
    probed = addresses[:_MAX_ADDRESSES]
    found = await asyncio.gather(*(describe_endpoint(address, timeout_s, failed=failed) for address in probed))
    return "; ".join(filter(None, found)) + (
        f"; {len(addresses) - len(probed)} more" if any(found) and len(addresses) > len(probed) else ""
    )


async def describe_http_endpoints(addresses: Sequence[str], *, tls: bool) -> str:
    """Describe what is found instead of a server for HTTP. A server for HTTP, or with `tls` for TLS, is not
    described."""
    found = await asyncio.gather(*(_describe_http_endpoint(address, tls) for address in addresses[:_MAX_ADDRESSES]))
    return "; ".join(filter(None, found))


async def _describe_http_endpoint(address: str, tls: bool) -> str:
    text = await describe_endpoint(address)
    expected = ("expects TLS", "accepts connections and sends nothing") if tls else ("answers in HTTP,",)
    if text.startswith(tuple(f"{address} {one}" for one in expected)):
        return ""
    return text.replace(", which a broker's own port does not speak", ": write https:// in the service URL")


async def describe_endpoint(address: str, timeout_s: float = _TIMEOUT_S, *, failed: bool | None = True) -> str:
    host, _, port = address.rpartition(":")
    try:
        reply = await _exchange(host.strip("[]"), int(port), _HTTP2_PREFACE, timeout_s)
        if not reply:
            reply = await _exchange(host.strip("[]"), int(port), PULSAR_CONNECT, timeout_s)
    except TimeoutError:
        return f"{address} can't be reached: it did not accept a connection within {timeout_s:g} s"
    except ConnectionRefusedError:
        return f"no process listens at {address}"
    except socket.gaierror as error:
        return f"the host name of {address} can't be resolved: {error.strerror}"
    except UnicodeError:  # Python's resolver raises it for labels that no host name has
        return f"the host name of {address} can't be resolved: it is not a host name"
    except OSError as error:
        return f"{address} can't be reached: {error.strerror or error}"
    return describe_reply(address, reply, failed=failed)


def _describe_blocking(addresses: Sequence[str]) -> str:
    """Describe the addresses of a URL with another scheme, to which no request was made, for a caller without an event
    loop. Return an empty text if that takes too long."""
    found: list[str] = []
    thread = threading.Thread(
        target=lambda: found.append(asyncio.run(describe_endpoints(addresses, _URL_PROBE_TIMEOUT_S, failed=None))),
        name="magnetar endpoint probe",
        daemon=True,
    )
    thread.start()
    join_thread(thread, _URL_PROBE_LIMIT_S)
    return found[0] if found else ""


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def describe_reply(address: str, reply: bytes, *, failed: bool | None = True) -> str:
    """Describe who listens by the first bytes of a reply to a probe."""
    if not reply:
        return f"{address} accepts connections and sends nothing: it hangs, has too many connections, or is no broker"
    if reply.startswith(b"HTTP/") or reply[:_SHOWN_BYTES].lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return f"{address} answers in HTTP, as a broker's port for its HTTP API does (8080 by default)"
    if _is_pulsar_frame(reply):
        version = _server_version(reply)
        text = f"{address} answers in Pulsar's protocol, as a broker's port for Pulsar's clients does (6650 by default)"
        return f"{text}, and calls itself {version!r}" if version else text
    if reply[:1] == b"\x15" and reply[1:2] == b"\x03":
        return f"{address} expects TLS, which a broker's own port does not speak"
    if len(reply) >= len(_HTTP2_SETTINGS) and reply[3:9] == _HTTP2_SETTINGS[3:9]:
        if failed is None:
            return f"{address} looks like a broker's own port: write magnetar://{address}"
        return f"{address} answers in HTTP/2, as gRPC does, but not as a broker" if failed else ""
    return f"{address} answers in another protocol, which begins with {reply[:_SHOWN_BYTES]!r}"


def _is_pulsar_frame(reply: bytes) -> bool:
    """Return whether the reply begins with the sizes of a frame and of its command, and with a command's type."""
    if len(reply) < 10:
        return False
    frame, command = int.from_bytes(reply[:4]), int.from_bytes(reply[4:8])
    return frame == command + 4 and reply[8] == 0x08


def _server_version(reply: bytes) -> str:
    """Return the version in the reply of a listener of Pulsar's protocol, or an empty text."""
    from google.protobuf.message import DecodeError

    from magnetar_protos.pulsar_pb2 import BaseCommand

    try:
        command = BaseCommand.FromString(reply[8 : 4 + int.from_bytes(reply[:4])])
    except DecodeError:
        return ""
    return command.connected.server_version[:_SHOWN_BYTES]


async def _exchange(host: str, port: int, request: bytes, timeout_s: float) -> bytes:
    """Return the beginning of the reply. It is empty if none came in time, or the connection was closed.

    Raises OSError if the connection fails.
    """
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port)
    reply = b""
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(request)
            reply = await reader.read(_MAX_REPLY)
    except OSError:  # TimeoutError is one
        pass
    finally:
        writer.close()
    return reply
