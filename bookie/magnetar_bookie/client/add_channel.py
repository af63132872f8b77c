"""Adds on their way to one bookie: one stream for all ledgers of the process.

Theory of operation
-------------------
`send` puts a record in line. What is in line leaves in frames: the first as soon as the event loop comes round, the
next with whatever gathered while that one was being sent. So work is done per frame, and a busy writer's frames grow by
themselves. Every record is *unanswered* from `send` until the bookie's answer, wherever it is meanwhile.

A bookie in this process takes what is in line as it is (`adds_at_hand.py`), once in a turn of the loop, and answers by
a call, without frames, streams of bytes and tasks in between. What it does not take so, for want of room say, goes in a
frame like any other. The stream is there all the same: it ends when the bookie does.

A stream breaks when its bookie goes, ends it, says what can't be read, leaves a record unanswered for the add time-out,
or lags by more bytes than it may. Then every sink with something unanswered is told, once, and no answer of that stream
reaches anybody any more: what was under way is unknown, and the sink has it sent elsewhere. The next `send` opens
another stream. A bookie whose streams break without an answer is left alone for a pause that grows; a `send` within it
fails at once, which is better for a ledger that has a spare bookie than to wait.

One timer watches the oldest unanswered record; it is set anew when it has gone off, not when an answer comes.

Ordinary adds and those of recovery have a stream each. An answer does not say which of the two it is for, and a writer
that took the answers to a recovery's adds for its own could complete an add that the recovery beside it cuts off.

Neither a sink nor a failure is ever told from within `send`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from magnetar_bookie.adds_at_hand import AddsAtHand
from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_bookie.read.record import MAX_RECORD_BYTES
from magnetar_protos.ledger_pb2 import AddAnswers, AddRequest, AddRun
from magnetar_wire.blobs import field_head
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.transport import Stream, TransportError

__all__ = ["AddChannel", "AddSink"]

log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0
# What keeping one unanswered record takes besides its bytes, about.
_OVERHEAD_BYTES: Final = 200


class AddSink(Protocol):
    """A ledger that is written to."""

    def answered(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        """The bookie's answer to these entries."""

    def bookie_failed(self, bookie_id: str, reason: str) -> None:
        """Whatever is unanswered there is unknown, and no answer to it will come."""


@dataclass(slots=True)
class _Run:
    """Records in line: of one ledger, from this entry on."""

    ledger_id: int
    master_key: bytes
    first: int
    records: Sequence[bytes]


class _Link:
    """One stream, as long as it lives."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        # What the sender waits for when there is nothing to send.
        self.idle: asyncio.Future[None] | None = None
        # The bookie, where it is in this process, and how many frames it was sent nevertheless.
        self.at_hand: AddsAtHand | None = None
        self.frames = 0
        # What is in line is handed over in the next turn of the loop.
        self.handing = False

    def wake(self) -> None:
        if self.idle is not None and not self.idle.done():
            self.idle.set_result(None)


class AddChannel:
    """`Bookies.adds` makes it."""

    def __init__(
        self,
        bookie_id: str,
        open_stream: Callable[[], Stream],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        clock: Clock,
        options: LedgerClientOptions,
        *,
        recovery: bool = False,
    ) -> None:
        self._bookie_id = bookie_id
        self._open_stream = open_stream
        self._spawn = spawn
        self._clock = clock
        self._timeout_s = options.add_entry_timeout_s
        self._max_lag_bytes = options.max_bookie_lag_bytes
        self._recovery = recovery
        # By ledger; several recoveries of one ledger may run in one process.
        self._sinks: dict[int, list[AddSink]] = {}
        self._line: deque[_Run] = deque()
        # (ledger id, entry id) → since when, and its bytes. Oldest first; `_unanswered_bytes` is their sum.
        self._unanswered: dict[tuple[int, int], tuple[float, int]] = {}
        self._unanswered_bytes = 0
        # The next look at the oldest one, and when it is due.
        self._timer: Timer | None = None
        self._check_at = 0.0
        self._link: _Link | None = None
        self._pause_s = 0.0
        self._not_before = 0.0
        # Why the channel breaks in this turn of the loop, and the ledgers to be told though their records were not
        # taken.
        self._breaking: str | None = None
        self._closed = False

    @property
    def unanswered_bytes(self) -> int:
        return self._unanswered_bytes

    def attach(self, ledger_id: int, sink: AddSink) -> Callable[[], None]:
        """Has the sink told of the ledger's answers and failures. Returns what ends that."""
        self._sinks.setdefault(ledger_id, []).append(sink)

        def detach() -> None:
            sinks = self._sinks.get(ledger_id, [])
            if sink in sinks:
                sinks.remove(sink)
            if not sinks:
                self._sinks.pop(ledger_id, None)

        return detach

    def send(self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool) -> None:
        """Puts the records of these entries, `first` and those that follow it, in line."""
        assert recovery is self._recovery, "recovery's adds have a channel of their own: adds(…, recovery=True)"
        now, unanswered = self._clock.monotonic(), self._unanswered
        added = 0
        for entry_id, record in enumerate(records, first):
            key, since, size = (ledger_id, entry_id), now, len(record) + _OVERHEAD_BYTES
            if key in unanswered:  # sent again: it is the oldest copy that is waited for
                since, before = unanswered[key]
                added -= before
            unanswered[key] = since, size
            added += size
        self._unanswered_bytes += added
        if self._breaking is not None:
            return
        if self._closed:
            self._break_soon("the ledger client is closed")
        elif self._link is None and now < self._not_before:
            self._break_soon("it failed a moment ago")
        elif self._unanswered_bytes > self._max_lag_bytes:
            self._break_soon(f"it is behind by {self._unanswered_bytes} bytes, and may be by {self._max_lag_bytes}")
        else:
            self._line.append(_Run(ledger_id, master_key, first, records))
            link = self._link
            if link is None:
                self._open()
            elif link.at_hand is None:
                link.wake()
            elif not link.handing:
                link.handing = True
                asyncio.get_running_loop().call_soon(self._hand_over, link)
            if self._timer is None:
                self._check_in(self._timeout_s)

    def registered_anew(self) -> None:
        """The bookie is there again: no reason to spare it."""
        self._pause_s = self._not_before = 0.0

    def close(self) -> None:
        """Ends the stream; whatever is sent later fails."""
        self._closed = True
        self._break(self._link, "the ledger client is closed")

    def _open(self) -> None:
        link = self._link = _Link(self._open_stream())
        self._spawn(self._guarded(link, self._send_frames(link)))
        self._spawn(self._guarded(link, self._receive_answers(link)))

    async def _guarded(self, link: _Link, work: Coroutine[Any, Any, str]) -> None:
        """However the work ends, the stream ends with it."""
        try:
            reason = await work
        except TransportError as error:
            reason = f"{type(error).__name__}: {error}"
        except Exception as error:
            log.exception("adds to bookie %s failed", self._bookie_id)
            reason = f"a fault of ours: {error!r}"
        self._break(link, reason)

    async def _send_frames(self, link: _Link) -> str:
        if isinstance(link.stream.at_hand, AddsAtHand):
            link.at_hand = link.stream.at_hand
            link.at_hand.begin(partial(self._answered_at_hand, link))
        while link is self._link:
            if self._line:
                link.frames += 1
                await link.stream.send(self._next_frame())
            else:
                link.idle = asyncio.get_running_loop().create_future()
                await link.idle
        return "the stream is over"

    def _hand_over(self, link: _Link) -> None:
        """What is in line, to the bookie at hand. From what it does not take on, all that is in line goes in frames."""
        link.handing = False
        line, at_hand = self._line, link.at_hand
        if link is not self._link or at_hand is None:
            return
        try:
            try:
                while line and at_hand.ready(link.frames):
                    run = line.popleft()
                    left = at_hand.take(run.ledger_id, run.master_key, run.first, run.records, recovery=self._recovery)
                    if link is not self._link:  # it broke by what was answered: nothing of it is in line any more
                        break
                    if left:
                        records = run.records
                        each = [_Run(run.ledger_id, run.master_key, one, [records[one - run.first]]) for one in left]
                        line.extendleft(reversed(each))
                        break
            finally:
                at_hand.taken()
        except Exception as error:
            log.exception("adds to bookie %s failed", self._bookie_id)
            self._break(link, f"a fault of ours: {error!r}")
        if line:
            link.wake()

    def _answered_at_hand(self, link: _Link, ledger_id: int, first: int, count: int, status: int) -> None:
        """Called by the bookie, which may not meet what goes wrong here: it would take that for its disk's failure."""
        if link is self._link:
            self._pause_s = 0.0
            try:
                self._take(ledger_id, first, count, status)
            except Exception as error:
                log.exception("adds to bookie %s failed", self._bookie_id)
                asyncio.get_running_loop().call_soon(self._break, link, f"a fault of ours: {error!r}")

    def _next_frame(self) -> bytes:
        builder, line = FrameBuilder(max_entry_bytes=MAX_RECORD_BYTES), self._line
        runs: list[AddRun] = []
        last: tuple[int, bytes] | None = None
        while line:
            run = line[0]
            key = (run.ledger_id, run.master_key)
            taken = 0
            for entry_id, record in enumerate(run.records, run.first):
                if not builder.add(run.ledger_id, entry_id, record, new_run=key != last):
                    break
                taken += 1
                last = key
                if builder.runs > len(runs):
                    runs.append(AddRun(master_key=run.master_key, recovery=self._recovery))
            if taken < len(run.records):
                run.first, run.records = run.first + taken, run.records[taken:]
                break
            line.popleft()
        parts = builder.take_parts()
        head = field_head(AddRequest.FRAME_FIELD_NUMBER, sum(map(len, parts)))
        return b"".join((head, *parts, AddRequest(runs=runs).SerializeToString()))

    async def _receive_answers(self, link: _Link) -> str:
        while (message := await link.stream.receive()) is not None:
            if link is not self._link:
                break
            try:
                answers = AddAnswers.FromString(message).answers
            except DecodeError as error:
                return f"its answer can't be read: {error}"
            self._pause_s = 0.0
            for answer in answers:
                self._take(answer.ledger_id, answer.first_entry_id, answer.count, answer.status)
        return "it ended the stream"

    def _take(self, ledger_id: int, first: int, count: int, status: int) -> None:
        unanswered = self._unanswered
        # Never more work than there are unanswered records, whatever the bookie claims.
        entry_ids: Iterable[int] = range(first, first + count)
        if count > len(unanswered):
            entry_ids = [entry_id for ledger, entry_id in unanswered if ledger == ledger_id and entry_id in entry_ids]
        for entry_id in entry_ids:
            found = unanswered.pop((ledger_id, entry_id), None)
            if found is not None:
                self._unanswered_bytes -= found[1]
        for sink in tuple(self._sinks.get(ledger_id, ())):
            sink.answered(self._bookie_id, first, count, status)

    def _check_in(self, seconds: float) -> None:
        self._check_at = self._clock.monotonic() + seconds
        self._timer = self._clock.call_later(seconds, self._check_oldest)

    def _check_oldest(self) -> None:
        self._timer = None
        if not self._unanswered:
            return
        now, grace_s = self._clock.monotonic(), self._timeout_s / 10
        since, _ = next(iter(self._unanswered.values()))
        if now > self._check_at + grace_s:
            self._check_in(grace_s)  # this process was asleep: the answers may have come meanwhile
        elif now < since + self._timeout_s:
            self._check_in(since + self._timeout_s - now)
        else:
            self._break(self._link, f"it has not answered an add within {self._timeout_s} s")

    def _break_soon(self, reason: str) -> None:
        self._breaking = reason
        link = self._link
        asyncio.get_running_loop().call_soon(lambda: self._break_for(link, reason))

    def _break_for(self, link: _Link | None, reason: str) -> None:
        if self._breaking is not None:
            self._break(link, reason)

    def _break(self, link: _Link | None, reason: str) -> None:
        if link is not self._link:  # an old stream's end is no news
            return
        self._breaking = None
        if link is not None:
            self._link = None
            link.stream.cancel()
            link.wake()
            if self._unanswered:
                self._pause_s = min(max(_FIRST_PAUSE_S, self._pause_s * 2), _LONGEST_PAUSE_S)
                self._not_before = self._clock.monotonic() + self._pause_s
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ledger_ids = dict.fromkeys(ledger_id for ledger_id, _ in self._unanswered)
        self._unanswered.clear()
        self._unanswered_bytes = 0
        self._line.clear()
        for ledger_id in ledger_ids:
            for sink in tuple(self._sinks.get(ledger_id, ())):
                sink.bookie_failed(self._bookie_id, reason)
