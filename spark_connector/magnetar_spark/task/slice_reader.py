"""Reads one slice of a log from the bookies, as Arrow record batches.

    loop's thread   bookies ─gRPC─► answers ─► checked records ─► entries      (entry_prefetch.py, a few answers ahead)
                                                                     │ one run at a time
    task's thread                                     EntriesToArrow ▼ ─► record batches ─► Spark

Spark calls an ordinary generator, `read_slice`. Everything that waits runs on the event loop that the SDK has in each
process, so the network and the bookies work while rows are made. When Spark closes the generator, or it ends, all
requests in flight are cancelled. A worker's connections to bookies stay open for a few seconds longer
(bookie_connections.py).

**Why grpc.aio, and not gRPC's blocking stubs.** Both were measured on two cores with 330 MB in answers of 4 MiB, three
in flight: 0.62 … 0.74 s of CPU against 0.61 … 1.04, and as many rows per second. So slices are read by the reader that
is also used elsewhere (`magnetar_bookie.read`), with its replicas, lanes and speculative reads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar._threads.event_loop import background
from magnetar_spark.arrow import EntriesToArrow, ProblemCounts
from magnetar_spark.errors import DataLost
from magnetar_spark.log_slice import LogSlice, SlicePiece
from magnetar_spark.task.bookie_connections import BookieConnections, get_worker_connections
from magnetar_spark.task.broker_client import BrokerClient
from magnetar_spark.task.entry_prefetch import EntryPrefetcher, EntryRun, LostEntries, estimate_range_entries
from magnetar_wire.clock import SystemClock

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read_slice"]

_log = logging.getLogger(__name__)


def read_slice(log_slice: LogSlice, columns: Sequence[str]) -> Generator[pyarrow.RecordBatch, None, None]:
    """Yield the slice's messages in order. Raises `SparkConnectorError`."""
    if not log_slice.pieces:
        return
    reader = _SliceReader(log_slice, get_worker_connections())
    try:
        yield from reader.read_batches(columns)
    finally:
        reader.close()


class _SliceReader:
    """Belongs to the task's thread. Its coroutines run on the loop."""

    def __init__(self, log_slice: LogSlice, connections: BookieConnections) -> None:
        self._slice = log_slice
        self._connections = connections
        self._broker = BrokerClient(log_slice)
        self._clock = SystemClock()
        self._problems = ProblemCounts(log_slice.log)
        # The prefetchers that are not at their end.
        self._open: list[EntryPrefetcher] = []
        background.run(self._begin())

    def read_batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        log_slice = self._slice
        converter = EntriesToArrow(
            columns,
            log_slice.topic,
            log_slice.partition,
            self._read_earlier,
            decoding=log_slice.decoding,
            fail_on_data_loss=log_slice.fail_on_data_loss,
            problems=self._problems,
            more_earlier=log_slice.more_before,
        )
        for run in self._read_runs(log_slice.pieces):
            piece, last = run.piece, run.first_entry_id + len(run.entries) - 1
            yield from converter.convert_entries(
                piece.ledger_id,
                run.first_entry_id,
                run.entries,
                skip_messages=piece.skip_messages if run.first_entry_id == piece.first_entry_id else 0,
                stop_after_messages=piece.stop_after_messages if last == piece.last_entry_id else 0,
            )
        yield from converter.finish()
        background.run(self._broker.report_slice_read())

    def close(self) -> None:
        self._problems.log_warnings()
        background.run(self._end())

    def _read_runs(self, pieces: Sequence[SlicePiece]) -> Iterator[EntryRun]:
        """Yield the entries of the pieces. Lost entries are an error, or are logged and skipped."""
        prefetcher = EntryPrefetcher(
            pieces,
            self._slice.bookies,
            self._connections.read,
            self._broker.locate_entries,
            self._clock,
            self._slice.connection.reconnect_s,
        )
        self._open.append(prefetcher)
        while (found := background.run(prefetcher.read_next())) is not None:
            if isinstance(found, LostEntries):
                self._report_lost_entries(found)
            else:
                yield found
        self._open.remove(prefetcher)

    def _read_earlier(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the entries before the slice backwards, for messages whose first chunks are there."""
        for piece in reversed(self._slice.before):
            for part in _split_backwards(piece):
                runs = list(self._read_runs([part]))
                for run in reversed(runs):
                    for index in range(len(run.entries) - 1, -1, -1):
                        yield piece.ledger_id, run.first_entry_id + index, run.entries[index]
        if self._slice.chunks_deleted:
            self._report_lost_chunks()

    def _report_lost_entries(self, lost: LostEntries) -> None:
        loss = (
            f"entries {lost.first_entry_id} … {lost.last_entry_id} of ledger {lost.piece.ledger_id} of "
            f"{self._slice.log} are lost: {lost.why}"
        )
        if self._slice.fail_on_data_loss:
            raise DataLost(
                f"{loss}{self._describe_lease()}; with failOnDataLoss=false the query continues without them"
            )
        _log.warning("%s; they are skipped, since failOnDataLoss is false", loss)

    def _describe_lease(self) -> str:
        """Return a sentence for a batch, which may be read again after its lease has ended."""
        batch = self._slice.lease
        if batch is None:
            return ""
        lease_s = batch.lease.lease_ms / 1000
        return (
            f". This DataFrame was planned {time.time() - batch.planned_at:.0f} s ago, and its messages are "
            f"retained for {lease_s:g} s (option batchLeaseSeconds) after it was planned or a task of it "
            "ran, and for a quarter of that after all of it was read: call load() again, or raise "
            "batchLeaseSeconds"
        )

    def _report_lost_chunks(self) -> None:
        loss = (
            f"messages in chunks of {self._slice.log} are lost: their last chunks are in this batch, but "
            "their first chunks were deleted from the log"
        )
        if self._slice.fail_on_data_loss:
            raise DataLost(f"{loss}; with failOnDataLoss=false the query continues without them")
        _log.warning("%s; they are skipped, since failOnDataLoss is false", loss)

    async def _begin(self) -> None:
        self._connections.acquire()
        self._broker.start_renewals()

    async def _end(self) -> None:
        try:
            for prefetcher in self._open:
                await prefetcher.close()
            await self._broker.close()
        finally:
            self._connections.release()


def _split_backwards(piece: SlicePiece) -> Iterator[SlicePiece]:
    """Yield the piece in parts of about the size of an answer, the last one first."""
    count = piece.last_entry_id - piece.first_entry_id + 1
    size = estimate_range_entries(piece)
    for end in range(piece.last_entry_id, piece.first_entry_id - 1, -size):
        first = max(piece.first_entry_id, end - size + 1)
        yield replace(piece, first_entry_id=first, last_entry_id=end, bytes=piece.bytes * (end - first + 1) // count)
