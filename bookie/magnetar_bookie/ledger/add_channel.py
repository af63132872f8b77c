"""The adds to one bookie: one stream for all ledgers of the process.

Theory of operation
-------------------
`send` puts records in line. Records in line leave in frames: the first when the event loop comes round, the next with
all records that gathered while the frame before was being sent. So work is done per frame, and a busy writer's frames
grow by themselves. Every record is *unanswered* from `send` until the bookie's answer (ledger/unanswered_adds.py).

A bookie in this process takes the records in line as they are (`in_process_adds.py`), once in a turn of the loop, and
answers by a call, without frames, streams of bytes and tasks in between. Records that it does not take so, for want of
capacity say, go in a frame like any other. The stream is there all the same: it ends when the bookie does.

A stream breaks when its bookie dies, ends the stream, sends an unreadable answer, or leaves the oldest record that was
handed over unanswered for the add time-out. A frame is handed over when its `send` begins, so a bookie that reads
nothing is found too. On a break every sink with unanswered records is notified, once, and no answer of that stream
reaches any sink: the outcome of those records is unknown, and the sink resends them elsewhere. The next `send` opens
another stream. A bookie whose streams break without an answer is left alone for a pause that grows; a `send` during the
pause fails at once, which is better for a ledger that has a spare bookie than to wait.

A bookie that lags, by more unanswered bytes than `max_bookie_lag_bytes`, breaks nothing. Each ledger with unanswered
records there is notified (`bookie_lags`), and decides for itself (ledger/ensemble_rules.py). A ledger that can complete
its adds without the bookie leaves it (`abandon`), and its records are dropped from the line. A ledger that needs the
bookie adds nothing more until `bookie_caught_up`. A ledger that has nothing there is notified
once it sends something. So memory is bounded: beyond the bound there are at most the adds that ledgers had pending when
it was passed, and of each other ledger those of one turn of the event loop.

One timer watches the oldest record that was handed over; it is set again when it has gone off, not at each answer.

Ordinary adds and those of recovery have a stream each. An answer does not say which of the two it is for, and a writer
that took the answers to a recovery's adds for its own could complete an add that the recovery beside it cuts off.

No sink is notified from within `send` or `abandon`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from magnetar_bookie.in_process_adds import InProcessAdds
from magnetar_bookie.ledger.unanswered_adds import UnansweredAdds
from magnetar_bookie.read.record import MAX_RECORD_BYTES
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_protos.ledger_pb2 import AddAnswers, AddRequest, AddRun
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.protobuf_fields import encode_field_head
from magnetar_wire.transport import Stream, TransportError

__all__ = ["AddCallbacks", "AddChannel"]

log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0


class AddCallbacks(Protocol):
    """A ledger that is written to."""

    def answered(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        """The bookie's answer to these entries."""

    def bookie_failed(self, bookie_id: str, reason: str) -> None:
        """Whatever is unanswered there is unknown, and no answer to it will come."""

    def bookie_lags(self, bookie_id: str, reason: str) -> None:
        """The bookie is over its lag bound: abandon it, or send nothing more until it has caught up."""

    def bookie_caught_up(self, bookie_id: str) -> None:
        """The bookie does not lag any more. Follows `bookie_lags`."""


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
        self.at_hand: InProcessAdds | None = None
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
        settings: LedgerClientSettings,
        *,
        recovery: bool = False,
    ) -> None:
        self._bookie_id = bookie_id
        self._open_stream = open_stream
        self._spawn = spawn
        self._clock = clock
        self._timeout_s = settings.add_entry_timeout_seconds
        self._max_lag_bytes = settings.lag_bound_bytes
        self._recovery = recovery
        # By ledger; several recoveries of one ledger may run in one process.
        self._sinks: dict[int, list[AddCallbacks]] = {}
        self._line: deque[_Run] = deque()
        self._unanswered = UnansweredAdds(self._max_lag_bytes)
        # Ledgers that were notified of the lag that lasts now, and those that are to be.
        self._notified_of_lag: dict[int, None] = {}
        self._to_notify_of_lag: dict[int, None] = {}
        self._notifying = False
        # Ledgers whose last sink abandoned the bookie: their records leave the line in the next turn of the loop.
        self._abandoned: dict[int, None] = {}
        # The next look at the oldest record that was handed over, and when it is due.
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
        """Memory of the unanswered records, estimated."""
        return self._unanswered.bytes

    def attach(self, ledger_id: int, sink: AddCallbacks) -> Callable[[], None]:
        """Notifies the sink of the ledger's answers, of failures and of lag. Returns the function that ends that.

        If the bookie lags now, the sink is notified before this returns.
        """
        self._sinks.setdefault(ledger_id, []).append(sink)
        if self._unanswered.lags:
            self._notified_of_lag[ledger_id] = None
            sink.bookie_lags(self._bookie_id, self._lag())

        def detach() -> None:
            sinks = self._sinks.get(ledger_id, [])
            if sink in sinks:
                sinks.remove(sink)
            if not sinks:
                self._sinks.pop(ledger_id, None)

        return detach

    def abandon(self, ledger_id: int, sink: AddCallbacks) -> None:
        """Ends the sink's attachment. Records of a ledger without another sink are sent no more, if that can be."""
        sinks = self._sinks.get(ledger_id, [])
        if sink in sinks:
            sinks.remove(sink)
        if not sinks:
            self._sinks.pop(ledger_id, None)
            self._notified_of_lag.pop(ledger_id, None)
            if not self._abandoned:
                asyncio.get_running_loop().call_soon(self._drop_abandoned)
            self._abandoned[ledger_id] = None

    def _drop_abandoned(self) -> None:
        """Those of all ledgers that abandoned the bookie in one turn of the loop, in one pass."""
        abandoned, self._abandoned = self._abandoned, {}
        self._unanswered.drop(abandoned.__contains__, self._clock.monotonic())
        kept = [run for run in self._line if run.ledger_id not in abandoned]
        self._line.clear()
        self._line.extend(kept)
        self._check_caught_up()

    def send(self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool) -> None:
        """Puts the records of these entries, `first` and those that follow it, in line."""
        assert recovery is self._recovery, "recovery adds have a channel of their own: adds(…, recovery=True)"
        if ledger_id in self._abandoned:
            self._drop_abandoned()
        unanswered = self._unanswered
        unanswered.put(ledger_id, first, records)
        if self._breaking is not None:
            return
        if self._closed:
            self._break_soon("the ledger client is closed")
        elif self._link is None and self._clock.monotonic() < self._not_before:
            self._break_soon("it failed a moment ago, and is not retried yet")
        else:
            if unanswered.lags and ledger_id not in self._notified_of_lag:
                self._notify_of_lag_soon(ledger_id)
            self._line.append(_Run(ledger_id, master_key, first, records))
            link = self._link
            if link is None:
                self._open()
            elif link.at_hand is None:
                link.wake()
            elif not link.handing:
                link.handing = True
                asyncio.get_running_loop().call_soon(self._hand_over, link)

    def reset_backoff(self) -> None:
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
            log.exception("Adds to bookie %s failed with an internal error", self._bookie_id)
            reason = f"an internal error: {error!r}"
        self._break(link, reason)

    async def _send_frames(self, link: _Link) -> str:
        if isinstance(link.stream.in_process_api, InProcessAdds):
            link.at_hand = link.stream.in_process_api
            link.at_hand.begin(partial(self._answered_at_hand, link))
        while link is self._link:
            if self._line:
                link.frames += 1
                await link.stream.send(self._next_frame())
            else:
                link.idle = asyncio.get_running_loop().create_future()
                await link.idle
        return "the stream was closed"

    def _hand_over(self, link: _Link) -> None:
        """What is in line, to the bookie at hand. From what it does not take on, all that is in line goes in frames."""
        link.handing = False
        line, at_hand = self._line, link.at_hand
        if link is not self._link or at_hand is None:
            return
        unanswered, now = self._unanswered, self._clock.monotonic()
        try:
            try:
                while line and at_hand.ready(link.frames):
                    run = line.popleft()
                    unanswered.mark_sent(run.ledger_id, run.first, run.first + len(run.records), now)
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
            log.exception("Adds to bookie %s failed with an internal error", self._bookie_id)
            self._break(link, f"an internal error: {error!r}")
        self._watch_oldest()
        if line:
            link.wake()

    def _answered_at_hand(self, link: _Link, ledger_id: int, first: int, count: int, status: int) -> None:
        """Called by the bookie, which may not meet what goes wrong here: it would take that for its disk's failure."""
        if link is self._link:
            self._pause_s = 0.0
            try:
                self._take(ledger_id, first, count, status)
            except Exception as error:
                log.exception("Adds to bookie %s failed with an internal error", self._bookie_id)
                asyncio.get_running_loop().call_soon(self._break, link, f"an internal error: {error!r}")

    def _next_frame(self) -> bytes:
        """Records from the head of the line. They count as handed over: the caller sends the frame at once."""
        builder, line, now = FrameBuilder(max_entry_bytes=MAX_RECORD_BYTES), self._line, self._clock.monotonic()
        runs: list[AddRun] = []
        last: tuple[int, bytes] | None = None
        while line:
            run = line[0]
            key = (run.ledger_id, run.master_key)
            taken = 0
            for entry_id, record in enumerate(run.records, run.first):
                if not builder.try_add_entry(run.ledger_id, entry_id, record, new_run=key != last):
                    break
                taken += 1
                last = key
                if builder.run_count > len(runs):
                    runs.append(AddRun(master_key=run.master_key, recovery=self._recovery))
            if taken:
                self._unanswered.mark_sent(run.ledger_id, run.first, run.first + taken, now)
            if taken < len(run.records):
                run.first, run.records = run.first + taken, run.records[taken:]
                break
            line.popleft()
        self._watch_oldest()
        parts = builder.build_parts()
        head = encode_field_head(AddRequest.FRAME_FIELD_NUMBER, sum(map(len, parts)))
        return b"".join((head, *parts, AddRequest(runs=runs).SerializeToString()))

    async def _receive_answers(self, link: _Link) -> str:
        while (message := await link.stream.receive()) is not None:
            if link is not self._link:
                break
            try:
                answers = AddAnswers.FromString(message).answers
            except DecodeError as error:
                return f"its answer can't be decoded: {error}"
            self._pause_s = 0.0
            for answer in answers:
                self._take(answer.ledger_id, answer.first_entry_id, answer.count, answer.status)
        return "it closed the stream"

    def _take(self, ledger_id: int, first: int, count: int, status: int) -> None:
        self._unanswered.answered(ledger_id, first, count, self._clock.monotonic())
        if self._notified_of_lag:
            self._check_caught_up()
        for sink in tuple(self._sinks.get(ledger_id, ())):
            sink.answered(self._bookie_id, first, count, status)

    # ── lag ──

    def _notify_of_lag_soon(self, ledger_id: int) -> None:
        if not (self._notified_of_lag or self._to_notify_of_lag):
            self._to_notify_of_lag = self._unanswered.ledger_ids
        self._to_notify_of_lag[ledger_id] = None
        self._notify_soon()

    def _check_caught_up(self) -> None:
        if self._notified_of_lag and not self._unanswered.lags:
            self._notify_soon()

    def _notify_soon(self) -> None:
        if not self._notifying:
            self._notifying = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        """Tells ledgers of a lag that lasts still, or all that were told of one that is over."""
        self._notifying = False
        to_notify, self._to_notify_of_lag = self._to_notify_of_lag, {}
        if not self._unanswered.lags:
            notified, self._notified_of_lag = self._notified_of_lag, {}
            for ledger_id in notified:
                for sink in tuple(self._sinks.get(ledger_id, ())):
                    sink.bookie_caught_up(self._bookie_id)
            return
        reason = self._lag()
        for ledger_id in to_notify:
            if ledger_id not in self._notified_of_lag:
                self._notified_of_lag[ledger_id] = None
                for sink in tuple(self._sinks.get(ledger_id, ())):
                    sink.bookie_lags(self._bookie_id, reason)

    def _lag(self) -> str:
        return (
            f"it has not answered adds of {self._unanswered.bytes} bytes, and at most {self._max_lag_bytes} are "
            "allowed (max_bookie_lag_bytes)"
        )

    # ── the time-out ──

    def _watch_oldest(self) -> None:
        if self._timer is None and self._unanswered.has_sent_adds:
            self._check_in(self._timeout_s)

    def _check_in(self, seconds: float) -> None:
        self._check_at = self._clock.monotonic() + seconds
        self._timer = self._clock.call_later(seconds, self._check_oldest)

    def _check_oldest(self) -> None:
        self._timer = None
        now, grace_s = self._clock.monotonic(), self._timeout_s / 10
        self._unanswered.advance_oldest(now)
        if not self._unanswered.has_sent_adds:
            return
        due = self._unanswered.oldest_since + self._timeout_s
        if now > self._check_at + grace_s:
            self._check_in(grace_s)  # this process was asleep: the answers may have come meanwhile
        elif now < due:
            self._check_in(due - now)
        else:
            self._break(self._link, f"it did not answer an add within {self._timeout_s} s")

    # ── the end of a stream ──

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
        ledger_ids = self._unanswered.ledger_ids
        self._unanswered.clear()
        self._line.clear()
        self._check_caught_up()
        for ledger_id in ledger_ids:
            for sink in tuple(self._sinks.get(ledger_id, ())):
                sink.bookie_failed(self._bookie_id, reason)
