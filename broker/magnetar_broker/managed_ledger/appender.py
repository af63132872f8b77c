"""The end of a log at which it grows: one ledger after the other, and the appends that wait for it.

    no ledger ──first append──► made, recorded, written ──full, old, failed──► closed ──► no ledger …

An append goes to the ledger's writer at once where there is one that has room, and waits in the queue where not. One
task per log, and only while there is something to wait for, makes the next ledger and closes the last; so there never
are two of them, however many appends wait. A ledger that ends because it is old, on a topic that is idle, is closed,
and the next append makes the next.

**Chunks.** The list says of a ledger, before it has any, that there may be chunks of messages in it: who reads the log
in bulk looks no further back for the beginning of a message than where one may be. So the first chunk of all has a
ledger begun, and the next ones take chunks as long as those before them got any.

When the writer fails, all that is pending is left to be decided, and the ledger is closed. If our close is the one that
counts, what failed is not in the ledger and never will be: the same bytes go to the next ledger before anything else.
If it is lost, or a ledger can't be made for another reason than one that passes (ledger_rollover.py), the topic is
given up, and what is pending is unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from magnetar_bookie.errors import AddFailed, LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.record import RECORD_HEADER_BYTES
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.append_queue import Append, AppendDone, AppendQueue
from magnetar_broker.managed_ledger.entry_cache import CachedEntries
from magnetar_broker.managed_ledger.ledger_list import LedgerList
from magnetar_broker.managed_ledger.ledger_rollover import LedgerRollover
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_metadata.errors import MetadataError
from magnetar_wire.clock import Clock
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["Appender", "CurrentLedger"]

_log = logging.getLogger(__name__)


class CurrentLedger:
    """The ledger that is written."""

    __slots__ = ("ended", "entries", "has_chunks", "length_bytes", "opened_at", "rolling", "takes_chunks", "writer")

    def __init__(self, writer: LedgerWriter, opened_at: float, *, takes_chunks: bool) -> None:
        self.writer = writer
        self.opened_at = opened_at
        # The list says that there may be some in it, and there are.
        self.takes_chunks = takes_chunks
        self.has_chunks = False
        # Of what was sent to it.
        self.entries = 0
        self.length_bytes = 0
        # Nothing more is sent to it.
        self.rolling = False
        # For those who wait until it is closed.
        self.ended: asyncio.Future[None] | None = None


class Appender:
    __slots__ = (
        "_announced",
        "_cached",
        "_chunks",
        "_clock",
        "_closing",
        "_driver",
        "_ledgers",
        "_node",
        "_on_ended",
        "_on_left_empty",
        "_rule",
        "_telling",
        "_untold",
        "ended",
        "on_appended",
        "on_lost",
        "queue",
        "written",
    )

    def __init__(
        self,
        node: TopicNode,
        client: LedgerClient,
        cached: CachedEntries,
        settings: ManagedLedgerSettings,
        striping: LedgerStriping,
        clock: Clock,
        on_left_empty: Callable[[], object],
        on_ended: Callable[[], object],
    ) -> None:
        self._node = node
        self._ledgers = LedgerRollover(node, client, striping, clock)
        self._cached = cached
        self._rule = settings.roll_rule
        self._clock = clock
        self.queue = AppendQueue(
            node.ledger_list.next_index, node.ledger_list.last_time_ms, settings.managed_ledger_max_pending_bytes
        )
        self.written: CurrentLedger | None = None
        # Why nothing is taken any more.
        self.ended: TopicUnloaded | None = None
        self.on_appended: Callable[[], object] | None = None
        self.on_lost: Callable[[TopicUnloaded], object] | None = None
        # A ledger was closed empty, and nothing is to follow it at once.
        self._on_left_empty = on_left_empty
        self._on_ended = on_ended
        self._closing = False
        self._announced = False
        self._telling = False
        # Those who are to hear of places.
        self._untold: deque[tuple[AppendDone, Sequence[Position]]] = deque()
        # The last ledger had some.
        self._chunks = False
        self._driver: asyncio.Task[None] | None = None

    @property
    def _list(self) -> LedgerList:
        return self._node.ledger_list

    @property
    def waiting_for(self) -> str:
        waiting_for, written = self._ledgers.waiting_for, self.written
        if not waiting_for and written is not None and written.writer.is_blocked:
            lagging = written.writer.blocking_bookies  # empty, if they have caught up just now
            return (
                f"ledger {written.writer.ledger_id} needs bookies that lag behind: {', '.join(lagging)}"
                if lagging
                else ""
            )
        return waiting_for

    @property
    def state(self) -> str:
        if self.ended is not None:
            return "ended"
        if self.waiting_for:
            return "waiting"
        return "idle" if self.written is None else "written"

    # ── appending ──

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        if self.ended is not None or self._closing:
            self.queue.refuse(self.ended or TopicUnloaded(f"topic {self._node.name} is being closed"), done)
            self._tell_refused_soon()
            return 0
        taken = self.queue.append(entries, done, self._clock.time_ms(), self.waiting_for)
        if taken:
            self._feed()
        if taken < len(entries):
            self._tell_refused_soon()
        return taken

    def _feed(self) -> None:
        """Sends what waits, as far as there is a ledger, and room in it."""
        written, queue = self.written, self.queue
        if written is None or written.rolling:
            self._drive_on()
            return
        writer = written.writer
        if not writer.has_capacity():
            return  # what completes makes room, and comes back; so does `_room_made`
        rule, age_s = self._rule, self._age_s(written)
        failed, should_roll = writer.failure is not None, writer.should_roll  # neither changes by what is sent
        free_entries, free_bytes = writer.free_entries, writer.free_bytes
        run: list[bytes] = []
        rolls = False
        while len(run) < free_entries and free_bytes > 0 and (entry := queue.next_waiting()) is not None:
            if (
                failed
                or rule.due(written.entries, written.length_bytes, age_s)
                or (should_roll and written.entries)
                or (entry.chunk is not None and not written.takes_chunks)
            ):
                rolls = True
                break
            stored = entry.stored
            run.append(stored)
            queue.sent()
            free_bytes -= len(stored) + RECORD_HEADER_BYTES + ENTRY_OVERHEAD_BYTES
            written.entries += 1
            written.length_bytes += len(stored)
            if entry.chunk is not None:
                written.has_chunks = True
        if run:
            writer.append_entries(run, partial(self._completed, written))
        if rolls:
            self._roll(written)

    def _room_made(self, written: CurrentLedger) -> None:
        """A bookie that the ledger needs has caught up."""
        if written is self.written and self.queue.waits:
            self._feed()

    def _is_due(self, written: CurrentLedger) -> bool:
        writer = written.writer
        return (
            self._rule.due(written.entries, written.length_bytes, self._age_s(written))
            or writer.failure is not None
            or (writer.should_roll and written.entries > 0)
        )

    def _age_s(self, written: CurrentLedger) -> float:
        return self._clock.monotonic() - written.opened_at

    def _completed(self, written: CurrentLedger, result: int | AddFailed, count: int) -> None:
        """Of the first appends that were sent and are not decided, so many."""
        if written is not self.written:
            return
        if not isinstance(result, int):
            self._roll(written)
            return
        queue, first = self.queue, result
        while count and written is self.written:
            confirmed = queue.confirmed(count)
            self._stored(written.writer.ledger_id, first, confirmed)
            first, count = first + len(confirmed), count - len(confirmed)
            if queue.refused:
                self._tell_refused()
        # Many complete at a time, and the first of them finds all the room that they have made.
        if queue.waits and (written.rolling or written.writer.has_capacity()):
            self._feed()

    def _stored(self, ledger_id: int, first: int, appends: Sequence[Append]) -> None:
        entries = [append.entry for append in appends]
        positions = [Position(ledger_id, entry_id) for entry_id in range(first, first + len(entries))]
        for entry, position in zip(entries, positions, strict=True):
            entry.position = position
        last, size = entries[-1], sum([len(entry.stored) for entry in entries])
        self._list.add_confirmed(last.position, size, last.index, last.broker_time_ms, entries[0].broker_time_ms)
        self._cached.add(entries)
        if not self._announced:
            self._announced = True
            asyncio.get_running_loop().call_soon(self._announce)
        begun, done, untold = 0, appends[0].done, self._untold
        for at, append in enumerate(appends):
            if append.done != done:
                untold.append((done, positions[begun:at]))
                begun, done = at, append.done
        untold.append((done, positions[begun:] if begun else positions))
        self._tell_stored()

    def _tell_stored(self) -> None:
        """Who hears of his may end the log: the others hear of theirs before what is pending is told, then."""
        untold = self._untold
        while untold:
            _tell(*untold.popleft())

    def _announce(self) -> None:
        self._announced = False
        if self.on_appended is not None and self.ended is None:
            self.on_appended()

    def _tell_refused_soon(self) -> None:
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell_refused)

    def _tell_refused(self) -> None:
        self._telling = False
        for append in self.queue.take_refused():
            assert append.refused is not None
            _tell(append.done, append.refused)

    # ── ledgers ──

    def tick(self) -> None:
        """Rolls what is due, on a topic that is idle too."""
        written = self.written
        if written is not None and not written.rolling and self._is_due(written):
            self._roll(written)

    def _roll(self, written: CurrentLedger) -> None:
        written.rolling = True
        self._drive_on()

    async def roll(self) -> None:
        """Returns when the ledger that is written now is closed, or the topic given up."""
        written = self.written
        if written is None:
            return
        if written.ended is None:
            written.ended = asyncio.get_running_loop().create_future()
        self._roll(written)
        await asyncio.shield(written.ended)

    def _drive_on(self) -> None:
        if self._driver is None and self.ended is None:
            self._driver = asyncio.create_task(self._drive())

    async def _drive(self) -> None:
        """Opens and closes ledgers as long as that is called for."""
        try:
            while True:
                written = self.written
                if written is not None:
                    if not written.rolling:
                        break
                    await self._close(written)
                    if not self.queue.has_waiting and self._list.empty_ledger_id is not None:
                        self._on_left_empty()
                elif self.queue.has_waiting and not self._closing:
                    await self._open()
                    self._feed()
                else:
                    break
        except TopicUnloaded as error:
            self._driver = None
            self.give_up(error)
        except (LedgerError, MetadataError) as error:
            self._driver = None
            self.give_up(TopicUnloaded(f"topic {self._node.name} can't be written by this broker any more: {error}"))
        except Exception as error:  # noqa: BLE001 (whoever appends must hear of it)
            _log.exception("Topic %s can't be written because of an internal error", self._node.name)
            self._driver = None
            self.give_up(TopicUnloaded(f"topic {self._node.name} can't be written by this broker any more: {error!r}"))
        finally:
            self._driver = None

    async def _open(self) -> None:
        chunks = self._chunks or self.queue.has_chunk_waiting
        writer = await self._ledgers.open(chunks=chunks)
        if self.ended is not None:
            writer.abandon()
            return
        self.written = written = CurrentLedger(writer, self._clock.monotonic(), takes_chunks=chunks)
        writer.on_capacity = partial(self._room_made, written)

    async def _close(self, written: CurrentLedger) -> None:
        await self._ledgers.close(written.writer)
        self.queue.resend()
        self.written = None
        self._chunks = written.has_chunks
        _end(written)

    # ── the end ──

    def give_up(self, error: TopicUnloaded) -> None:
        """Once; what has no outcome by now is unknown."""
        if self.ended is None:
            _log.warning("Closing a topic: %s", error)
            closing = self._closing
            self.end(error)
            if self.on_lost is not None and not closing:
                self.on_lost(error)

    def end(self, error: TopicUnloaded) -> None:
        """Stops at once. The ledger stays as it is, for whoever opens the topic next."""
        if self.ended is not None:
            return
        self.ended = error
        written, self.written = self.written, None
        if written is not None:
            written.writer.abandon()
            _end(written)
        if self._driver is not None:
            self._driver.cancel()
        self._on_ended()
        self._tell_stored()
        for append in self.queue.take_all():
            _tell(append.done, append.refused or error)

    async def finish(self) -> None:
        """Takes nothing more; returns when what was sent is decided and the ledger closed, as far as that can be."""
        self._closing = True
        if self.written is not None:
            self._roll(self.written)
            while self._driver is not None and self.ended is None and self.written is not None:
                await asyncio.wait([self._driver])
        self.end(TopicUnloaded(f"topic {self._node.name} was closed by this broker"))


def _end(written: CurrentLedger) -> None:
    if written.ended is not None and not written.ended.done():
        written.ended.set_result(None)


def _tell(done: AppendDone, result: Sequence[Position] | BrokerError) -> None:
    try:
        done(result)
    except Exception:  # noqa: BLE001 (its owner's mistake must not keep the others from hearing)
        _log.exception("The callback of an append failed")
