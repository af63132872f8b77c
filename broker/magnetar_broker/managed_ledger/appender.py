"""Appends to a topic's log, ledger by ledger.

Theory of operation
-------------------
An entry passes these functions, one call per stage: first down to the bookies, then its result back up.

    Producer.publish        checks the entries of one producer
    Appender.append         gives them index, broker time and stored bytes (append_queue.py), and adds as many as the
                            current ledger accepts
    append_entries          encodes the records, and queues them for each bookie (magnetar_bookie's replicated_adds.py)
    AddChannel.send         sends all queued records of a turn of the event loop

    AddChannel              gets a bookie's answer: the records are on its disk
    ReplicatedAdds          completes the adds that an ack quorum has answered, in order, once per turn
    Appender._on_completed  adds the entries to the list of ledgers and to the cache, and reports their positions
    Producer                reports them to its client

The end of a topic that is terminated is in termination.py.

**What an append waits for.** For nothing, if the current ledger has capacity: it is added in the same turn. Else it
waits in the queue: for a ledger, which the first append creates; for adds before it, if the writer has as many in
flight as it may have; for a bookie that the ledger needs and that lags; or for the end of a roll-over.

**What is durable when.** An entry is persisted when an ack quorum of bookies has it on disk. In the same turn it
becomes readable (`LedgerList.last`), is cached, and its callback is called, after those of all entries before it.
`on_appended` follows, once for all entries of one turn.

**When a ledger fails.** No result is reported. The failed ledger is closed by its own writer. If this close wins, the
failed entries are not in the ledger and never will be, and the same bytes are added to the next ledger before anything
else. If another client has closed it, or can't be excluded to have done so, the broker has lost the topic: it stops,
the outcome of all pending appends is unknown, and they fail.

    no ledger ──first append──► created, in the list, open ──full, old, or failed──► closed ──► no ledger …

One task creates ledgers and closes them (ledger_rollover.py), so there never are two open ones. It runs only while
there is something to do. A ledger that is closed for its age, on an idle topic, is followed by another one when
something is appended.

**Chunks.** The list marks a ledger that may hold chunks of messages before it has any: a Spark read looks no further
back for the first chunk of a message. So the first chunk begins a ledger, and the next ledgers are marked as long as
the ledger before them got a chunk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from magnetar_bookie.errors import AddFailed, LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.append_queue import AppendDone, AppendQueue
from magnetar_broker.managed_ledger.append_times import AppendTimes
from magnetar_broker.managed_ledger.current_ledger import CurrentLedger
from magnetar_broker.managed_ledger.entry_cache import CachedEntries
from magnetar_broker.managed_ledger.ledger_lifetime_settings import create_roll_rule
from magnetar_broker.managed_ledger.ledger_rollover import LedgerNotNeeded, LedgerRollover
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.managed_ledger.log_entry import NewEntry
from magnetar_broker.managed_ledger.termination import Termination, create_terminated_error
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_metadata.errors import MetadataError
from magnetar_wire.clock import Clock

__all__ = ["Appender"]

_log = logging.getLogger(__name__)


class Appender:
    __slots__ = (
        "_cached",
        "_clock",
        "_completed",
        "_has_chunks",
        "_is_closing",
        "_ledger_task",
        "_node",
        "_on_empty_ledger",
        "_on_stopped",
        "_rollover",
        "_rule",
        "_termination",
        "_times",
        "_will_announce",
        "_will_report_refused",
        "current_ledger",
        "error",
        "on_appended",
        "on_lost",
        "queue",
    )

    def __init__(
        self,
        node: TopicNode,
        client: LedgerClient,
        cached: CachedEntries,
        settings: ManagedLedgerSettings,
        striping: LedgerStriping,
        clock: Clock,
        on_empty_ledger: Callable[[], object],
        on_stopped: Callable[[], object],
    ) -> None:
        """`on_empty_ledger` is called when a ledger was closed empty and nothing is appended, `on_stopped` once."""
        self._node = node
        self._rollover = LedgerRollover(node, client, striping, clock)
        self._cached = cached
        self._rule = create_roll_rule(settings)
        self._clock = clock
        self.queue = AppendQueue(
            node.ledger_list.next_index,
            node.ledger_list.last_time_ms,
            settings.managed_ledger_max_pending_bytes,
            lambda: self.waiting_for,
        )
        self.current_ledger: CurrentLedger | None = None
        # Why nothing is accepted any more.
        self.error: TopicUnloaded | None = None
        self.on_appended: Callable[[], object] | None = None
        self.on_lost: Callable[[TopicUnloaded], object] | None = None
        self._on_empty_ledger = on_empty_ledger
        self._on_stopped = on_stopped
        self._times = AppendTimes(node.name, self.queue, clock)
        self._is_closing = False
        self._will_announce = False
        self._will_report_refused = False
        # Results of persisted entries that are being reported.
        self._completed: deque[tuple[AppendDone, Sequence[Position]]] = deque()
        # The last ledger got chunks.
        self._has_chunks = False
        self._ledger_task: asyncio.Task[None] | None = None
        self._termination = Termination(node, clock)

    @property
    def waiting_for(self) -> str:
        """Why appends wait; empty: they don't, or for nothing but the bookies' answers."""
        reason = self._ledger_waits_for
        if not self._termination.is_requested:
            return reason
        return f"the topic is being terminated{reason and ': '}{reason}"

    @property
    def _ledger_waits_for(self) -> str:
        waiting_for, ledger = self._rollover.waiting_for, self.current_ledger
        if waiting_for or ledger is None or not ledger.writer.is_blocked:
            return waiting_for
        lagging = ledger.writer.blocking_bookies  # empty, if they have caught up in this turn
        return (
            f"ledger {ledger.writer.ledger_id} needs bookies that lag behind: {', '.join(lagging)}" if lagging else ""
        )

    @property
    def state(self) -> str:
        """As in `ManagedLedgerStats`."""
        if self.error is not None:
            return "ended"
        if self._node.ledger_list.is_terminated:
            return "terminated"
        if self.waiting_for:
            return "waiting"
        return "idle" if self.current_ledger is None else "written"

    def check_open(self) -> None:
        """Raise `TopicUnloaded` if the log has ended."""
        if self.error is not None:
            raise self.error.again()

    # ── the way down ──

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        """Append entries, and return how many were accepted, from the first on. Raises nothing.

        `done` is called later, never within this call. It gets the error of the entry after the accepted ones, once
        all entries before that are decided; the rest of the entries is ignored.
        """
        if self.error is not None or self._is_closing:
            self.queue.refuse(self.error or TopicUnloaded(f"topic {self._node.name} is being closed"), done)
            self._report_refused_soon()
            return 0
        if self._node.ledger_list.is_terminated:
            self.queue.refuse(create_terminated_error(self._node.name), done)
            self._report_refused_soon()
            return 0
        accepted = self.queue.append(entries, done, self._clock.time_ms())
        if accepted:
            self._send_waiting()
        if accepted < len(entries):
            self._report_refused_soon()
        return accepted

    def _send_waiting(self) -> None:
        """Add waiting entries to the current ledger, as far as it accepts them. Rolls it over if it is due."""
        ledger, queue = self.current_ledger, self.queue
        if ledger is None or ledger.is_rolling:
            self._manage_ledgers()
            return
        free_entries, free_bytes = ledger.writer.count_capacity()
        if not free_entries:
            return  # completed adds make capacity, or `_on_capacity` is called
        entries_left, bytes_left = self._count_until_due(ledger)
        chunks = queue.waiting_chunks
        run = queue.take_run(min(free_entries, entries_left), free_bytes, bytes_left, takes_chunks=ledger.takes_chunks)
        size_bytes = sum(map(len, run))
        ledger.entries += len(run)
        ledger.length_bytes += size_bytes
        if queue.waiting_chunks < chunks:
            ledger.has_chunks = True
        if queue.waiting:
            is_due = len(run) >= entries_left or size_bytes >= bytes_left
            if is_due or (queue.is_chunk_next and not ledger.takes_chunks):
                self._roll(ledger)
        if run:
            ledger.writer.append_entries(run, ledger.on_completed)

    def _count_until_due(self, ledger: CurrentLedger) -> tuple[int, int]:
        """Return the number of entries, and of bytes, with which the ledger is due to be rolled over; 0 or less: it is
        due now."""
        writer = ledger.writer
        if writer.failure is not None:
            return 0, 0
        max_entries, max_bytes = self._rule.find_limits(self._clock.monotonic() - ledger.opened_at)
        if writer.should_roll:
            max_entries = min(max_entries, 1)
        return max_entries - ledger.entries, max_bytes - ledger.length_bytes

    # ── the way up ──

    def _on_completed(self, ledger: CurrentLedger, result: int | AddFailed, count: int) -> None:
        """The first `count` sent entries are persisted, from entry id `result` on; or adds have failed."""
        if ledger is not self.current_ledger:
            return
        if not isinstance(result, int):
            self._roll(ledger)
            return
        queue, first, ledger_id = self.queue, result, ledger.writer.ledger_id
        while count and ledger is self.current_ledger:
            appends, size_bytes = queue.confirm(count)
            confirmed = len(appends)
            entries = [append.entry for append in appends]
            positions = [Position(ledger_id, entry_id) for entry_id in range(first, first + confirmed)]
            for entry, position in zip(entries, positions, strict=True):
                entry.position = position
            first, count, last = first + confirmed, count - confirmed, entries[-1]
            self._node.ledger_list.add_confirmed(
                last.position, size_bytes, last.index, last.broker_time_ms, entries[0].broker_time_ms
            )
            self._cached.add(entries)
            if not self._will_announce:
                self._will_announce = True
                asyncio.get_running_loop().call_soon(self._announce)
            begin, done, completed = 0, appends[0].done, self._completed
            for at, append in enumerate(appends):
                if append.done is not done and append.done != done:
                    completed.append((done, positions[begin:at]))
                    begin, done = at, append.done
            if begin:
                completed.append((done, positions[begin:]))
                self._report_completed()
            else:
                try:
                    done(positions)
                except Exception:  # noqa: BLE001 (an error of one caller must not keep the others from being notified)
                    _log.exception("The callback of an append failed")
            if queue.refused:
                self._report_refused()
        if queue.waiting:
            self._send_waiting()

    def _report_completed(self) -> None:
        """Report persisted entries of several producers. A callback may stop the log: then `stop` reports the others
        before the pending entries, which fail."""
        completed = self._completed
        while completed:
            _report(*completed.popleft())

    def _announce(self) -> None:
        self._will_announce = False
        if self.on_appended is not None and self.error is None:
            self.on_appended()

    def _report_refused_soon(self) -> None:
        if not self._will_report_refused:
            self._will_report_refused = True
            asyncio.get_running_loop().call_soon(self._report_refused)

    def _report_refused(self) -> None:
        self._will_report_refused = False
        for append in self.queue.take_refused():
            assert append.error is not None
            _report(append.done, append.error)

    # ── ledgers ──

    def roll_if_due(self, idle_s: float = 0.0) -> None:
        """Roll over a ledger that is due, or to which nothing was added for `idle_s`; 0: for any time. Called at
        intervals, since the topic may be idle."""
        self._times.warn_if_ahead()
        unchanged_s = self._times.measure_unchanged_s()
        ledger = self.current_ledger
        if ledger is None or ledger.is_rolling:
            return
        is_idle = 0 < idle_s <= unchanged_s and ledger.entries > 0
        if is_idle or self._rollover.is_outdated or min(self._count_until_due(ledger)) <= 0:
            self._roll(ledger)

    def _roll(self, ledger: CurrentLedger) -> None:
        ledger.is_rolling = True
        self._manage_ledgers()

    async def roll_ledger(self) -> None:
        """Close the current ledger, if there is one. Returns when it is closed, or the log stopped."""
        ledger = self.current_ledger
        if ledger is None:
            return
        if ledger.closed is None:
            ledger.closed = asyncio.get_running_loop().create_future()
        self._roll(ledger)
        await asyncio.shield(ledger.closed)

    def _on_capacity(self, ledger: CurrentLedger) -> None:
        """A bookie that the ledger needs has caught up."""
        if ledger is self.current_ledger and self.queue.waiting:
            self._send_waiting()

    def _manage_ledgers(self) -> None:
        """Start the task that creates and closes ledgers."""
        if self._ledger_task is None and self.error is None:
            self._ledger_task = asyncio.create_task(self._create_and_close())

    async def _create_and_close(self) -> None:
        """Create and close ledgers while there is reason to."""
        try:
            while True:
                ledger = self.current_ledger
                if ledger is not None:
                    if not ledger.is_rolling:
                        break
                    await self._close_ledger(ledger)
                    if not self.queue.needs_ledger and self._node.ledger_list.empty_ledger_id is not None:
                        self._on_empty_ledger()
                elif self._termination.is_requested:
                    await self._terminate()
                elif self.queue.needs_ledger and not self._is_closing:
                    await self._create_ledger()
                    self._use_created_ledger()
                else:
                    break
        except TopicUnloaded as error:
            self._ledger_task = None
            self.fail(error)
        except (LedgerError, MetadataError) as error:
            self._ledger_task = None
            self.fail(TopicUnloaded(f"topic {self._node.name} can't be written by this broker any more: {error}"))
        except Exception as error:  # noqa: BLE001 (reported to all pending appends)
            _log.exception("Topic %s can't be written because of an internal error", self._node.name)
            self._ledger_task = None
            self.fail(TopicUnloaded(f"topic {self._node.name} can't be written by this broker any more: {error!r}"))
        finally:
            self._ledger_task = None

    def _use_created_ledger(self) -> None:
        if not self._termination.is_requested:
            self._send_waiting()
        elif self.current_ledger is not None:
            self.current_ledger.is_rolling = True

    async def _create_ledger(self) -> None:
        chunks = self._has_chunks or self.queue.waiting_chunks > 0
        self._rollover.is_needed = True
        try:
            writer = await self._rollover.create_ledger(chunks=chunks)
        except LedgerNotNeeded:
            return
        if self.error is not None:
            writer.abandon()
            return
        self.current_ledger = ledger = CurrentLedger(writer, self._clock.monotonic(), takes_chunks=chunks)
        ledger.on_completed = partial(self._on_completed, ledger)
        writer.on_capacity = partial(self._on_capacity, ledger)

    async def _close_ledger(self, ledger: CurrentLedger) -> None:
        await self._rollover.close_ledger(ledger.writer)
        self.queue.resend()
        self.current_ledger = None
        self._has_chunks = ledger.has_chunks
        ledger.mark_closed()

    # ── the end ──

    async def terminate(self) -> None:
        """Terminate the topic: accept no entry any more, durably. When this returns, all appends are decided. It goes
        on if the caller is cancelled. Raises `BrokerError`, as `Termination.wait`."""
        self.check_open()
        if self._node.ledger_list.is_terminated:
            return
        if not self._termination.is_requested:
            self._termination.request()
            if self.current_ledger is not None:
                self.current_ledger.is_rolling = True
            self._rollover.is_needed = False
            self._manage_ledgers()
        await self._termination.wait(lambda: self.waiting_for)

    async def _terminate(self) -> None:
        if not await self._termination.store():
            return
        self.queue.refuse_waiting(create_terminated_error(self._node.name), self._node.ledger_list.next_index)
        self._report_refused()
        if self._node.ledger_list.deleting:
            self._on_empty_ledger()

    def fail(self, error: TopicUnloaded) -> None:
        """Stop, since the broker has lost the topic or can't write it. Calls `on_lost`, once."""
        if self.error is None:
            _log.warning("Closing a topic: %s", error)
            is_closing = self._is_closing
            self.stop(error)
            if self.on_lost is not None and not is_closing:
                self.on_lost(error)

    def stop(self, error: TopicUnloaded) -> None:
        """Stop at once. Pending appends fail, and their outcome is unknown. The ledger is left to a recovery."""
        if self.error is not None:
            return
        self.error = error
        ledger, self.current_ledger = self.current_ledger, None
        if ledger is not None:
            ledger.writer.abandon()
            ledger.mark_closed()
        if self._ledger_task is not None:
            self._ledger_task.cancel()
        self._rollover.stop()
        self._termination.fail(error.again())
        self._on_stopped()
        self._report_completed()
        for append in self.queue.take_all():
            _report(append.done, append.error or error)

    async def close(self) -> None:
        """Accept nothing more, wait until all sent entries are decided, and close the ledger if that is possible."""
        self._is_closing = True
        if self.current_ledger is not None:
            self._roll(self.current_ledger)
            while self._ledger_task is not None and self.error is None and self.current_ledger is not None:
                await asyncio.wait([self._ledger_task])
        self.stop(TopicUnloaded(f"topic {self._node.name} was closed by this broker"))


def _report(done: AppendDone, result: Sequence[Position] | BrokerError) -> None:
    try:
        done(result)
    except Exception:  # noqa: BLE001 (an error of one caller must not keep the others from being notified)
        _log.exception("The callback of an append failed")
