"""A ZooKeeper session through kazoo, on an event loop.

Theory of operation
-------------------
kazoo has three threads: one for the server, one for callbacks with answers, one for watch events. Requests are passed
to it without waiting; answers reach the loop by `call_soon_threadsafe`. Changes of state use the same queue as answers,
so that an answer from before the connection broke arrives before the news that it broke.

kazoo (2.11) behaves in some ways that are wrong here. These are the remedies:

- After a session is lost, it opens another one. Here, a lost session is final: the handler, which creates kazoo's
  sockets, creates no more as soon as kazoo knows of the loss.
- It accepts requests without a connection, and sends them later. Here, they are rejected by our own state, which lags
  behind kazoo's for a moment. A request that slips through may be sent after a reconnect; it has already failed with
  `OutcomeUnknown`.
- It detects a silent server by its own pings, which it omits while requests are sent. A process that sends one request
  per second would wait for a stopped server for ever. Here, a request that is not answered within two thirds of the
  session timeout (as in ZooKeeper's own client) fails with `OutcomeUnknown`, and the connection is cut, while there is
  still time to connect to another server.
- It waits for the answer to its session request for the whole session timeout. A server that is just starting accepts
  connections, and loses early requests. Here, the first attempt waits `_FIRST_PATIENCE_S`, and each further attempt
  without an answer twice as long, so that slow servers have enough time, too.
- It wakes its thread through a socket pair that is full after about 270 requests, and then blocks the caller.
  `KazooWakeUp` never blocks.
- It keeps any number of requests while it has no connection. Here, at most `_AT_ONCE` requests wait for answers at a
  time; those that wait for their turn when the connection breaks have not been sent.
- An unknown error code ends its thread and leaves the request without an answer. The state LOST follows, which ends all
  pending requests here.
- It does not report the negotiated timeout, nor when it requested the session. Both are read from its messages.

kazoo's own retries of commands are not used: the answer to a repeat of an executed command would be wrong.

`answered_sent_at` is updated by changes, pings and syncs, which need the agreement of a majority of the servers, but
not by reads: a server that is cut off from its leader continues to answer reads while the session expires. A server
reports clients' activity to the leader half a tick later; the margin of `safe_until` must cover that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import select
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import fileobj_to_fd
from kazoo.protocol.serialization import Connect
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from magnetar_metadata.errors import NotSent, OutcomeUnknown, SessionLost
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import SessionState
from magnetar_metadata.zookeeper.kazoo_errors import to_metadata_error
from magnetar_metadata.zookeeper.kazoo_wake_up import KazooWakeUp
from magnetar_wire.clock import Clock

log = logging.getLogger(__name__)

_AT_ONCE: Final = 128
_READABLE: Final = select.POLLIN | select.POLLPRI
_WRITABLE: Final = select.POLLOUT
# The first wait for the answer to a session request.
_FIRST_PATIENCE_S: Final = 1.0
# The wait for a connection, which a server's kernel accepts by itself.
_CONNECT_TIMEOUT_S: Final = 2.0


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets. It has a reference to the socket, and creates none after the end of the session."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False
        self._connection: socket.socket | None = None

    def create_socket_pair(self) -> tuple[KazooWakeUp, KazooWakeUp]:
        wake_up = KazooWakeUp()
        return wake_up, wake_up

    def create_connection(self, *args: Any, **options: Any) -> Any:
        if self.over:
            raise OSError("the session is over")
        options["timeout"] = min(options["timeout"], _CONNECT_TIMEOUT_S)
        self._connection = super().create_connection(*args, **options)
        return self._connection

    def select(
        self,
        reading: Sequence[socket.socket],
        writing: Sequence[socket.socket],
        exceptional: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """Implement select.select for any file descriptor. kazoo's own creates an epoll for each wait, several per
        request: half of its thread's time while a broker opens 800 subscriptions."""
        poll = select.poll()
        for one in {*reading, *writing}:
            poll.register(
                fileobj_to_fd(one), (_READABLE if one in reading else 0) | (_WRITABLE if one in writing else 0)
            )
        ready = dict(poll.poll(None if timeout is None else max(0, math.ceil(timeout * 1000))))
        if any(events & select.POLLNVAL for events in ready.values()):
            raise ValueError("the socket is closed")
        events = {one: ready.get(one.fileno(), 0) for one in {*reading, *writing}}
        # A broken connection is ready for both: reading or writing raises the reason.
        return (
            [one for one in reading if events[one] & ~_WRITABLE],
            [one for one in writing if events[one] & ~_READABLE],
            [],
        )

    def cut(self) -> None:
        """Break the connection. kazoo connects to the next server."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


class KazooSession:
    """One session: call `start`, then `request` repeatedly, then `close`."""

    def __init__(self, hosts: str, clock: Clock, timeout_s: float) -> None:
        self._hosts = hosts
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._handler = _Handler()
        self.client = KazooClient(
            hosts=hosts,
            timeout=timeout_s,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1.5, max_jitter=0.3, max_delay=0.5),
        )
        self.client.add_listener(self._heard)
        # The wait for the answer to the next session request.
        self._patience_s = _FIRST_PATIENCE_S
        self._read_negotiation()
        self._negotiated_s = timeout_s
        self._requested_at = clock.monotonic()
        self._session_id = 0
        # None until `start` has opened the session.
        self._session: StoreSession | None = None
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._in_flight: dict[asyncio.Future[Any], None] = {}
        self._stopping: asyncio.Future[None] | None = None
        # Called on the loop after a reconnect, and at the end of the session.
        self.on_reconnected: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None

    @property
    def session(self) -> StoreSession:
        assert self._session is not None, "the session has not started"
        return self._session

    async def start(self, timeout_s: float) -> None:
        """Open the session. Raises `NotSent` if no server opens one in time."""
        try:
            self.client.start_async()
            async with asyncio.timeout(timeout_s):
                await self._started
        except TimeoutError:
            await self._stop()
            raise NotSent(
                f"no server of {self._hosts} opened a ZooKeeper session within {timeout_s} s: check the "
                "addresses, and that ZooKeeper runs"
            ) from None
        except BaseException:
            await self._stop()
            raise

    async def request(self, path: str, call: Callable[[], Any], *, agreed: bool = False) -> Any:
        """Make a kazoo call (one of its `…_async`), and wait for its answer.

        `agreed`: the answer requires a majority of the servers.
        """
        self.session.check()
        async with self._slots:
            # While it waited for a slot it was not sent.
            self.session.check()
            sent_at = self._clock.monotonic()
            answer: asyncio.Future[Any] = self._loop.create_future()
            self._in_flight[answer] = None
            patience = self._clock.call_later(self.session.timeout_s * 2 / 3, lambda: self._unanswered(answer, path))
            try:
                call().rawlink(partial(self._on_loop, self._answered, answer, path))
                result = await answer
            finally:
                patience.cancel()
                self._in_flight.pop(answer, None)
                if agreed and not answer.cancelled() and answer.done() and _is_answer(answer.exception()):
                    self.session.answered(sent_at)
        return result

    async def close(self) -> None:
        """End the session."""
        if self._session is not None and self.session.state is not SessionState.LOST:
            self.session.closed = True
            self._end(self.session.close)
        # Don't wait for a server that doesn't answer the close request.
        hurry = self._clock.call_later(min(2.0, self._negotiated_s / 3), self.cut_connection)
        try:
            await self._stop()
        finally:
            hurry.cancel()

    def cut_connection(self) -> None:
        """Break the connection. kazoo connects to the next server."""
        self._handler.cut()

    def _read_negotiation(self) -> None:
        """Read the session requests of kazoo and the server's answers."""
        invoke = self.client._connection._invoke

        def reading(timeout: float, request: Any, xid: int | None = None) -> Any:
            if not isinstance(request, Connect):
                return invoke(timeout, request, xid)
            requested_at = self._clock.monotonic()
            patience_s = min(timeout, self._patience_s)
            self._patience_s = 2 * patience_s
            result = invoke(patience_s, request, xid)
            self._patience_s = _FIRST_PATIENCE_S
            if result[0].time_out > 0:
                self._requested_at, self._negotiated_s = requested_at, result[0].time_out / 1000
                self._session_id = result[0].session_id
            return result

        self.client._connection._invoke = reading

    def _heard(self, state: str) -> None:
        """Handle a change of kazoo's state. kazoo's thread calls it, and does nothing else before it returns."""
        if state == KazooState.LOST:
            self._handler.over = True
        self._handler.completion_queue.put(partial(self._on_loop, self._move, state))

    def _on_loop(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call on the loop, from kazoo's threads. If the loop is closed, nobody waits for the call."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _move(self, state: str) -> None:
        if self._session is None:
            if state == KazooState.CONNECTED and not self._started.done():
                self._session = StoreSession(self._clock, self._session_id, self._negotiated_s)
                self._session.answered_sent_at = self._requested_at
                self._started.set_result(None)
            return
        if state == KazooState.CONNECTED:
            self.session.timeout_s = self._negotiated_s
            self.session.resume()
            self.on_reconnected()
        elif state == KazooState.SUSPENDED:
            self._end_requests("the connection to ZooKeeper broke")
            self.session.suspend()
        else:
            self._end(lambda: self.session.lose(f"ZooKeeper reported {self.client.client_state}"))
            self._stopping = self._stopping or asyncio.ensure_future(asyncio.to_thread(self._stop_in_thread))

    def _end(self, end: Callable[[], object]) -> None:
        self._end_requests("the ZooKeeper session ended")
        end()
        self.on_lost()

    def _end_requests(self, because: str) -> None:
        in_flight, self._in_flight = self._in_flight, {}
        for answer in in_flight:
            if not answer.done():
                answer.set_exception(OutcomeUnknown(f"{because} before the answer arrived"))

    def _answered(self, answer: asyncio.Future[Any], path: str, result: Any) -> None:
        if answer.done():
            return
        if result.exception is None:
            answer.set_result(result.value)
        else:
            answer.set_exception(to_metadata_error(result.exception, path))

    def _unanswered(self, answer: asyncio.Future[Any], path: str) -> None:
        if not answer.done():
            answer.set_exception(OutcomeUnknown(f"{path!r}: ZooKeeper did not answer in time"))
            self.cut_connection()

    async def _stop(self) -> None:
        self._stopping = self._stopping or asyncio.ensure_future(asyncio.to_thread(self._stop_in_thread))
        await asyncio.shield(self._stopping)

    def _stop_in_thread(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except Exception:
            # Its thread hangs in a connect. When that returns, it finds that the session has ended.
            log.warning("kazoo did not stop in time", exc_info=True)
        finally:
            self._handler.over = True


def _is_answer(error: BaseException | None) -> bool:
    return not isinstance(error, (OutcomeUnknown, NotSent, SessionLost))
