"""Converts one slice of a log, entry by entry in the log's order, to record batches.

A damaged entry ends the slice with an error that names the entry, unless `fail_on_data_loss` is false. For a message
whose payload can't be decoded, the option `unreadable` determines the result: an error, no row, or a row of the columns
that its entry's metadata has (options/decoding_options.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_spark.arrow.chunked_messages import ChunkedMessages, CompleteMessage, EntryPosition, NoChunkCapacity
from magnetar_spark.arrow.entry_rows import (
    RequestedColumns,
    convert_messages,
    read_metadata_rows,
    read_plain_table,
    read_rows,
    slice_by_batch_index,
)
from magnetar_spark.arrow.record_batches import RecordBatchBuilder
from magnetar_spark.arrow.rows import EntryFields, Rows
from magnetar_spark.errors import TooManyChunks, UnreadableEntry
from magnetar_spark.options.decoding_options import (
    BATCH_PAYLOAD_COLUMNS,
    CHUNK_SEARCH_TEXT,
    DEFAULT_DECODING,
    DecodingOptions,
    Unreadable,
)
from magnetar_wire.batch import check_not_encrypted
from magnetar_wire.chunks import join_chunks
from magnetar_wire.entry import Entry, locate_payload
from magnetar_wire.errors import EncryptedEntry, MalformedEntry, UncompressedTooLarge, WireError

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "EntriesToArrow", "ProblemCounts"]

# Spark's own default for Arrow, and about the size of that many rows of a few hundred bytes. A batch of this size costs
# little compared with its rows, and the columns of a few batches fit into the processor's caches.
MAX_BATCH_ROWS: Final = 10_000
MAX_BATCH_BYTES: Final = 4_194_304
_UNLIMITED: Final = 2**63
_DAMAGED_ADVICE: Final = "; with failOnDataLoss=false the query continues without it"
_UNREADABLE_ADVICE: Final = (
    "; with the option unreadable=skip such messages are skipped, with unreadable=null they are rows with a null value"
)
# Additions to the codec's errors.
_HINTS: Final[dict[type[WireError], str]] = {
    EncryptedEntry: ", and encryption is not supported",
    UncompressedTooLarge: "; raise the option maxDecompressedBytes to read it",
    NoChunkCapacity: "; raise the option maxChunkBytes to read it",
}
# Why messages are skipped.
_SKIP_REASONS: Final = {
    Unreadable.SKIP: "since unreadable is skip",
    Unreadable.NULL: "since their number is unknown",
}

_log = logging.getLogger(__name__)


class ProblemCounts:
    """Counts the messages that a task could not decode, for one line in the log for each kind of problem."""

    def __init__(self, log_name: str) -> None:
        self._log_name = log_name
        # By the kind of problem, of which there are about a dozen: the count, and the first example.
        self.counts: dict[str, tuple[int, str]] = {}

    def add_problem(self, problem: str, count: int, example: str) -> None:
        """`problem` continues a sentence that begins with the count."""
        before, first = self.counts.get(problem, (0, example))
        self.counts[problem] = before + count, first

    def log_warnings(self) -> None:
        for problem, (count, first) in self.counts.items():
            _log.warning("%s: %s %s; the first: %s", self._log_name, f"{count:,}", problem, first)
        self.counts.clear()


def _read_nothing() -> Iterable[tuple[int, int, bytes]]:
    return ()


class EntriesToArrow:
    def __init__(
        self,
        columns: Sequence[str],
        topic: str,
        partition: int,
        read_earlier: Callable[[], Iterable[tuple[int, int, bytes]]] = _read_nothing,
        *,
        decoding: DecodingOptions = DEFAULT_DECODING,
        fail_on_data_loss: bool = True,
        problems: ProblemCounts | None = None,
        max_batch_rows: int = MAX_BATCH_ROWS,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        more_earlier: bool = False,
    ) -> None:
        """`topic` and `partition` are the values of the columns; the partition is -1 if the topic is not partitioned.
        `read_earlier` yields the entries before the slice backwards, nearest first. It is called only if they may have
        chunks of a message of the slice. `more_earlier`: it does not yield all of them. `problems` counts the messages
        and entries that are left out."""
        self._log_name = topic if partition < 0 else f"{topic}-partition-{partition}"
        self._read_earlier = read_earlier
        self._more_earlier = more_earlier
        self._decoding = decoding
        self._fail_on_data_loss = fail_on_data_loss
        self._problems = problems or ProblemCounts(self._log_name)
        self._requested = RequestedColumns("value" in columns, "key" in columns, "properties" in columns)
        self._needs_batch_payload = not BATCH_PAYLOAD_COLUMNS.isdisjoint(columns)
        self._batches = RecordBatchBuilder(
            columns, topic, partition, max_batch_rows, max_batch_bytes, self._count_out_of_range
        )
        self._chunks = ChunkedMessages(
            decoding.max_chunk_bytes, self._on_dropped, self._on_damaged, with_payloads=self._requested.values
        )
        # Rows of messages in chunks that were dropped while a later entry was read.
        self._dropped: list[tuple[EntryFields, Rows]] = []

    def convert_entries(
        self,
        ledger_id: int,
        first_entry_id: int,
        entries: Sequence[bytes],
        skip_messages: int = 0,
        stop_after_messages: int = 0,
    ) -> Iterator[Any]:
        """Add stored entries, and yield the record batches that are full. The iterator must be exhausted.

        The first `skip_messages` messages of the first entry's batch are before the slice. Of the last entry's batch,
        only the first `stop_after_messages` messages are in the slice; 0: all.
        """
        last = len(entries) - 1
        for at, stored in enumerate(entries):
            first_index = 0 if at else skip_messages
            stop_index = _UNLIMITED if at < last or not stop_after_messages else stop_after_messages
            position = (ledger_id, first_entry_id + at)
            try:
                broker, metadata, payload_at = locate_payload(stored)
            except WireError as error:
                self._on_damaged(position, error)
                continue
            if metadata.HasField("marker_type"):
                continue
            try:
                rows = read_plain_table(metadata, stored, payload_at)
                if rows is not None:
                    found: tuple[EntryFields, Rows] | None = _read_entry_fields(position, metadata, broker), rows
                else:
                    entry = Entry(metadata, stored[payload_at:], broker)
                    found = self._read_entry(position, entry, in_range=not first_index)
            except WireError as error:
                fields, described = _read_entry_fields(position, metadata, broker), self._read_metadata(metadata)
                if described is not None:
                    described = slice_by_batch_index(described, first_index, stop_index)
                found = self._replace_unreadable(fields, metadata, described, error)
            if self._dropped:
                yield from self._add_dropped()
            if found is None:
                continue
            fields, rows = found
            if first_index or stop_index != _UNLIMITED:
                rows = slice_by_batch_index(rows, first_index, stop_index)
            yield from self._batches.add_rows(fields, rows)

    def finish(self) -> Iterator[Any]:
        """Complete messages whose first chunks are before the slice, and yield the last record batches."""
        for message in self._chunks.complete_headless(self._read_earlier):
            found = self._join_chunks(message)
            if found is not None:
                yield from self._batches.add_rows(*found)
        yield from self._add_dropped()
        for position in self._chunks.drop_headless():
            self._report_missing_chunks(position)
        yield from self._batches.flush()

    def _report_missing_chunks(self, last: EntryPosition) -> None:
        """Report a message in chunks whose first chunk was not found. `last`: the position of its last chunk."""
        if self._more_earlier:
            text = (
                f"it ends a message in chunks whose first chunk is not within the {CHUNK_SEARCH_TEXT} before it, which "
                "are searched"
            )
            self._on_damaged(last, MalformedEntry(text))
            return
        _log.warning(
            "%s: the message in chunks that ends with entry %d:%d is skipped, since its first chunk is missing",
            self._log_name,
            *last,
        )

    def _read_entry(self, position: EntryPosition, entry: Entry, *, in_range: bool) -> tuple[EntryFields, Rows] | None:
        """Return the entry's rows, if it has any. `in_range`: its first message is in the range; otherwise only a batch
        has messages in the slice. Raises WireError."""
        if entry.is_chunk:
            message = self._chunks.add_chunk(position, entry, in_range=in_range)
            return None if message is None else self._join_chunks(message)
        rows = read_rows(entry, self._requested, self._decoding.max_decompressed_bytes)
        return _read_entry_fields(position, entry.metadata, entry.broker), rows

    def _join_chunks(self, message: CompleteMessage) -> tuple[EntryFields, Rows] | None:
        first, last = message.chunks[0], message.chunks[-1]
        fields = _read_entry_fields(message.position, first.metadata, last.broker)
        described = read_metadata_rows(first.metadata, self._requested)
        if not self._requested.values and described is not None:
            return fields, described
        try:
            check_not_encrypted(first.metadata)
            messages = join_chunks(message.chunks, max_uncompressed_bytes=self._decoding.max_decompressed_bytes)
            size = sum(len(payload or b"") for payload in messages.payloads) + first.metadata.ByteSize()
            return fields, convert_messages(first, messages, size, self._requested)
        except WireError as error:
            return self._replace_unreadable(fields, first.metadata, described, error)

    def _read_metadata(self, metadata: MessageMetadata) -> Rows | None:
        """Return the rows that the metadata describes; None also for a chunk that is not the last one of its
        message."""
        if metadata.num_chunks_from_msg > 1 and metadata.chunk_id != metadata.num_chunks_from_msg - 1:
            return None
        return read_metadata_rows(metadata, self._requested)

    def _replace_unreadable(
        self, fields: EntryFields, metadata: MessageMetadata, described: Rows | None, error: WireError
    ) -> tuple[EntryFields, Rows] | None:
        """Return the rows for messages whose payload can't be decoded. `described`: those that the metadata describes.
        Raises UnreadableEntry."""
        if described is not None:
            if not described.count:
                return None
            is_batch = metadata.HasField("num_messages_in_batch")
            if not (self._needs_batch_payload if is_batch else self._requested.values):
                return fields, described
        unreadable = self._decoding.unreadable
        position = fields.ledger_id, fields.entry_id
        if unreadable is Unreadable.FAIL:
            raise self._make_error(position, error, _UNREADABLE_ADVICE) from error
        # An entry with an unknown number of messages has no rows, and counts as one message.
        count, is_null = 1, unreadable is Unreadable.NULL and described is not None
        if described is not None:
            count = described.count
        outcome = (
            "have null values, since unreadable is null" if is_null else f"are skipped, {_SKIP_REASONS[unreadable]}"
        )
        self._problems.add_problem(
            f"messages have a payload that can't be decoded ({type(error).__name__}), and {outcome}",
            count,
            str(self._make_error(position, error)),
        )
        return (fields, described) if is_null and described is not None else None

    def _on_dropped(self, position: EntryPosition, last: Entry, error: WireError) -> None:
        fields = _read_entry_fields(position, last.metadata, last.broker)
        described = read_metadata_rows(last.metadata, self._requested)
        found = self._replace_unreadable(fields, last.metadata, described, error)
        if found is not None:
            self._dropped.append(found)

    def _add_dropped(self) -> Iterator[Any]:
        dropped, self._dropped = self._dropped, []
        for fields, rows in dropped:
            yield from self._batches.add_rows(fields, rows)

    def _on_damaged(self, position: EntryPosition, error: WireError) -> None:
        if self._fail_on_data_loss:
            raise self._make_error(position, error, _DAMAGED_ADVICE) from error
        problem = "entries can't be read, and are skipped, since failOnDataLoss is false"
        self._problems.add_problem(problem, 1, str(self._make_error(position, error)))

    def _make_error(self, position: EntryPosition, error: WireError, advice: str = "") -> UnreadableEntry:
        kind = TooManyChunks if isinstance(error, NoChunkCapacity) else UnreadableEntry
        cause = f"{error}{_HINTS.get(type(error), '')}{advice}"
        return kind(f"entry {position[0]}:{position[1]} of {self._log_name} can't be read: {cause}")

    def _count_out_of_range(self, column: str, count: int, first_ms: int) -> None:
        self._problems.add_problem(
            f"messages have a {column} after the year 9999, which is null in their rows",
            count,
            f"{first_ms:,} ms since 1970",
        )


def _read_entry_fields(
    position: EntryPosition, metadata: MessageMetadata, broker: BrokerEntryMetadata | None
) -> EntryFields:
    index = broker_time = None
    if broker is not None:
        if broker.HasField("index"):
            # The broker's index is that of the entry's last message.
            index = broker.index - (max(metadata.num_messages_in_batch, 1) - 1)
        if broker.HasField("broker_timestamp"):
            broker_time = broker.broker_timestamp
    return EntryFields(*position, metadata.publish_time, metadata.producer_name, broker_time, index)
