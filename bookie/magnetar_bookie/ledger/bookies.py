"""The bookies that a ledger client knows, and its connections to them.

`/bookies/available` has one ephemeral node per registered bookie. The folder and each node are watched, since a bookie
also changes its node when it becomes read-only. The client's view may be a little old: a bookie that died fails when it
is used, and is put into quarantine, so that it is not chosen again at once.

A bookie's cookie has a mark if it is being decommissioned, and an old view of that is not enough: with an ack quorum of
one, an entry could be acknowledged only by a bookie that is removed already. So a change that names a bookie in a
ledger has `cookie_checks` in its transaction. They contain the version at which the cookie was last read without a
mark; to mark, to cancel and to remove each change it. Cookies are read when a bookie registers and when the names below
`/bookies/leaving` change, so that naming a bookie costs no read. After a failed check, `reread_cookies` updates the
versions.

A bookie is called at its last known address, registered or not: it may still serve after its session has expired. So a
client forgets no bookie before it is closed: per bookie id it holds an address, a watch, a connection and two add
channels. Operators assign these ids, so there are few.

When the metadata session is lost, the view stays as it was, and the client is discarded with its store.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError, Message

from magnetar_bookie import paths
from magnetar_bookie.errors import ClientClosed, EnsembleOutdated
from magnetar_bookie.ledger.add_channel import AddChannel
from magnetar_bookie.ledger.quarantine import Quarantine
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, SessionLost, Unavailable
from magnetar_metadata.store import ABSENT, Check, MetadataStore, Watch
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.ledger_pb2 import BookieRegistration, Cookie
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import Connection, Disconnected, Failed, NotReached, Stream, Transport

__all__ = ["BookieInfo", "Bookies"]

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """The registration of a bookie."""

    bookie_id: str
    address: str
    instance_id: bytes
    read_only: bool
    # The names and addresses of its other listeners.
    listeners: tuple[tuple[str, str], ...] = ()

    def get_address_at(self, listener_name: str) -> str:
        """Return the address of a listener; of the one for brokers if there is none of this name."""
        return dict(self.listeners).get(listener_name, self.address)


@dataclass(frozen=True, slots=True)
class _CookieState:
    # ABSENT: there is no cookie, or it can't be decoded.
    version: int
    # The bookie must not be named in a ledger.
    is_marked: bool


class Bookies:
    """All bookies, for one ledger client."""

    def __init__(
        self, metadata: MetadataStore, transport: Transport, clock: Clock, settings: LedgerClientSettings
    ) -> None:
        self._metadata = metadata
        self._transport = transport
        self._clock = clock
        self._settings = settings
        # The last registration of each bookie since the start.
        self._known: dict[str, BookieInfo] = {}
        # Of each registered bookie: the metadata session of its node.
        self._sessions: dict[str, int] = {}
        # Of each bookie that is not registered any more: a timer until it is long unregistered; None: it is.
        self._unregistered: dict[str, Timer | None] = {}
        # The names below /bookies/leaving for which the cookies were read.
        self._leaving: list[str] = []
        # The cookie of each bookie: the newest version that was read, and whether it has a mark.
        self._cookies: dict[str, _CookieState] = {}
        self._quarantine = Quarantine(clock, settings.bookie_quarantine_time_seconds, self._notify_listeners)
        self._listeners: list[Callable[[], object]] = []
        self._connections: dict[str, tuple[str, Connection]] = {}
        self._channels: dict[tuple[str, bool], AddChannel] = {}
        # The bookies whose nodes are watched.
        self._watched: dict[str, None] = {}
        self._tasks: OrderedTaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Read the bookies, and follow their changes from then on. Raises `SessionLost`, and `ClientClosed`."""
        first_read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.get_running_loop().create_task(self._run(first_read))
        self._owner.add_done_callback(lambda owner: _report_end(owner, first_read))
        await first_read

    async def close(self) -> None:
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._quarantine.close()
        for timer in self._unregistered.values():
            if timer is not None:
                timer.cancel()
        self._listeners.clear()
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait([self._owner])
        for _, connection in self._connections.values():
            await connection.close()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work`, which raises nothing, in a task that is cancelled when the client is closed."""
        assert self._tasks is not None, "the bookies are not started yet"
        return self._tasks.create_task(work)

    # ── the view of the bookies ──

    def registered(self) -> dict[str, BookieInfo]:
        """Return the registered bookies, sorted by id."""
        return {bookie_id: self._known[bookie_id] for bookie_id in sorted(self._sessions)}

    def known_ids(self) -> list[str]:
        """Return all bookies that were registered at any time since the start, sorted."""
        return sorted(self._known)

    def find_address(self, bookie_id: str, listener_name: str = "") -> str:
        """Return the last known address of the bookie; empty: it is not known."""
        info = self._known.get(bookie_id)
        return "" if info is None else info.get_address_at(listener_name)

    def writable(self) -> list[str]:
        """Return the bookies that may be chosen for new entries, sorted."""
        return [bookie_id for bookie_id in self._accepting() if bookie_id not in self._quarantine]

    def quarantined(self) -> list[str]:
        """Return the bookies that may not be chosen only because of their quarantine, sorted."""
        return [bookie_id for bookie_id in self._accepting() if bookie_id in self._quarantine]

    def _accepting(self) -> list[str]:
        return [
            bookie_id
            for bookie_id, info in self.registered().items()
            if not info.read_only and self._may_be_named(bookie_id)
        ]

    def _may_be_named(self, bookie_id: str) -> bool:
        cookie = self._cookies.get(bookie_id)
        return cookie is not None and not cookie.is_marked

    def explain_unavailable(self, bookie_id: str) -> str:
        """Return why a bookie is not `writable`, as the end of a sentence that begins with its name."""
        if bookie_id not in self._sessions:
            return "is not registered"
        if not self._may_be_named(bookie_id):
            return "is being decommissioned"
        if self._known[bookie_id].read_only:
            return "is read-only"
        return "is registered, but failed recently and does not answer"

    def is_long_unregistered(self, bookie_id: str) -> bool:
        """Return whether the bookie has not been registered for `lost_bookie_replacement_delay_seconds`."""
        return bookie_id in self._unregistered and self._unregistered[bookie_id] is None

    def quarantine(self, bookie_id: str) -> None:
        """Don't choose a bookie that failed for some time, unless it registers in a new session."""
        self._quarantine.add(bookie_id)

    def end_quarantine(self, bookie_id: str) -> None:
        """Let the bookie be chosen again, since it answered."""
        self._quarantine.end(bookie_id)

    def add_listener(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when the registered or the writable bookies change. Return a function that ends that."""
        self._listeners.append(callback)

        def remove() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return remove

    def _notify_listeners(self) -> None:
        for callback in list(self._listeners):
            if callback in self._listeners:
                try:
                    callback()
                except Exception:  # noqa: BLE001 (an error of one listener must not keep the others from being called)
                    _log.exception("A listener for changes of the bookies failed")

    # ── cookies ──

    def cookie_checks(self, bookie_ids: Sequence[str]) -> list[Check]:
        """Return the checks for a transaction that names these bookies. Raises `EnsembleOutdated`."""
        leaving = [bookie_id for bookie_id in bookie_ids if not self._may_be_named(bookie_id)]
        if leaving:
            raise EnsembleOutdated(f"{', '.join(leaving)} is being decommissioned: choose other bookies", bookie_ids)
        return [Check(paths.cookie(bookie_id), self._cookies[bookie_id].version) for bookie_id in bookie_ids]

    async def reread_cookies(self, bookie_ids: Sequence[str]) -> None:
        """Read these cookies again, after a sync. Until then the bookies can't be chosen.

        Raises `Unavailable` if the store doesn't answer; they are read as soon as it does.
        """
        for bookie_id in bookie_ids:
            self._cookies.pop(bookie_id, None)
        try:
            await self._read_cookies(bookie_ids)
        except Unavailable:
            self.spawn(self._reread_until_available(bookie_ids))
            raise

    async def _reread_until_available(self, bookie_ids: Sequence[str]) -> None:
        with suppress(SessionLost):
            await self._retry_until_available(functools.partial(self._read_cookies, bookie_ids))

    async def _read_cookies(self, bookie_ids: Sequence[str]) -> None:
        await self._metadata.sync()
        for bookie_id in bookie_ids:
            await self._read_cookie(bookie_id)
        self._notify_listeners()

    async def _read_cookie(self, bookie_id: str) -> None:
        path = paths.cookie(bookie_id)
        try:
            stored = await compare_and_set.read(self._metadata, path)
            mark = decode_node(Cookie, path, stored.payload).decommission_mark if stored else b""
        except ForeignValue as error:
            _log.error("Bookie %s is not used for new entries, since its cookie can't be decoded: %s", bookie_id, error)
            stored, mark = None, b""
        known = self._cookies.get(bookie_id)
        if stored is None:
            self._cookies[bookie_id] = _CookieState(ABSENT, is_marked=True)
        elif known is None or stored.version >= known.version:
            self._cookies[bookie_id] = _CookieState(stored.version, is_marked=bool(mark))

    # ── connections ──

    async def call(self, bookie_id: str, method: str, request: Message, answer_type: type[M], *, timeout_s: float) -> M:
        """Call a method of the bookie and return its answer. Raises `TransportError`; `Failed` if it is malformed."""
        answer = await self._connect(bookie_id).call(method, request.SerializeToString(), timeout_s=timeout_s)
        try:
            return answer_type.FromString(answer)
        except DecodeError as error:
            raise Failed(f"the answer of bookie {bookie_id} to {method} can't be decoded: {error}") from None

    def get_add_channel(self, bookie_id: str, *, recovery: bool = False) -> AddChannel:
        """Return the channel for adds to this bookie, which all ledgers share. There is another one for recovery."""
        key = (bookie_id, recovery)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = AddChannel(
                bookie_id,
                lambda: self._open_add_stream(bookie_id),
                self.spawn,
                self._clock,
                self._settings,
                recovery=recovery,
            )
            if self._is_closed:
                channel.close()
        return channel

    def _open_add_stream(self, bookie_id: str) -> Stream:
        try:
            return self._connect(bookie_id).open_stream("add")
        except NotReached as error:
            return _UnreachableStream(error)

    def _connect(self, bookie_id: str) -> Connection:
        info = self._known.get(bookie_id)
        if info is None:
            raise NotReached(f"bookie {bookie_id} was never registered: its address is unknown")
        if self._is_closed:
            raise NotReached("the ledger client is closed")
        address, connection = self._connections.get(bookie_id, ("", None))
        if connection is None or address != info.address:
            if connection is not None:
                self.spawn(connection.close())
            connection = self._transport.connect(info.address)
            self._connections[bookie_id] = info.address, connection
        return connection

    # ── following the metadata ──

    async def _run(self, first_read: asyncio.Future[None]) -> None:
        async with OrderedTaskGroup() as self._tasks:
            try:
                await self._follow(paths.AVAILABLE, self._read_available)
                await self._follow(paths.LEAVING, self._read_leaving)
            except SessionLost as error:
                if not first_read.done():
                    first_read.set_exception(error)
                self._tasks.cancel()
                return
            if not first_read.done():
                first_read.set_result(None)
            await asyncio.get_running_loop().create_future()  # the tasks run until this one is cancelled

    async def _follow(self, path: str, read: Callable[[], Awaitable[None]]) -> None:
        """Call `read` now, and from then on, in a task, whenever the node has changed."""
        watch = self._metadata.watch(path)
        try:
            await watch.wait()  # a new watch is raised, and requests this read
            await self._retry_until_available(read)
        except BaseException:
            watch.close()
            raise
        self.spawn(self._follow_changes(watch, read))

    async def _follow_changes(self, watch: Watch, read: Callable[[], Awaitable[None]]) -> None:
        try:
            while True:
                await watch.wait()
                await self._retry_until_available(read)
        except SessionLost:
            return
        finally:
            watch.close()

    async def _retry_until_available(self, read: Callable[[], Awaitable[None]]) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await read()
            except Unavailable:
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _read_leaving(self) -> None:
        leaving = await self._metadata.children(paths.LEAVING)
        # Also of bookies that are not known yet: their first cookie may just have been read before the change.
        changed = sorted({*leaving} ^ {*self._leaving})
        for bookie_id in changed:
            await self._read_cookie(bookie_id)
        self._leaving = leaving
        if changed:
            self._notify_listeners()

    async def _read_available(self) -> None:
        names = await self._metadata.children(paths.AVAILABLE)
        for bookie_id in names:
            if bookie_id not in self._watched:
                await self._follow(paths.available(bookie_id), functools.partial(self._read_registration, bookie_id))
                self._watched[bookie_id] = None

    async def _read_registration(self, bookie_id: str) -> None:
        node = await self._metadata.get(paths.available(bookie_id))
        if node is None:
            if self._sessions.pop(bookie_id, None) is not None:
                delay_s = self._settings.lost_bookie_replacement_delay_seconds
                self._unregistered[bookie_id] = self._clock.call_later(
                    delay_s, lambda: self._mark_long_unregistered(bookie_id)
                )
                self._notify_listeners()
            return
        try:
            registration = BookieRegistration.FromString(node.value)
        except DecodeError as error:
            _log.warning("The registration of bookie %s can't be decoded, and is ignored: %s", bookie_id, error)
            return
        listeners = tuple((one.name, one.address) for one in registration.listeners)
        info = BookieInfo(bookie_id, registration.address, registration.instance_id, registration.read_only, listeners)
        session = node.stat.ephemeral_owner
        is_new_session = self._sessions.get(bookie_id) != session
        if is_new_session:
            await self._read_cookie(bookie_id)
        if not is_new_session and self._known.get(bookie_id) == info:
            return
        self._known[bookie_id], self._sessions[bookie_id] = info, session
        if (timer := self._unregistered.pop(bookie_id, None)) is not None:
            timer.cancel()
        if is_new_session:
            self._quarantine.end(bookie_id, notify=False)
            if bookie_id in self._connections:
                self._connections[bookie_id][1].reset_backoff()
            for recovery in (False, True):
                if (channel := self._channels.get((bookie_id, recovery))) is not None:
                    channel.reset_backoff()
        self._notify_listeners()

    def _mark_long_unregistered(self, bookie_id: str) -> None:
        self._unregistered[bookie_id] = None
        self._notify_listeners()


def _report_end(owner: asyncio.Task[None], first_read: asyncio.Future[None]) -> None:
    """Let `start` raise the error that ended the task before the first read."""
    error = None if owner.cancelled() else owner.exception()
    if not first_read.done():
        first_read.set_exception(error or ClientClosed("the ledger client was closed while it started"))


class _UnreachableStream:
    """A stream to a bookie that can't be reached: each use raises the error."""

    def __init__(self, error: NotReached) -> None:
        self.in_process_api: object | None = None
        self._error = error

    async def send(self, message: bytes) -> None:
        raise self._error

    async def receive(self) -> bytes | None:
        raise self._error

    async def finish(self) -> None:
        raise Disconnected("there is no stream")

    def cancel(self) -> None:
        pass
