"""One session with the in-memory server: the client's side of `server.py`.

A request that waits for its answer is in `_under_way`, in order, so that a cut connection ends all of them. An answer
that comes for a request which has ended already (its caller was cancelled, or told that the outcome is unknown) is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from magnetar_metadata.core.changes import check_transaction
from magnetar_metadata.core.paths import check_declared, check_path, visible
from magnetar_metadata.errors import MetadataError, OutcomeUnknown
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import Change, ChangeResult, MetadataStore, Node, SessionState, Stat
from magnetar_metadata.watch_flags import WatchFlag, WatchFlags
from magnetar_wire.clock import Clock

if TYPE_CHECKING:
    from magnetar_testing.metadata.server import MemoryServer


class Request:
    """One request on its way to the server and back."""

    def __init__(
        self, action: Callable[[Request], Any], future: asyncio.Future[Any], changes: Sequence[Change], to_leader: bool
    ) -> None:
        self._action = action
        self._future = future
        self.changes = changes
        # Whether a later request of the session, taken by the leader, keeps an earlier one from arriving.
        self.goes_to_leader = to_leader
        self.refused: MetadataError | None = None
        self._result: Any = None

    def perform(self) -> None:
        """On the server."""
        try:
            self._result = self._action(self)
        except MetadataError as error:
            self.refused = error

    def answer(self) -> None:
        if self._future.done():
            return
        if self.refused is not None:
            self._future.set_exception(self.refused)
        else:
            self._future.set_result(self._result)


class MemoryStore(MetadataStore):
    """One session; `MemoryServer.connect` makes it."""

    def __init__(self, server: MemoryServer, clock: Clock, session: StoreSession, roots: tuple[str, ...]) -> None:
        self._server = server
        self._clock = clock
        self._session = session
        self._roots = roots
        self._under_way: list[asyncio.Future[Any]] = []
        self.flags = WatchFlags()
        # What was ever watched, in order.
        self._watched: dict[str, None] = {}
        self._watched_roots: dict[str, None] = {}

    @property
    def session(self) -> StoreSession:
        return self._session

    async def get(self, path: str) -> Node | None:
        check_path(path)
        return await self._ask(lambda _: (record := self._table().get(path)) and record.node())  # type: ignore[no-any-return]

    async def exists(self, path: str) -> Stat | None:
        check_path(path)
        return await self._ask(lambda _: (record := self._table().get(path)) and record.stat())  # type: ignore[no-any-return]

    async def children(self, path: str) -> list[str]:
        check_path(path)
        names: list[str] = await self._ask(lambda _: visible(path, self._table().child_names(path)))
        return names

    async def transaction(self, changes: Sequence[Change]) -> list[ChangeResult]:
        check_transaction(changes, self._roots)
        made: list[ChangeResult] = await self._ask(
            lambda request: self._server.change(self, request).results, tuple(changes), to_leader=True, agreed=True
        )
        return made

    async def sync(self) -> None:
        await self._ask(lambda _: self._server.catch_up(self), to_leader=True)

    async def ping(self) -> None:
        await self._ask(lambda _: None, to_leader=True, agreed=True)

    def watch(self, path: str) -> WatchFlag:
        check_path(path)
        self._watched[path] = None
        return self._started(self.flags.watch(path))

    def watch_subtree(self, root: str) -> WatchFlag:
        check_declared(root, self._roots)
        self._watched_roots[root] = None
        return self._started(self.flags.watch_subtree(root))

    def set_all_flags(self) -> None:
        """Notify all watches: they may have missed a change."""
        self.flags.set_flags(self._watched_roots, self._watched)

    async def close(self) -> None:
        if self._session.state is not SessionState.LOST:
            self._session.closed = True
            self._over(self._session.close)
            self._server.close_session(self)

    def disconnected(self) -> None:
        self._end_requests("the connection to the metadata server broke")
        self._session.suspend()

    def reconnected(self) -> None:
        self.set_all_flags()
        self._session.resume()

    def lost(self, because: str) -> None:
        self._over(lambda: self._session.lose(because))

    def _over(self, end: Callable[[], object]) -> None:
        self._end_requests("the metadata session ended")
        end()
        self.flags.end(self._session.over)

    def _end_requests(self, because: str) -> None:
        under_way, self._under_way = self._under_way, []
        for future in under_way:
            if not future.done():
                future.set_exception(OutcomeUnknown(f"{because} before the answer arrived"))

    def _unanswered(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(OutcomeUnknown("the metadata store did not answer in time"))
            self._server.suspend(self)

    def _started(self, flag: WatchFlag) -> WatchFlag:
        if self._session.state is SessionState.LOST:
            flag.end(self._session.over)
        return flag

    def _table(self) -> Any:
        return self._server.table_for(self)

    async def _ask(
        self,
        action: Callable[[Request], Any],
        changes: Sequence[Change] = (),
        *,
        to_leader: bool = False,
        agreed: bool = False,
    ) -> Any:
        self._session.check()
        sent_at = self._clock.monotonic()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._under_way.append(future)
        patience = self._clock.call_later(self._session.timeout_s * 2 / 3, lambda: self._unanswered(future))
        loop.call_soon(self._server.receive, self, Request(action, future, changes, to_leader))
        try:
            return await future
        finally:
            patience.cancel()
            if future in self._under_way:
                self._under_way.remove(future)
            # A refusal is an answer too. Reads and syncs count no more than with ZooKeeper, where a server that has
            # lost its majority answers them.
            answered = future.done() and not future.cancelled() and not isinstance(future.exception(), OutcomeUnknown)
            if agreed and answered:
                self._session.answered(sent_at)
