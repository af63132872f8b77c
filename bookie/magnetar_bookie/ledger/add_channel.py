"""The adds to one bookie: one stream, which all ledgers of the process share.

Theory of operation
-------------------
`send` queues records. Queued records are sent in frames: the first frame in the next turn of the event loop, each later
one with all records that were queued while the one before was being sent. So work is done per frame, and the frames of
a busy writer grow by themselves. Each record is *unanswered* from `send` to the bookie's answer (unanswered_adds.py).

A bookie in this process gets the queued records by a function call, once per turn of the event loop, and answers by a
callback (`in_process_adds.py`): without frames, messages and tasks. Records that it does not accept in this way, e.g.
for lack of capacity, are sent in a frame. The stream is open all the same, and ends with the bookie.

A stream fails when its bookie dies or ends it, sends a malformed answer, or leaves the oldest sent record unanswered
for the add timeout. A frame counts as sent when its transmission begins, so that a bookie that reads nothing is
detected, too. Then each ledger with unanswered records is notified once, and no further answer of that stream is
delivered: the outcome of those records is unknown, and the ledger resends them to another bookie. The next `send` opens
a new stream. If streams fail without an answer, a growing pause follows, in which each `send` fails at once. For a
ledger with a spare bookie that is better than waiting.

A bookie that lags, by more unanswered bytes than `max_bookie_lag_bytes`, doesn't fail. Each ledger with unanswered
records there is notified (`on_bookie_lags`) and decides for itself (ensemble_rules.py). A ledger that can do without
the bookie abandons it, and its queued records are dropped. A ledger that needs the bookie adds nothing more until
`on_bookie_caught_up`. A ledger without unanswered records there is notified when it sends something. So memory is
bounded: beyond the bound there are at most the adds that were pending when it was exceeded, and of other ledgers the
adds of one turn of the event loop.

One timer checks the oldest sent record. It is restarted when it fires, not with each answer.

Ordinary adds and those of recovery have separate streams. An answer doesn't say which of the two it is for, so a writer
could complete an add on the strength of an answer to a recovery that is about to close the ledger below that entry.

No callback is called within `send` or `abandon`.
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

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0


class AddCallbacks(Protocol):
    """What a ledger that adds through channels is notified of."""

    def on_answer(self, bookie_id: str, first_entry_id: int, count: int, status: int) -> None:
        """The bookie answered these adds."""

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        """The outcome of all unanswered adds is unknown, and they won't be answered."""

    def on_bookie_lags(self, bookie_id: str, reason: str) -> None:
        """The bookie is over its lag bound: abandon it, or send nothing more until it has caught up."""

    def on_bookie_caught_up(self, bookie_id: str) -> None:
        """The bookie doesn't lag any more. Follows `on_bookie_lags`."""


@dataclass(slots=True)
class _Run:
    """Queued records of consecutive entries of one ledger."""

    ledger_id: int
    master_key: bytes
    first: int
    records: Sequence[bytes]


class _OpenStream:
    """A stream, from its opening to its end."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        # The sender waits for it while nothing is queued.
        self.wakeup: asyncio.Future[None] | None = None
        # The bookie if it is in this process, and the number of frames that were sent to it nevertheless.
        self.in_process: InProcessAdds | None = None
        self.frames = 0
        # The queue will be passed to that bookie in the next turn of the event loop.
        self.will_pass_queue = False

    def wake_sender(self) -> None:
        if self.wakeup is not None and not self.wakeup.done():
            self.wakeup.set_result(None)


class AddChannel:
    """The stream of adds to one bookie, reopened when it fails. Created by `Bookies`."""

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
        # By ledger. Several recoveries of one ledger may run in one process.
        self._callbacks: dict[int, list[AddCallbacks]] = {}
        self._queue: deque[_Run] = deque()
        self._unanswered = UnansweredAdds(self._max_lag_bytes)
        # Ledgers that were notified of the present lag, and those that are to be notified.
        self._notified_of_lag: dict[int, None] = {}
        self._to_notify_of_lag: dict[int, None] = {}
        self._will_notify = False
        # Ledgers whose last callbacks abandoned the bookie. Their queued records are dropped in the next turn.
        self._abandoned: dict[int, None] = {}
        # Fires for the next check of the oldest sent record, and the time for which it is set.
        self._timer: Timer | None = None
        self._check_at = 0.0
        self._stream: _OpenStream | None = None
        self._pause_s = 0.0
        self._not_before = 0.0
        # Why the channel will fail in this turn of the event loop.
        self._failing: str | None = None
        self._is_closed = False

    @property
    def unanswered_bytes(self) -> int:
        """The estimated memory of the unanswered records."""
        return self._unanswered.bytes

    def attach(self, ledger_id: int, callbacks: AddCallbacks) -> Callable[[], object]:
        """Call the callbacks for this ledger from now on. Return a function that ends that.

        If the bookie lags now, `on_bookie_lags` is called before this returns.
        """
        self._callbacks.setdefault(ledger_id, []).append(callbacks)
        if self._unanswered.is_lagging:
            self._notified_of_lag[ledger_id] = None
            callbacks.on_bookie_lags(self._bookie_id, self._describe_lag())
        return partial(self._detach, ledger_id, callbacks)

    def _detach(self, ledger_id: int, callbacks: AddCallbacks) -> bool:
        """Return whether the ledger has no callbacks any more."""
        attached = self._callbacks.get(ledger_id, [])
        if callbacks in attached:
            attached.remove(callbacks)
        if not attached:
            self._callbacks.pop(ledger_id, None)
        return not attached

    def abandon(self, ledger_id: int, callbacks: AddCallbacks) -> None:
        """Detach the callbacks. If the ledger has no others, drop its queued records."""
        if self._detach(ledger_id, callbacks):
            self._notified_of_lag.pop(ledger_id, None)
            if not self._abandoned:
                asyncio.get_running_loop().call_soon(self._drop_abandoned)
            self._abandoned[ledger_id] = None

    def _drop_abandoned(self) -> None:
        """Drop the records of all ledgers that abandoned the bookie in one turn of the event loop, in one pass."""
        abandoned, self._abandoned = self._abandoned, {}
        self._unanswered.drop_ledgers(abandoned.__contains__, self._clock.monotonic())
        self._queue = deque(run for run in self._queue if run.ledger_id not in abandoned)
        self._check_caught_up()

    def send(self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes]) -> None:
        """Queue the records of consecutive entries."""
        if ledger_id in self._abandoned:
            self._drop_abandoned()
        unanswered = self._unanswered
        unanswered.add_records(ledger_id, first, records)
        if self._failing is not None:
            return
        if self._is_closed:
            self._fail_soon("the ledger client is closed")
        elif self._stream is None and self._clock.monotonic() < self._not_before:
            self._fail_soon("it failed a moment ago, and is not retried yet")
        else:
            if unanswered.is_lagging and ledger_id not in self._notified_of_lag:
                self._notify_of_lag_soon(ledger_id)
            self._queue.append(_Run(ledger_id, master_key, first, records))
            stream = self._stream
            if stream is None:
                self._open()
            elif stream.in_process is None:
                stream.wake_sender()
            elif not stream.will_pass_queue:
                stream.will_pass_queue = True
                asyncio.get_running_loop().call_soon(self._pass_queue, stream)

    def reset_backoff(self) -> None:
        """End the pause: the bookie has registered again."""
        self._pause_s = self._not_before = 0.0

    def close(self) -> None:
        """End the stream. All adds fail from now on."""
        self._is_closed = True
        self._fail(self._stream, "the ledger client is closed")

    # ── sending ──

    def _open(self) -> None:
        stream = self._stream = _OpenStream(self._open_stream())
        self._spawn(self._fail_after(stream, self._send_frames(stream)))
        self._spawn(self._fail_after(stream, self._receive_answers(stream)))

    async def _fail_after(self, stream: _OpenStream, work: Coroutine[Any, Any, str]) -> None:
        """End the stream when the work ends, with the reason that it returns or raises."""
        try:
            reason = await work
        except TransportError as error:
            reason = f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001 (logged)
            reason = self._log_internal_error(error)
        self._fail(stream, reason)

    def _log_internal_error(self, error: Exception) -> str:
        _log.exception("Adds to bookie %s failed with an internal error", self._bookie_id)
        return f"an internal error: {error!r}"

    async def _send_frames(self, stream: _OpenStream) -> str:
        if isinstance(stream.stream.in_process_api, InProcessAdds):
            stream.in_process = stream.stream.in_process_api
            stream.in_process.set_answer_callback(partial(self._on_answer, stream))
        while stream is self._stream:
            if self._queue:
                stream.frames += 1
                await stream.stream.send(self._build_frame())
            else:
                stream.wakeup = asyncio.get_running_loop().create_future()
                await stream.wakeup
        return "the stream was closed"

    def _build_frame(self) -> bytes:
        """Build a frame of queued records, which the caller sends at once."""
        builder, queue, now = FrameBuilder(max_entry_bytes=MAX_RECORD_BYTES), self._queue, self._clock.monotonic()
        runs: list[AddRun] = []
        last_key: tuple[int, bytes] | None = None
        while queue:
            run = queue[0]
            key = (run.ledger_id, run.master_key)
            count = 0
            for entry_id, record in enumerate(run.records, run.first):
                if not builder.try_add_entry(run.ledger_id, entry_id, record, new_run=key != last_key):
                    break
                count += 1
                last_key = key
                if builder.run_count > len(runs):
                    runs.append(AddRun(master_key=run.master_key, recovery=self._recovery))
            if count:
                self._unanswered.mark_sent(run.ledger_id, run.first, run.first + count, now)
            if count < len(run.records):
                run.first, run.records = run.first + count, run.records[count:]
                break
            queue.popleft()
        self._start_timer()
        parts = builder.build_parts()
        head = encode_field_head(AddRequest.FRAME_FIELD_NUMBER, sum(map(len, parts)))
        return b"".join((head, *parts, AddRequest(runs=runs).SerializeToString()))

    def _pass_queue(self, stream: _OpenStream) -> None:
        """Pass the queue to the bookie in this process. If it refuses a record, the rest is sent in a frame."""
        stream.will_pass_queue = False
        in_process = stream.in_process
        if stream is not self._stream or in_process is None:
            return
        unanswered, now = self._unanswered, self._clock.monotonic()
        try:
            try:
                while self._queue and in_process.can_add(stream.frames):
                    run = self._queue.popleft()
                    ledger_id, key, first, records = run.ledger_id, run.master_key, run.first, run.records
                    unanswered.mark_sent(ledger_id, first, first + len(records), now)
                    refused = in_process.add_run(ledger_id, key, first, records, recovery=self._recovery)
                    if stream is not self._stream:  # the stream failed within the call: the queue is empty
                        break
                    if refused:
                        runs = [_Run(ledger_id, key, entry_id, [records[entry_id - first]]) for entry_id in refused]
                        self._queue.extendleft(reversed(runs))
                        break
            finally:
                in_process.commit_adds()
        except Exception as error:  # noqa: BLE001 (logged)
            self._fail(stream, self._log_internal_error(error))
        if self._timer is None:
            self._start_timer()
        if self._queue:
            stream.wake_sender()

    # ── answers ──

    async def _receive_answers(self, stream: _OpenStream) -> str:
        while (message := await stream.stream.receive()) is not None:
            if stream is not self._stream:
                break
            try:
                answers = AddAnswers.FromString(message).answers
            except DecodeError as error:
                return f"its answer can't be decoded: {error}"
            for answer in answers:
                self._on_answer(stream, answer.ledger_id, answer.first_entry_id, answer.count, answer.status)
        return "it closed the stream"

    def _on_answer(self, stream: _OpenStream, ledger_id: int, first: int, count: int, status: int) -> None:
        """Deliver an answer. Raises nothing: a bookie in this process would take an error for one of its disk."""
        if stream is not self._stream:
            return
        self._pause_s = 0.0
        try:
            self._unanswered.mark_answered(ledger_id, first, count, self._clock.monotonic())
            if self._notified_of_lag:
                self._check_caught_up()
            for callbacks in tuple(self._callbacks.get(ledger_id, ())):
                callbacks.on_answer(self._bookie_id, first, count, status)
        except Exception as error:  # noqa: BLE001 (logged)
            asyncio.get_running_loop().call_soon(self._fail, stream, self._log_internal_error(error))

    # ── lag ──

    def _notify_of_lag_soon(self, ledger_id: int) -> None:
        if not (self._notified_of_lag or self._to_notify_of_lag):
            self._to_notify_of_lag = self._unanswered.ledger_ids
        self._to_notify_of_lag[ledger_id] = None
        self._notify_soon()

    def _check_caught_up(self) -> None:
        if self._notified_of_lag and not self._unanswered.is_lagging:
            self._notify_soon()

    def _notify_soon(self) -> None:
        if not self._will_notify:
            self._will_notify = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        """Notify ledgers of a lag that still lasts, or all notified ledgers of its end."""
        self._will_notify = False
        to_notify, self._to_notify_of_lag = self._to_notify_of_lag, {}
        if not self._unanswered.is_lagging:
            notified, self._notified_of_lag = self._notified_of_lag, {}
            for ledger_id in notified:
                for callbacks in tuple(self._callbacks.get(ledger_id, ())):
                    callbacks.on_bookie_caught_up(self._bookie_id)
            return
        reason = self._describe_lag()
        for ledger_id in to_notify:
            if ledger_id not in self._notified_of_lag:
                self._notified_of_lag[ledger_id] = None
                for callbacks in tuple(self._callbacks.get(ledger_id, ())):
                    callbacks.on_bookie_lags(self._bookie_id, reason)

    def _describe_lag(self) -> str:
        return (
            f"it has not answered adds of {self._unanswered.bytes} bytes, and at most {self._max_lag_bytes} are "
            "allowed (max_bookie_lag_bytes)"
        )

    # ── the timeout ──

    def _start_timer(self) -> None:
        if self._timer is None and self._unanswered.has_sent_adds:
            self._check_in(self._timeout_s)

    def _check_in(self, seconds: float) -> None:
        self._check_at = self._clock.monotonic() + seconds
        self._timer = self._clock.call_later(seconds, self._check_oldest)

    def _check_oldest(self) -> None:
        self._timer = None
        now, grace_s = self._clock.monotonic(), self._timeout_s / 10
        self._unanswered.find_oldest(now)
        if not self._unanswered.has_sent_adds:
            return
        due = self._unanswered.oldest_since + self._timeout_s
        if now > self._check_at + grace_s:
            self._check_in(grace_s)  # this process was suspended: answers may be waiting to be received
        elif now < due:
            self._check_in(due - now)
        else:
            self._fail(self._stream, f"it did not answer an add within {self._timeout_s} s")

    # ── failure ──

    def _fail_soon(self, reason: str) -> None:
        self._failing = reason
        asyncio.get_running_loop().call_soon(self._fail_now, self._stream, reason)

    def _fail_now(self, stream: _OpenStream | None, reason: str) -> None:
        if self._failing is not None:
            self._fail(stream, reason)

    def _fail(self, stream: _OpenStream | None, reason: str) -> None:
        """End the stream, and notify all ledgers with unanswered adds. Does nothing if it is not the present stream."""
        if stream is not self._stream:
            return
        self._failing = None
        if stream is not None:
            self._stream = None
            stream.stream.cancel()
            stream.wake_sender()
            if self._unanswered:
                self._pause_s = min(max(_FIRST_PAUSE_S, self._pause_s * 2), _LONGEST_PAUSE_S)
                self._not_before = self._clock.monotonic() + self._pause_s
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ledger_ids = self._unanswered.ledger_ids
        self._unanswered.clear()
        self._queue.clear()
        self._check_caught_up()
        for ledger_id in ledger_ids:
            for callbacks in tuple(self._callbacks.get(ledger_id, ())):
                callbacks.on_bookie_failed(self._bookie_id, reason)
