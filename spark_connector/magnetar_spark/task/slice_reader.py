"""What one Spark task does: a slice of a log, straight from the bookies, as Arrow record batches.

    loop thread     bookies ─gRPC─► answers ─► records, checked ─► entries     (task/entry_prefetch.py, a few answers
    ahead)
                                                                     │ one run at a time
    task's thread                                     EntriesToArrow ▼ ─► record batches ─► Spark

`read` is an ordinary generator, since that is what Spark wants; everything that waits happens on the loop that the SDK
has in each process, so that the network and the bookies work while rows are made. A task that is broken off, by Spark
or by its end, takes with it all that it had on the way. A worker's connections to bookies outlive its tasks by a few
seconds (task/bookie_connections.py).

**On the loop, with grpc.aio, and not with gRPC's blocking stubs.** Both were tried on two cores with 330 MB in
answers of 4 MiB, three in flight: 0.62 … 0.74 s of CPU against 0.61 … 1.04, and as many rows a second. So what reads
ledgers everywhere else (`magnetar_bookie.read`), with its replicas, lanes and speculative reads, reads them here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar._event_loop import background
from magnetar_spark.arrow import EntriesToArrow
from magnetar_spark.errors import DataLost
from magnetar_spark.log_slice import LogSlice, SlicePiece
from magnetar_spark.problem_counts import ProblemCounts
from magnetar_spark.task.bookie_connections import BookieCalls, of_this_worker
from magnetar_spark.task.broker_client import SliceBroker
from magnetar_spark.task.entry_prefetch import EntryRun, EntryRuns, Gone, range_entries
from magnetar_wire.clock import SystemClock

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read"]

_log = logging.getLogger(__name__)


def read(log_slice: LogSlice, columns: Sequence[str]) -> Generator[pyarrow.RecordBatch, None, None]:
    """The slice's messages in order. Raises `SparkConnectorError`."""
    if not log_slice.pieces:
        return
    reading = _SliceReading(log_slice, of_this_worker())
    try:
        yield from reading.batches(columns)
    finally:
        reading.close()


class _SliceReading:
    """On the task's thread; what it waits for is on the loop."""

    def __init__(self, log_slice: LogSlice, calls: BookieCalls) -> None:
        self._slice = log_slice
        self._calls = calls
        self._broker = SliceBroker(log_slice)
        self._clock = SystemClock()
        self._problems = ProblemCounts(log_slice.log)
        # What reads entries at the moment.
        self._reading: list[EntryRuns] = []
        background.run(self._begin())

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        log_slice = self._slice
        made = EntriesToArrow(
            columns,
            log_slice.topic,
            log_slice.partition,
            self._earlier,
            decoding=log_slice.decoding,
            fail_on_data_loss=log_slice.fail_on_data_loss,
            problems=self._problems,
            more_earlier=log_slice.more_before,
        )
        for run in self._runs(log_slice.pieces):
            piece, last = run.piece, run.first_entry_id + len(run.entries) - 1
            yield from made.add(
                piece.ledger_id,
                run.first_entry_id,
                run.entries,
                skip_messages=piece.skip_messages if run.first_entry_id == piece.first_entry_id else 0,
                stop_after_messages=piece.stop_after_messages if last == piece.last_entry_id else 0,
            )
        yield from made.finish()
        background.run(self._broker.finish_part())

    def close(self) -> None:
        self._problems.log_warnings()
        background.run(self._end())

    def _runs(self, pieces: Sequence[SlicePiece]) -> Iterator[EntryRun]:
        """What there is of them; what is gone is told of, one way or the other."""
        reconnect_s = self._slice.connection.reconnect_s
        runs = EntryRuns(pieces, self._slice.bookies, self._calls.ask, self._broker.new_plan, self._clock, reconnect_s)
        self._reading.append(runs)
        while (found := background.run(runs.next())) is not None:
            if isinstance(found, Gone):
                self._lost(found)
            else:
                yield found
        self._reading.remove(runs)

    def _earlier(self) -> Iterator[tuple[int, int, bytes]]:
        """What lies in front of the slice, backwards: for messages whose first chunks are there."""
        for piece in reversed(self._slice.before):
            for part in _backwards(piece):
                runs = list(self._runs([part]))
                for run in reversed(runs):
                    for place in range(len(run.entries) - 1, -1, -1):
                        yield piece.ledger_id, run.first_entry_id + place, run.entries[place]
        if self._slice.chunks_deleted:
            self._lost_beginnings()

    def _lost(self, gone: Gone) -> None:
        what = (
            f"entries {gone.first_entry_id} … {gone.last_entry_id} of ledger {gone.piece.ledger_id} of "
            f"{self._slice.log} are lost: {gone.why}"
        )
        if self._slice.fail_on_data_loss:
            raise DataLost(f"{what}{self._lease_told()}; with failOnDataLoss=false the query continues without them")
        _log.warning("%s; they are skipped, since failOnDataLoss is false", what)

    def _lease_told(self) -> str:
        """For a batch, which may be read again when its lease is over."""
        held = self._slice.lease
        if held is None:
            return ""
        lease_s = held.lease.lease_ms / 1000
        return (
            f". This DataFrame was planned {time.time() - held.planned_at:.0f} s ago, and its messages are "
            f"retained for {lease_s:g} s (option batchLeaseSeconds) after it was planned or a task of it "
            "ran, and for a quarter of that after all of it was read: call load() again, or raise "
            "batchLeaseSeconds"
        )

    def _lost_beginnings(self) -> None:
        what = (
            f"messages in chunks of {self._slice.log} are lost: their last chunks are in this batch, but "
            "their first chunks were deleted from the log"
        )
        if self._slice.fail_on_data_loss:
            raise DataLost(f"{what}; with failOnDataLoss=false the query continues without them")
        _log.warning("%s; they are skipped, since failOnDataLoss is false", what)

    async def _begin(self) -> None:
        self._calls.enter()
        self._broker.keep_lease()

    async def _end(self) -> None:
        try:
            for runs in self._reading:
                await runs.close()
            await self._broker.close()
        finally:
            self._calls.leave()


def _backwards(piece: SlicePiece) -> Iterator[SlicePiece]:
    """The piece in parts of about an answer's size, the last first."""
    count = piece.last_entry_id - piece.first_entry_id + 1
    share = range_entries(piece)
    for end in range(piece.last_entry_id, piece.first_entry_id - 1, -share):
        first = max(piece.first_entry_id, end - share + 1)
        yield replace(piece, first_entry_id=first, last_entry_id=end, bytes=piece.bytes * (end - first + 1) // count)
