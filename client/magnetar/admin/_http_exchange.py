"""One HTTP request of an administration client, and its answer.

    HttpExchange.run (a thread) ──► connect ──► send ──► read ──► HttpAnswer
                                       ▲                   │
                                       └── 307, 308 ───────┘

`run` blocks, so each exchange has a thread and a connection of its own: administration is rare, and nothing is left to
share when the process forks. `abort` ends an exchange from another thread, and returns whether the request may have
been sent. Until then nothing was done (`NotReached`); from then on that is unknown.

Pulsar's brokers redirect a call to the topic's owner. Redirects are followed `_MAX_REDIRECTS` times, to other addresses
but to the same path only: a server that redirects elsewhere, for example to a page where users log in, is not a broker.

An answer is read up to `MAX_ANSWER_BYTES`. What a server sends is never trusted: http.client limits the lines and
headers, and the caller's timeout ends an exchange with a server that never stops to send.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from magnetar_wire.admin.http.route import HttpRequest
from magnetar_wire.transport import (
    Code,
    DeadlinePassed,
    Disconnected,
    Failed,
    ForeignServer,
    NotReached,
    Rejected,
)

__all__ = ["MAX_ANSWER_BYTES", "AnswerTooLarge", "HttpAnswer", "HttpExchange"]

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = (307, 308)
_CHUNK_BYTES: Final = 1024 * 1024
_PORTS: Final = {"http": 80, "https": 443}


class AnswerTooLarge(Exception):
    """The answer has more than `MAX_ANSWER_BYTES`."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    # The broker that answered: another one than the one called, after a redirect.
    address: str
    status: int
    # Names are in lower case. Of a header that is there several times, this has the first value.
    headers: Mapping[str, str]
    warnings: tuple[str, ...]
    body: bytes


class HttpExchange:
    def __init__(self, address: str, request: HttpRequest, tls: ssl.SSLContext | None, timeout_s: float) -> None:
        """`tls`: None for http. `timeout_s` limits each step; the caller limits all of them, by `abort`."""
        self._address = address
        self._request = request
        self._tls = tls
        self._timeout_s = timeout_s
        # Protects the fields below.
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False
        # Whether a broker may carry out the request: it was sent, and not redirected.
        self._sent = False

    def abort(self) -> bool:
        """End the exchange. Return whether the request may have been sent; if not, it will not be."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):  # it is closed
                    # SSLSocket.shutdown would take TLS away while another thread reads.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            return self._sent

    def run(self) -> HttpAnswer:
        """Return the answer, also one with an error status. Raises TransportError and AnswerTooLarge."""
        address, target, tls = self._address, self._request.target, self._tls
        for _ in range(_MAX_REDIRECTS + 1):
            connection = self._connect(address, tls)
            try:
                answer = self._ask(connection, address, target)
            finally:
                connection.close()
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or location is None:
                return answer
            address, target, is_secure = self._follow(answer, location, target)
            tls = tls if is_secure else None
            with self._lock:
                self._sent = False
        raise Rejected(
            Code.UNAVAILABLE,
            f"{self._address} redirected the request {_MAX_REDIRECTS + 1} times, at last to {address}: the brokers do "
            "not agree on the owner",
        )

    def _connect(self, address: str, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
        connection = (
            http.client.HTTPConnection(address, timeout=self._timeout_s)
            if tls is None
            else http.client.HTTPSConnection(address, timeout=self._timeout_s, context=tls)
        )
        connection.response_class = _LimitedResponse
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise Rejected(
                Code.UNAUTHENTICATED, f"the certificate of {address} is not valid: {error.verify_message}"
            ) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a label that no host name has
            connection.close()
            raise NotReached(f"{address} can't be reached: {_describe(error)}") from error
        return connection

    def _ask(self, connection: http.client.HTTPConnection, address: str, target: str) -> HttpAnswer:
        self._begin_to_send(connection, address)
        try:
            self._send(connection, target)
            response = connection.getresponse()
            body = _read_body(response)
        except TimeoutError as error:
            raise DeadlinePassed(f"{address} did not answer within {self._timeout_s:.3g} s") from error
        except (OSError, http.client.IncompleteRead) as error:  # RemoteDisconnected is an OSError
            raise Disconnected(f"the connection to {address} broke: {_describe(error)}") from error
        except (http.client.BadStatusLine, http.client.UnknownProtocol) as error:
            raise ForeignServer(f"{address} does not answer in HTTP") from error
        except (http.client.HTTPException, ValueError) as error:
            raise Failed(f"the answer of {address} is not valid HTTP: {_describe(error)}") from error
        headers: dict[str, str] = {}
        for name, value in response.getheaders():
            key = name.lower()
            # A message's metadata has several of some, e.g. encryption keys.
            several = key in headers and key.startswith("x-pulsar-")
            headers[key] = f"{headers[key]}, {value}" if several else headers.get(key, value)
        return HttpAnswer(address, response.status, headers, tuple(response.headers.get_all("warning") or ()), body)

    def _begin_to_send(self, connection: http.client.HTTPConnection, address: str) -> None:
        with self._lock:
            if self._aborted:
                raise NotReached(f"{address} was not reached in time")
            self._socket = connection.sock
            self._sent = True

    def _send(self, connection: http.client.HTTPConnection, target: str) -> None:
        headers = {"Accept": "*/*", "Connection": "close"}
        body = None
        if self._request.body is not None:
            body = json.dumps(self._request.body, separators=(",", ":")).encode()
            headers["Content-Type"] = self._request.content_type
        connection.request(self._request.verb, target, body, headers)

    def _follow(self, answer: HttpAnswer, location: str, target: str) -> tuple[str, str, bool]:
        """Return the address and target of a redirect, and whether it is https. Raises TransportError."""
        try:
            url = urlsplit(location)
            address = f"{_bracketed(url.hostname or '')}:{url.port or _PORTS.get(url.scheme, 0)}"
            path_is_same = unquote_to_bytes(url.path) == unquote_to_bytes(target.partition("?")[0])
        except ValueError:
            raise ForeignServer(f"{answer.address} redirects to {location!r:.200}, which is no URL") from None
        if url.scheme not in _PORTS or not url.hostname or not path_is_same:
            raise ForeignServer(
                f"{answer.address} redirects to {location!r:.200}, as no broker does: check the service URL"
            )
        if (url.scheme == "https") != (self._tls is not None):
            raise ForeignServer(f"{answer.address} redirects to {location!r:.200}: use {url.scheme} in the service URL")
        return address, f"{url.path}?{url.query}" if url.query else url.path, url.scheme == "https"


class _LimitedReader(io.RawIOBase):
    """Reads from another reader, and counts."""

    def __init__(self, source: io.BufferedReader) -> None:
        self._source = source
        self._left = MAX_ANSWER_BYTES
        # Whether the other end has closed its direction, and that was read.
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count = self._source.readinto1(buffer)
        self.ended = not count
        self._left -= count
        if self._left < 0:
            raise AnswerTooLarge(f"the answer has more than {MAX_ANSWER_BYTES // 1024**2} MiB")
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


class _LimitedResponse(http.client.HTTPResponse):
    """Limits all bytes that are read, and detects an end amid the headers.

    http.client alone would read until the end of the connection after a chunk whose size is -1, and would take half of
    the headers for all.
    """

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self._reader = _LimitedReader(self.fp)
        self.fp: Any = io.BufferedReader(self._reader)

    def begin(self) -> None:
        super().begin()
        if self._reader.ended:
            raise http.client.RemoteDisconnected("the answer is incomplete")


def _read_body(response: http.client.HTTPResponse) -> bytes:
    """Return the body. Raises IncompleteRead if the connection was closed before its end."""
    parts: list[bytes] = []
    while part := response.read(_CHUNK_BYTES):
        parts.append(part)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _describe(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return f"the host name can't be resolved: {error.strerror}"
    if isinstance(error, http.client.IncompleteRead):
        return "the answer is incomplete"
    return str((isinstance(error, OSError) and error.strerror) or error or type(error).__name__)
