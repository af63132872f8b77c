"""A ZooKeeper session through kazoo, on an event loop.

Theory of operation
-------------------
kazoo has three threads: one talks to the server, one calls back with answers, one with watch events. Requests are
handed to it without waiting; its answers come to the loop by `call_soon_threadsafe`. Changes of state are sent through
the same queue as answers, so that an answer which came before the connection broke arrives before the news that it
broke.

What kazoo does that must not happen here, and what is done about it (read in 2.11):

- After a session is lost it opens another one by itself. Here a lost session is the end: the handler, which makes
  kazoo's sockets, makes no more from the moment on which kazoo knows it.
- It takes requests while it has no connection, and sends them later. Here they are turned away by our own state. That
  lags behind kazoo's by a moment: what slips through may be sent after reconnecting, and was `OutcomeUnknown` since.
- It finds out that a server is silent by its own pings, which it leaves out while requests go out. A process that asks
  once a second would wait for a stopped server for ever. Here a request that has no answer for two thirds of the
  session time-out (as in ZooKeeper's own client) ends as `OutcomeUnknown` and the connection is cut, while there is
  still time to go on with another server.
- It waits for the answer to its request for a session as long as the session time-out. A server that is just starting
  takes connections, and loses requests that came too early. Here the first attempt waits `_FIRST_PATIENCE_S`, and each
  further one that gets no answer twice as long, so that a slow server has its time, too.
- It wakes its thread through a socket pair that is full after some 270 requests, and then blocks the caller: so at most
  `_AT_ONCE` are handed to it.
- An error code that it does not know ends its thread and leaves the request open; a state of LOST follows, which ends
  all that is open here.
- It does not tell the negotiated time-out, nor when it asked for the session: both are read where they pass.

Its own retries of commands are not used: one that was repeated after it had been made would be answered wrongly.

`answered_sent_at` moves with changes, pings and syncs, which a majority of the servers must have agreed to, and not
with reads: a server that is cut off from its leader goes on answering those while the session runs out. A server passes
what it hears on to the leader half a tick later; the margin of `safe_until` has to cover that.
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
from magnetar_wire.clock import Clock

log = logging.getLogger(__name__)

_AT_ONCE: Final = 128
_READABLE: Final = select.POLLIN | select.POLLPRI
_WRITABLE: Final = select.POLLOUT
# For the answer to a request for a session, at first.
_FIRST_PATIENCE_S: Final = 1.0
# For a connection, which a server's kernel makes by itself.
_CONNECT_TIMEOUT_S: Final = 2.0


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets; keeps hold of the socket, and makes none when the session is over."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False
        self._connection: socket.socket | None = None

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
        """As select.select, for any file descriptor. kazoo's own makes an epoll for each wait, several for a request:
        half of its thread's time while a broker opens 800 subscriptions."""
        poll = select.poll()
        for one in {*reading, *writing}:
            poll.register(
                fileobj_to_fd(one), (_READABLE if one in reading else 0) | (_WRITABLE if one in writing else 0)
            )
        ready = dict(poll.poll(None if timeout is None else max(0, math.ceil(timeout * 1000))))
        if any(events & select.POLLNVAL for events in ready.values()):
            raise ValueError("the socket is closed")
        told = {one: ready.get(one.fileno(), 0) for one in {*reading, *writing}}
        # A connection that broke off is ready for either: reading or writing says why.
        return (
            [one for one in reading if told[one] & ~_WRITABLE],
            [one for one in writing if told[one] & ~_READABLE],
            [],
        )

    def cut(self) -> None:
        """Breaks the connection; kazoo goes on to the next server."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


class KazooSession:
    """One session: `start`, `request` again and again, `close`."""

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
        # For the answer to the next request for a session.
        self._patience_s = _FIRST_PATIENCE_S
        self._read_negotiation()
        self._negotiated_s = timeout_s
        self._asked_at = clock.monotonic()
        self._session_id = 0
        # Before the session there is none to tell of: `start` makes it.
        self._session: StoreSession | None = None
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._under_way: dict[asyncio.Future[Any], None] = {}
        self._stopping: asyncio.Future[None] | None = None
        # Called on the loop after a reconnection, and at the end.
        self.on_reconnected: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None

    @property
    def session(self) -> StoreSession:
        assert self._session is not None, "the session has not started"
        return self._session

    async def start(self, timeout_s: float) -> None:
        """Opens the session. Raises `NotSent` if no server gives one in time."""
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
        """Makes a kazoo call (one of its `…_async`) and waits for its answer.

        `agreed`: a majority of the servers has to take part in the answer.
        """
        self.session.check()
        async with self._slots:
            # While it waited for its turn it was not sent.
            self.session.check()
            sent_at = self._clock.monotonic()
            answer: asyncio.Future[Any] = self._loop.create_future()
            self._under_way[answer] = None
            patience = self._clock.call_later(self.session.timeout_s * 2 / 3, lambda: self._unanswered(answer, path))
            try:
                call().rawlink(partial(self._on_loop, self._answered, answer, path))
                result = await answer
            finally:
                patience.cancel()
                self._under_way.pop(answer, None)
                if agreed and not answer.cancelled() and answer.done() and _is_answer(answer.exception()):
                    self.session.answered(sent_at)
        return result

    async def close(self) -> None:
        """Ends the session."""
        if self._session is not None and self.session.state is not SessionState.LOST:
            self.session.closed = True
            self._end(self.session.close)
        # A server that does not answer the farewell is not waited for.
        hurry = self._clock.call_later(min(2.0, self._negotiated_s / 3), self.cut_connection)
        try:
            await self._stop()
        finally:
            hurry.cancel()

    def cut_connection(self) -> None:
        """Break the connection; kazoo goes on to the next server."""
        self._handler.cut()

    def _read_negotiation(self) -> None:
        """Sees what kazoo asks for a session, and what the server grants."""
        invoke = self.client._connection._invoke

        def reading(timeout: float, request: Any, xid: int | None = None) -> Any:
            if not isinstance(request, Connect):
                return invoke(timeout, request, xid)
            asked_at = self._clock.monotonic()
            patience_s = min(timeout, self._patience_s)
            self._patience_s = 2 * patience_s
            result = invoke(patience_s, request, xid)
            self._patience_s = _FIRST_PATIENCE_S
            if result[0].time_out > 0:
                self._asked_at, self._negotiated_s = asked_at, result[0].time_out / 1000
                self._session_id = result[0].session_id
            return result

        self.client._connection._invoke = reading

    def _heard(self, state: str) -> None:
        """In kazoo's thread, which waits for this: nothing happens in kazoo before it returns."""
        if state == KazooState.LOST:
            self._handler.over = True
        self._handler.completion_queue.put(partial(self._on_loop, self._move, state))

    def _on_loop(self, callback: Callable[..., object], *arguments: Any) -> None:
        """In a thread of kazoo's. A loop that is closed has nobody left who waits."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _move(self, state: str) -> None:
        if self._session is None:
            if state == KazooState.CONNECTED and not self._started.done():
                self._session = StoreSession(self._clock, self._session_id, self._negotiated_s)
                self._session.answered_sent_at = self._asked_at
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
        under_way, self._under_way = self._under_way, {}
        for answer in under_way:
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
            # Its thread hangs in a connect; it finds that the session is over when that returns.
            log.warning("kazoo did not stop in time", exc_info=True)
        finally:
            self._handler.over = True


def _is_answer(error: BaseException | None) -> bool:
    return not isinstance(error, (OutcomeUnknown, NotSent, SessionLost))
