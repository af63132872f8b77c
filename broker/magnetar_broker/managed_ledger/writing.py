"""The end of a log at which it grows: one ledger after the other, and the appends that wait for it.

    no ledger ──first append──► made, recorded, written ──full, old, failed──► closed ──► no ledger …

An append goes to the ledger's writer at once where there is one that has room, and waits in the queue where not. One
task per log, and only while there is something to wait for, makes the next ledger and closes the last; so there never
are two of them, however many appends wait. A ledger that ends because it is old, on a topic that is idle, is closed,
and the next append makes the next.

When the writer fails, all that is pending is left to be decided, and the ledger is closed. If our close is the one that
counts, what failed is not in the ledger and never will be: the same bytes go to the next ledger before anything else.
If the close is lost, somebody else has the topic, and nobody here can tell what became of what failed; then, and where
the list of ledgers is not as we left it, the topic is given up.

While too few bookies are there, or the metadata store takes nothing, appends wait, `waiting_for` says for what, and all
is tried again until it can be done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.client.ledger_store import MadeLedger
from magnetar_bookie.client.ledger_writer import LedgerWriter
from magnetar_bookie.errors import (
    AddFailed,
    CloseLost,
    IntentSwept,
    LedgerError,
    NotEnoughBookies,
    OutcomeNotKnown,
    TooManyPending,
)
from magnetar_broker.core.append_queue import Append, AppendQueue
from magnetar_broker.core.ledger_list import LedgerList, ListChange
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, TopicGivenUp
from magnetar_broker.managed_ledger.entry_cache import CachedEntries
from magnetar_broker.managed_ledger.options import ManagedLedgerOptions
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_metadata.errors import MetadataError, StoreFull, Unavailable
from magnetar_wire.clock import Clock

__all__ = ["LogWriting", "Written"]

_log = logging.getLogger(__name__)
_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 2.0
# So often a close whose outcome is not known is tried again before the topic is given up.
_CLOSES: Final = 5


class Written:
    """The ledger that is written."""

    __slots__ = ("ended", "entries", "length_bytes", "opened_at", "rolling", "writer")

    def __init__(self, writer: LedgerWriter, opened_at: float) -> None:
        self.writer = writer
        self.opened_at = opened_at
        # Of what was sent to it.
        self.entries = 0
        self.length_bytes = 0
        # Nothing more is sent to it.
        self.rolling = False
        # For those who wait until it is closed.
        self.ended: asyncio.Future[None] | None = None


class LogWriting:
    __slots__ = (
        "_announced",
        "_cached",
        "_client",
        "_clock",
        "_closing",
        "_driver",
        "_node",
        "_on_ended",
        "_on_left_empty",
        "_options",
        "_rule",
        "_telling",
        "ended",
        "on_appended",
        "on_lost",
        "queue",
        "waiting_for",
        "written",
    )

    def __init__(
        self,
        node: TopicNode,
        client: LedgerClient,
        cached: CachedEntries,
        options: ManagedLedgerOptions,
        clock: Clock,
        on_left_empty: Callable[[], object],
        on_ended: Callable[[], object],
    ) -> None:
        self._node = node
        self._client = client
        self._cached = cached
        self._options = options
        self._rule = options.roll_rule
        self._clock = clock
        self.queue = AppendQueue(node.list.next_index, node.list.last_time_ms, options.managed_ledger_max_pending_bytes)
        self.written: Written | None = None
        # Why appends wait; empty: they don't, or for nothing but the bookies' answers.
        self.waiting_for = ""
        # Why nothing is taken any more.
        self.ended: TopicGivenUp | None = None
        self.on_appended: Callable[[], object] | None = None
        self.on_lost: Callable[[TopicGivenUp], object] | None = None
        # A ledger was closed empty, and nothing is to follow it at once.
        self._on_left_empty = on_left_empty
        self._on_ended = on_ended
        self._closing = False
        self._announced = False
        self._telling = False
        self._driver: asyncio.Task[None] | None = None

    @property
    def list(self) -> LedgerList:
        return self._node.list

    @property
    def state(self) -> str:
        if self.ended is not None:
            return "ended"
        if self.waiting_for:
            return "waiting"
        return "idle" if self.written is None else "written"

    # ── appending ──

    def append(
        self, entry: bytes, messages: int, batch_size: int, done: Callable[[Position | BrokerError], object]
    ) -> None:
        if self.ended is not None or self._closing:
            self.queue.refuse(self.ended or TopicGivenUp(f"topic {self._node.name} is being closed"), done)
            self._tell_refused_soon()
        elif self.queue.append(entry, messages, batch_size, done, self._clock.time_ms(), self.waiting_for):
            self._feed()
        else:
            self._tell_refused_soon()

    def _feed(self) -> None:
        """Sends what waits, as far as there is a ledger, and room in it."""
        written, queue = self.written, self.queue
        if written is None or written.rolling:
            self._drive_on()
            return
        while (stored := queue.next_waiting()) is not None:
            if self._is_due(written):
                self._roll(written)
                return
            try:
                written.writer.append(stored, partial(self._completed, written))
            except TooManyPending:
                return  # what completes makes room
            queue.sent()
            written.entries += 1
            written.length_bytes += len(stored)

    def _is_due(self, written: Written) -> bool:
        writer = written.writer
        age_s = self._clock.monotonic() - written.opened_at
        return (
            self._rule.due(written.entries, written.length_bytes, age_s)
            or writer.failed is not None
            or (writer.wants_roll and written.entries > 0)
        )

    def _completed(self, written: Written, result: int | AddFailed) -> None:
        """Of the first append that was sent and is not decided."""
        if written is not self.written:
            return
        if not isinstance(result, int):
            self._roll(written)
            return
        queue = self.queue
        append = queue.confirmed()
        entry = append.entry
        position = entry.position = Position(written.writer.ledger_id, result)
        self.list.confirmed(position, len(entry.stored), entry.index, entry.broker_time_ms)
        self._cached.add(entry)
        if not self._announced:
            self._announced = True
            asyncio.get_running_loop().call_soon(self._announce)
        _tell(append, position)
        if queue.waits:
            self._tell_refused()
            self._feed()

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
            _tell(append, append.refused)

    # ── ledgers ──

    def tick(self) -> None:
        """Rolls what is due, on a topic that is idle too."""
        written = self.written
        if written is not None and not written.rolling and self._is_due(written):
            self._roll(written)

    def _roll(self, written: Written) -> None:
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
                    if not self.queue.has_waiting and self.list.empty is not None:
                        self._on_left_empty()
                elif self.queue.has_waiting and not self._closing:
                    await self._open()
                    self._feed()
                else:
                    break
        except TopicGivenUp as error:
            self._driver = None
            self.give_up(error)
        except (LedgerError, MetadataError) as error:
            self._driver = None
            self.give_up(TopicGivenUp(f"topic {self._node.name} can't be written here any more: {error}"))
        except Exception as error:  # noqa: BLE001 (whoever appends must hear of it)
            _log.exception("topic %s", self._node.name)
            self._driver = None
            self.give_up(TopicGivenUp(f"topic {self._node.name} can't be written here any more: {error!r}"))
        finally:
            self._driver = None

    async def _open(self) -> None:
        striping, pause_s = self._options.striping, _PAUSE_S
        while True:
            try:
                made, writer = await self._client.create(striping, f"topic {self._node.name}")
                break
            except NotEnoughBookies as error:
                self._wait_for(error)
                await self._client.wait_for_bookies(striping)
            except (Unavailable, StoreFull) as error:
                self._wait_for(error)
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            await self._record(made)
        except IntentSwept:
            writer.abandon()
            return  # another one is made
        except BaseException:
            writer.abandon()
            raise
        if self.ended is not None:
            writer.abandon()
            return
        self.waiting_for = ""
        self.written = Written(writer, self._clock.monotonic())

    async def _record(self, made: MadeLedger) -> None:
        pause_s = _PAUSE_S
        while True:
            try:
                await self._node.change(ListChange(made=made.ledger_id, empty=self.list.empty), made)
                return
            except (Unavailable, StoreFull) as error:
                self._wait_for(error)
                await self._clock.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _close(self, written: Written) -> None:
        ledger_id, pause_s, closes = written.writer.ledger_id, _PAUSE_S, 0
        while True:
            try:
                metadata = await written.writer.close()
                break
            except CloseLost as error:
                raise TopicGivenUp(f"topic {self._node.name} was taken over: {error}") from error
            except OutcomeNotKnown as error:
                closes += 1
                if closes == _CLOSES:
                    text = f"how ledger {ledger_id} of {self._node.name} ends is not known: {error}"
                    raise TopicGivenUp(text) from error
            except (Unavailable, StoreFull) as error:
                self._wait_for(error)
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        listed = self.list.ledgers[-1]
        if listed.ledger_id != ledger_id or listed.entries != metadata.last_entry_id + 1:
            raise TopicGivenUp(
                f"ledger {ledger_id} of {self._node.name} ends at {metadata.last_entry_id}, and {listed.entries} "
                f"entries of {listed.ledger_id} are known"
            )
        self.waiting_for = ""
        self.list.closed(self._clock.time_ms())
        self.queue.resend()
        self.written = None
        _end(written)

    def _wait_for(self, error: Exception) -> None:
        if not self.waiting_for:
            _log.warning("publishing on %s waits: %s", self._node.name, error)
        self.waiting_for = str(error)

    # ── the end ──

    def give_up(self, error: TopicGivenUp) -> None:
        """Once; what has no outcome by now is unknown."""
        if self.ended is None:
            _log.warning("given up: %s", error)
            closing = self._closing
            self.end(error)
            if self.on_lost is not None and not closing:
                self.on_lost(error)

    def end(self, error: TopicGivenUp) -> None:
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
        for append in self.queue.take_all():
            _tell(append, append.refused or error)

    async def finish(self) -> None:
        """Takes nothing more; returns when what was sent is decided and the ledger closed, as far as that can be."""
        self._closing = True
        if self.written is not None:
            self._roll(self.written)
            while self._driver is not None and self.ended is None and self.written is not None:
                await asyncio.wait([self._driver])
        self.end(TopicGivenUp(f"topic {self._node.name} was closed here"))


def _end(written: Written) -> None:
    if written.ended is not None and not written.ended.done():
        written.ended.set_result(None)


def _tell(append: Append, result: Position | BrokerError) -> None:
    try:
        append.done(result)
    except Exception:  # noqa: BLE001 (its owner's mistake must not keep the others from hearing)
        _log.exception("the completion of an append failed")
