"""What a process knows of the bookies, and its connections to them.

`/bookies/available` says who is alive, one node each that goes with its bookie's session; it is watched, and so is each
node, since a bookie turns read-only in place. What is known may be a little old: a bookie that is not there any more
fails when it is used, and one that failed is in quarantine, so that it is not chosen again at once.

A bookie's cookie says whether it is being decommissioned. For this an old answer is not enough: with an ack quorum of
one an entry could be acknowledged by a bookie that is struck off already. So a change that names a bookie in a ledger
puts `cookie_checks` into the same transaction. They hold the version at which the cookie was last read without a mark,
and marking, cancelling and striking off each change it. The cookies are read when a bookie registers and when the names
below `/bookies/leaving` change, so that naming a bookie costs no read. After a refused check `reread_cookies` brings
the versions up to date.

A bookie seen before is called at its last known address, registered or not: it may still serve after its metadata
session is lost. So the client forgets nothing before it is closed: it holds an address, a watch, a connection and two
add channels for each bookie id that it has seen. Operators assign these ids, so that their number is small.

When the metadata session is lost, what is known stays as it was; the client is discarded with its store.
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

log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class BookieInfo:
    """A bookie, as it registered."""

    bookie_id: str
    address: str
    instance_id: bytes
    read_only: bool
    # By the names of its listeners, where it has several.
    listeners: tuple[tuple[str, str], ...] = ()

    def get_address_at(self, listener_name: str) -> str:
        """Where those reach it who name that listener; a bookie that has none of that name is reached as by brokers."""
        return dict(self.listeners).get(listener_name, self.address)


@dataclass(frozen=True, slots=True)
class _CookieState:
    # ABSENT: there is none, or none that can be read.
    version: int
    # The bookie must not be named in a ledger.
    marked: bool


class Bookies:
    """All of them, for one ledger client."""

    def __init__(
        self, metadata: MetadataStore, transport: Transport, clock: Clock, settings: LedgerClientSettings
    ) -> None:
        self._metadata = metadata
        self._transport = transport
        self._clock = clock
        self._settings = settings
        # Whoever was seen since the start, at its last address.
        self._known: dict[str, BookieInfo] = {}
        # Of those registered now: the session that their node belongs to.
        self._sessions: dict[str, int] = {}
        # Of those that were: what runs until they are lost; None: they are.
        self._gone: dict[str, Timer | None] = {}
        # The names below /bookies/leaving for which the cookies were read last.
        self._leaving: list[str] = []
        # Each registered bookie's cookie: the newest version that was read, and whether it has a mark.
        self._cookies: dict[str, _CookieState] = {}
        self._quarantine = Quarantine(clock, settings.bookie_quarantine_time_seconds, self._tell)
        self._listeners: list[Callable[[], object]] = []
        self._connections: dict[str, tuple[str, Connection]] = {}
        self._channels: dict[tuple[str, bool], AddChannel] = {}
        # Those whose node has a watch.
        self._following: dict[str, None] = {}
        self._tasks: OrderedTaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Returns when the first reading is done. Raises `SessionLost`, and `ClientClosed` if closed meanwhile."""
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.get_running_loop().create_task(self._run(read))
        self._owner.add_done_callback(lambda owner: _ended(owner, read))
        await read

    async def close(self) -> None:
        self._closed = True
        for channel in self._channels.values():
            channel.close()
        self._quarantine.close()
        for timer in self._gone.values():
            if timer is not None:
                timer.cancel()
        self._listeners.clear()
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait([self._owner])
        for _, connection in self._connections.values():
            await connection.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that ends with this object at the latest. `work` raises nothing."""
        assert self._tasks is not None, "the bookies are not started yet"
        return self._tasks.create_task(work)

    def alive(self) -> dict[str, BookieInfo]:
        """Who is registered now, by id, in order."""
        return {bookie_id: self._known[bookie_id] for bookie_id in sorted(self._sessions)}

    def seen(self) -> list[str]:
        """All that were ever registered since the start, in order."""
        return sorted(self._known)

    def address(self, bookie_id: str, listener_name: str = "") -> str:
        """Where it is reached, or was when it was registered last; empty: it has not been seen."""
        info = self._known.get(bookie_id)
        return "" if info is None else info.get_address_at(listener_name)

    def explain_unavailable(self, bookie_id: str) -> str:
        """What keeps a bookie that is not `writable` from being chosen, in words that follow its name."""
        if bookie_id not in self._sessions:
            return "is not registered"
        if not self._may_be_named(bookie_id):
            return "is being decommissioned"
        if self._known[bookie_id].read_only:
            return "is read-only"
        return "is registered, but failed recently and does not answer"

    def lost(self, bookie_id: str) -> bool:
        """It was registered, and has not been for `lost_bookie_replacement_delay_seconds`."""
        return bookie_id in self._gone and self._gone[bookie_id] is None

    def writable(self) -> list[str]:
        """Who may be chosen for new entries, in order."""
        return [bookie_id for bookie_id in self._willing() if bookie_id not in self._quarantine]

    def _willing(self) -> list[str]:
        return [
            bookie_id
            for bookie_id, info in self.alive().items()
            if not info.read_only and self._may_be_named(bookie_id)
        ]

    def _may_be_named(self, bookie_id: str) -> bool:
        cookie = self._cookies.get(bookie_id)
        return cookie is not None and not cookie.marked

    def cookie_checks(self, bookie_ids: Sequence[str]) -> list[Check]:
        """Return the checks for a transaction that names these bookies. Raises `EnsembleOutdated`."""
        leaving = [bookie_id for bookie_id in bookie_ids if not self._may_be_named(bookie_id)]
        if leaving:
            raise EnsembleOutdated(f"{', '.join(leaving)} is being decommissioned: choose other bookies", bookie_ids)
        return [Check(paths.cookie(bookie_id), self._cookies[bookie_id].version) for bookie_id in bookie_ids]

    async def reread_cookies(self, bookie_ids: Sequence[str]) -> None:
        """Read these cookies again, after a sync. Until then the bookies can't be chosen.

        Raises `Unavailable` where the store gives no answer; they are read as soon as it does.
        """
        for bookie_id in bookie_ids:
            self._cookies.pop(bookie_id, None)
        try:
            await self._read_cookies(bookie_ids)
        except Unavailable:
            self.spawn(self._reread_patiently(bookie_ids))
            raise

    def quarantine(self, bookie_id: str) -> None:
        """It failed: it is not chosen for some time, unless it registers in a new session."""
        self._quarantine.put(bookie_id)

    def end_quarantine(self, bookie_id: str) -> None:
        self._quarantine.end_quarantine(bookie_id)

    def quarantined(self) -> list[str]:
        """Who could be chosen but for the quarantine, in order."""
        return [bookie_id for bookie_id in self._willing() if bookie_id in self._quarantine]

    def listen(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Calls it, on the loop, when the bookies that are alive or may be chosen changed. Returns what ends that."""
        self._listeners.append(callback)

        def stop() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return stop

    async def call(self, bookie_id: str, method: str, request: Message, answer_type: type[M], *, timeout_s: float) -> M:
        """The bookie's answer. Raises `TransportError`; an answer that can't be read is `Failed`."""
        answer = await self._connection(bookie_id).call(method, request.SerializeToString(), timeout_s=timeout_s)
        try:
            return answer_type.FromString(answer)
        except DecodeError as error:
            raise Failed(f"the answer of bookie {bookie_id} to {method} can't be decoded: {error}") from None

    def adds(self, bookie_id: str, *, recovery: bool = False) -> AddChannel:
        """The stream of adds to this bookie, shared by all ledgers; another for those that pass a fence."""
        key = (bookie_id, recovery)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = AddChannel(
                bookie_id,
                lambda: self._open_stream(bookie_id),
                self.spawn,
                self._clock,
                self._settings,
                recovery=recovery,
            )
            if self._closed:
                channel.close()
        return channel

    def _open_stream(self, bookie_id: str) -> Stream:
        try:
            return self._connection(bookie_id).open_stream("add")
        except NotReached as error:
            return _NoStream(error)

    def _connection(self, bookie_id: str) -> Connection:
        info = self._known.get(bookie_id)
        if info is None:
            raise NotReached(f"bookie {bookie_id} was never registered: its address is unknown")
        if self._closed:
            raise NotReached("the ledger client is closed")
        address, connection = self._connections.get(bookie_id, ("", None))
        if connection is None or address != info.address:
            if connection is not None:
                self.spawn(connection.close())
            connection = self._transport.connect(info.address)
            self._connections[bookie_id] = info.address, connection
        return connection

    # ── following the metadata ──

    async def _run(self, read: asyncio.Future[None]) -> None:
        async with OrderedTaskGroup() as self._tasks:
            try:
                await self._follow(paths.AVAILABLE, self._read_available)
                await self._follow(paths.LEAVING, self._read_leaving)
            except SessionLost as error:
                if not read.done():
                    read.set_exception(error)
                self._tasks.cancel()
                return
            if not read.done():
                read.set_result(None)
            await asyncio.get_running_loop().create_future()  # the group lives until it is cancelled

    async def _follow(self, path: str, reading: Callable[[], Awaitable[None]]) -> None:
        """Reads now, and from then on in a task whenever the node has changed."""
        watch = self._metadata.watch(path)
        try:
            # A new watch is up: this reading is the one that it asks for.
            await watch.wait()
            await self._patiently(reading)
        except BaseException:
            watch.close()
            raise
        self.spawn(self._go_on(watch, reading))

    async def _go_on(self, watch: Watch, reading: Callable[[], Awaitable[None]]) -> None:
        try:
            while True:
                await watch.wait()
                await self._patiently(reading)
        except SessionLost:
            return
        finally:
            watch.close()

    async def _patiently(self, reading: Callable[[], Awaitable[None]]) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await reading()
            except Unavailable:
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _read_leaving(self) -> None:
        leaving = await self._metadata.children(paths.LEAVING)
        # Of all, also of bookies not known yet: their first cookie may just be read, as it was before the change.
        changed = sorted({*leaving} ^ {*self._leaving})
        for bookie_id in changed:
            await self._read_cookie(bookie_id)
        self._leaving = leaving
        if changed:
            self._tell()

    async def _read_cookie(self, bookie_id: str) -> None:
        path = paths.cookie(bookie_id)
        try:
            stored = await compare_and_set.read(self._metadata, path)
            mark = decode_node(Cookie, path, stored.payload).decommission_mark if stored else b""
        except ForeignValue as error:
            log.error("Bookie %s is not used for new entries, since its cookie can't be decoded: %s", bookie_id, error)
            stored, mark = None, b""
        known = self._cookies.get(bookie_id)
        if stored is None:
            self._cookies[bookie_id] = _CookieState(ABSENT, marked=True)
        elif known is None or stored.version >= known.version:
            self._cookies[bookie_id] = _CookieState(stored.version, marked=bool(mark))

    async def _read_cookies(self, bookie_ids: Sequence[str]) -> None:
        await self._metadata.sync()
        for bookie_id in bookie_ids:
            await self._read_cookie(bookie_id)
        self._tell()

    async def _reread_patiently(self, bookie_ids: Sequence[str]) -> None:
        with suppress(SessionLost):
            await self._patiently(functools.partial(self._read_cookies, bookie_ids))

    async def _read_available(self) -> None:
        names = await self._metadata.children(paths.AVAILABLE)
        for bookie_id in names:
            if bookie_id not in self._following:
                await self._follow(paths.available(bookie_id), functools.partial(self._read_bookie, bookie_id))
                self._following[bookie_id] = None

    async def _read_bookie(self, bookie_id: str) -> None:
        node = await self._metadata.get(paths.available(bookie_id))
        if node is None:
            if self._sessions.pop(bookie_id, None) is not None:
                delay_s = self._settings.lost_bookie_replacement_delay_seconds
                self._gone[bookie_id] = self._clock.call_later(delay_s, lambda: self._is_lost(bookie_id))
                self._tell()
            return
        try:
            said = BookieRegistration.FromString(node.value)
        except DecodeError as error:
            log.warning("The registration of bookie %s can't be decoded, and is ignored: %s", bookie_id, error)
            return
        listeners = tuple((one.name, one.address) for one in said.listeners)
        info = BookieInfo(bookie_id, said.address, said.instance_id, said.read_only, listeners)
        session = node.stat.ephemeral_owner
        is_new_session = self._sessions.get(bookie_id) != session
        if is_new_session:
            await self._read_cookie(bookie_id)
        if not is_new_session and self._known.get(bookie_id) == info:
            return
        self._known[bookie_id], self._sessions[bookie_id] = info, session
        if (timer := self._gone.pop(bookie_id, None)) is not None:
            timer.cancel()
        if is_new_session:
            self._quarantine.end_quarantine(bookie_id, tell=False)
            if bookie_id in self._connections:
                self._connections[bookie_id][1].reset_backoff()
            for recovery in (False, True):
                if (channel := self._channels.get((bookie_id, recovery))) is not None:
                    channel.reset_backoff()
        self._tell()

    def _is_lost(self, bookie_id: str) -> None:
        self._gone[bookie_id] = None
        self._tell()

    def _tell(self) -> None:
        for callback in list(self._listeners):
            if callback in self._listeners:
                try:
                    callback()
                except Exception:  # one listener's mistake must not keep the others from hearing
                    log.exception("A listener for changes of the bookies failed")


def _ended(owner: asyncio.Task[None], read: asyncio.Future[None]) -> None:
    """Whoever waits for the first reading hears why none comes, and was not cancelled with it."""
    error = None if owner.cancelled() else owner.exception()
    if not read.done():
        read.set_exception(error or ClientClosed("the ledger client was closed while it started"))


class _NoStream:
    """To a bookie that can't be reached: says so when it is used."""

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
