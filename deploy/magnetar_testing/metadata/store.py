"""The client of the in-memory server (`server.py`): one session.

A request that waits for its answer is in `_in_flight`, in order, so that a cut connection ends all of them. An answer
to a request that has ended already (its caller was cancelled, or got `OutcomeUnknown`) is dropped.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar_metadata.errors import MetadataError, OutcomeUnknown
from magnetar_metadata.paths import check_declared, check_path
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import Change, ChangeResult, MetadataStore, Node, SessionState, Stat
from magnetar_metadata.transaction_check import check_transaction
from magnetar_metadata.watch_flags import WatchFlag, WatchFlags
from magnetar_wire.clock import Clock

__all__ = ["MemoryStore", "Operation", "Request", "ServerConnection"]


class Operation(enum.Enum):
    """What a request does."""

    GET = "get"
    EXISTS = "exists"
    CHILDREN = "children"
    CHANGE = "change"
    SYNC = "sync"
    PING = "ping"


# Handled by the leader, after which no earlier request of the session can arrive any more.
_LEADER_OPERATIONS = (Operation.CHANGE, Operation.SYNC, Operation.PING)


class Request:
    """One request of a store, and its result."""

    def __init__(
        self, operation: Operation, future: asyncio.Future[Any], path: str = "", changes: Sequence[Change] = ()
    ) -> None:
        self.operation = operation
        self.path = path
        self.changes = changes
        # Set by the server: the result, or the error.
        self.result: Any = None
        self.refused: MetadataError | None = None
        self._future = future

    @property
    def goes_to_leader(self) -> bool:
        return self.operation in _LEADER_OPERATIONS

    def answer(self) -> None:
        """Give the caller the result, unless it has stopped waiting."""
        if self._future.done():
            return
        if self.refused is not None:
            self._future.set_exception(self.refused)
        else:
            self._future.set_result(self.result)


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """The functions with which a store reaches its server."""

    send: Callable[[Request], object]
    # Cut the connection: the session is suspended.
    cut: Callable[[], object]
    # End the session.
    close: Callable[[], object]


class MemoryStore(MetadataStore):
    """One session, created by `MemoryServer.connect`."""

    def __init__(
        self, connection: ServerConnection, clock: Clock, session: StoreSession, roots: tuple[str, ...]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._session = session
        self._roots = roots
        self._in_flight: list[asyncio.Future[Any]] = []
        self.flags = WatchFlags()
        # All paths that were ever watched, in order.
        self._watched: dict[str, None] = {}
        self._watched_roots: dict[str, None] = {}

    @property
    def session(self) -> StoreSession:
        return self._session

    async def get(self, path: str) -> Node | None:
        check_path(path)
        node: Node | None = await self.send_request(Operation.GET, path)
        return node

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        stat: Stat | None = await self.send_request(Operation.EXISTS, path)
        return stat

    async def children(self, path: str) -> list[str]:
        check_path(path)
        names: list[str] = await self.send_request(Operation.CHILDREN, path)
        return names

    async def transaction(self, changes: Sequence[Change]) -> list[ChangeResult]:
        check_transaction(changes, self._roots)
        results: list[ChangeResult] = await self.send_request(Operation.CHANGE, changes=tuple(changes))
        return results

    async def sync(self) -> None:
        await self.send_request(Operation.SYNC)

    async def ping(self) -> None:
        await self.send_request(Operation.PING)

    def watch(self, path: str) -> WatchFlag:
        check_path(path)
        self._watched[path] = None
        return self._end_if_lost(self.flags.watch(path))

    def watch_subtree(self, root: str) -> WatchFlag:
        check_declared(root, self._roots)
        self._watched_roots[root] = None
        return self._end_if_lost(self.flags.watch_subtree(root))

    def set_all_flags(self) -> None:
        """Notify all watches: they may have missed a change."""
        self.flags.set_flags(self._watched_roots, self._watched)

    async def close(self) -> None:
        if self._session.state is not SessionState.LOST:
            self._session.closed = True
            self._end_session(self._session.close)
            self._connection.close()

    def disconnected(self) -> None:
        """Suspend the session. Called by the server when it has cut the connection."""
        self._end_requests("the connection to the metadata server broke")
        self._session.suspend()

    def reconnected(self) -> None:
        """Resume the session."""
        self.set_all_flags()
        self._session.resume()

    def lost(self, because: str) -> None:
        """End the session, which the server has ended."""
        self._end_session(lambda: self._session.lose(because))

    def _end_session(self, end: Callable[[], object]) -> None:
        self._end_requests("the metadata session ended")
        end()
        self.flags.end(self._session.over)

    def _end_requests(self, because: str) -> None:
        in_flight, self._in_flight = self._in_flight, []
        for future in in_flight:
            if not future.done():
                future.set_exception(OutcomeUnknown(f"{because} before the answer arrived"))

    def _time_out(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(OutcomeUnknown("the metadata store did not answer in time"))
            self._connection.cut()

    def _end_if_lost(self, flag: WatchFlag) -> WatchFlag:
        if self._session.state is SessionState.LOST:
            flag.end(self._session.over)
        return flag

    async def send_request(self, operation: Operation, path: str = "", changes: Sequence[Change] = ()) -> Any:
        """Send a request and return its result. Tests may replace this method, to count requests or to add faults."""
        self._session.check()
        sent_at = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._in_flight.append(future)
        timer = self._clock.call_later(self._session.timeout_s * 2 / 3, lambda: self._time_out(future))
        loop.call_soon(self._connection.send, Request(operation, future, path, changes))
        try:
            return await future
        finally:
            timer.cancel()
            if future in self._in_flight:
                self._in_flight.remove(future)
            # A refusal is an answer, too. Reads and syncs don't prove that the session is alive, as with ZooKeeper:
            # a server without a majority answers them there, too.
            answered = future.done() and not future.cancelled() and not isinstance(future.exception(), OutcomeUnknown)
            if answered and operation in (Operation.CHANGE, Operation.PING):
                self._session.answered(sent_at)
