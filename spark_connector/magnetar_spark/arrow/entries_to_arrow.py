"""One slice of a log, entry by entry in the log's order, as record batches.

A damaged entry ends it with an error that names the entry, unless `fail_on_data_loss` is false. A message whose payload
can't be decoded ends it, too, is left out, or is a row of what its entry's metadata says: `decoding` decides
(magnetar_spark.options.decoding_options).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_spark.arrow.chunked_messages import ChunkGroups, NoChunkCapacity, Place, Whole
from magnetar_spark.arrow.entry_rows import (
    Wanted,
    read_metadata_rows,
    read_plain_table,
    read_rows,
    rows_of_messages,
    within,
)
from magnetar_spark.arrow.record_batches import EntryFacts, RecordBatches
from magnetar_spark.arrow.rows import Rows
from magnetar_spark.chunk_reach import REACH
from magnetar_spark.errors import TooManyChunks, UnreadableEntry
from magnetar_spark.options.decoding_options import BATCH_PAYLOAD_COLUMNS, DEFAULT_DECODING, Decoding, Unreadable
from magnetar_spark.problem_counts import ProblemCounts
from magnetar_wire.batch import check_not_encrypted
from magnetar_wire.chunks import join_chunks
from magnetar_wire.entry import Entry, locate_payload
from magnetar_wire.errors import EncryptedEntry, MalformedEntry, UncompressedTooLarge, WireError

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "EntriesToArrow"]

# Spark's own default for Arrow, and what a few thousand rows of a few hundred bytes come to: the cost of a batch is far
# below that of its rows then, and the columns of a few batches fit the processor's caches.
MAX_BATCH_ROWS: Final = 10_000
MAX_BATCH_BYTES: Final = 4_194_304
_EVERY: Final = 2**63
_DAMAGED_WAY_OUT: Final = "; with failOnDataLoss=false the query continues without it"
_UNREADABLE_WAY_OUT: Final = (
    "; with the option unreadable=skip such messages are skipped, with unreadable=null they are rows with a null value"
)
# What an error of the codec leaves unsaid.
_HINTS: Final[dict[type[WireError], str]] = {
    EncryptedEntry: ", and encryption is not supported",
    UncompressedTooLarge: "; raise the option maxDecompressedBytes to read it",
    NoChunkCapacity: "; raise the option maxChunkBytes to read it",
}
# Why messages are skipped.
_AS: Final = {
    Unreadable.SKIP: "since unreadable is skip",
    Unreadable.NULL: "since their number is unknown",
}

_log = logging.getLogger("magnetar.spark")


def nothing_earlier() -> Iterable[tuple[int, int, bytes]]:
    return ()


class EntriesToArrow:
    """`topic` and `partition` are as the columns show them, the partition -1 where there is none. `earlier` gives the
    entries in front of the slice backwards, nearest first, and is asked only if chunks of a message may be there;
    `more_earlier`: not all that there are. `problems` counts the messages and entries that are left out."""

    def __init__(
        self,
        columns: Sequence[str],
        topic: str,
        partition: int,
        earlier: Callable[[], Iterable[tuple[int, int, bytes]]] = nothing_earlier,
        *,
        decoding: Decoding = DEFAULT_DECODING,
        fail_on_data_loss: bool = True,
        problems: ProblemCounts | None = None,
        max_batch_rows: int = MAX_BATCH_ROWS,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        more_earlier: bool = False,
    ) -> None:
        self._log_name = topic if partition < 0 else f"{topic}-partition-{partition}"
        self._earlier = earlier
        self._more_earlier = more_earlier
        self._decoding = decoding
        self._fail_on_data_loss = fail_on_data_loss
        self._problems = problems or ProblemCounts(self._log_name)
        self._wanted = Wanted("value" in columns, "key" in columns, "properties" in columns)
        self._opens_batches = not BATCH_PAYLOAD_COLUMNS.isdisjoint(columns)
        self._batches = RecordBatches(
            columns, topic, partition, max_batch_rows, max_batch_bytes, self._count_out_of_range
        )
        self._chunks = ChunkGroups(
            decoding.max_chunk_bytes, self._on_given_up, self._on_damaged, with_payloads=self._wanted.values
        )
        # Rows of messages in chunks that were given up while an entry behind them was read.
        self._given_up: list[tuple[EntryFacts, Rows]] = []

    def add(
        self,
        ledger_id: int,
        first_entry_id: int,
        entries: Sequence[bytes],
        skip_messages: int = 0,
        stop_after_messages: int = 0,
    ) -> Iterator[Any]:
        """The record batches that are full with these entries, as they are stored; they must be taken to the end.

        The first `skip_messages` messages of the first entry's batch are not in the slice; of the last one's only the
        first `stop_after_messages` are; 0: all.
        """
        last = len(entries) - 1
        for at, stored in enumerate(entries):
            first_place = 0 if at else skip_messages
            stop_place = _EVERY if at < last or not stop_after_messages else stop_after_messages
            place = (ledger_id, first_entry_id + at)
            try:
                broker, metadata, payload_at = locate_payload(stored)
            except WireError as error:
                self._on_damaged(place, error)
                continue
            if metadata.HasField("marker_type"):
                continue
            try:
                rows = read_plain_table(metadata, stored, payload_at)
                if rows is not None:
                    found: tuple[EntryFacts, Rows] | None = _facts(place, metadata, broker), rows
                else:
                    entry = Entry(metadata, stored[payload_at:], broker)
                    found = self._read(place, entry, counts=not first_place)
            except WireError as error:
                facts, described = _facts(place, metadata, broker), self._metadata_rows(metadata)
                if described is not None:
                    described = within(described, first_place, stop_place)
                found = self._replace_unreadable(facts, metadata, described, error)
            if self._given_up:
                yield from self._add_given_up()
            if found is None:
                continue
            facts, rows = found
            if first_place or stop_place != _EVERY:
                rows = within(rows, first_place, stop_place)
            yield from self._batches.add(facts, rows)

    def finish(self) -> Iterator[Any]:
        """The rest."""
        for whole in self._chunks.complete(self._earlier):
            found = self._join(whole)
            if found is not None:
                yield from self._batches.add(*found)
        yield from self._add_given_up()
        for place in self._chunks.drop_headless():
            self._without_beginning(place)
        yield from self._batches.take()

    def _without_beginning(self, last: Place) -> None:
        """A message in chunks, by where the last one is."""
        if self._more_earlier:
            text = (
                f"it ends a message in chunks whose first chunk is not within the {REACH} before it, which are searched"
            )
            self._on_damaged(last, MalformedEntry(text))
            return
        _log.warning(
            "%s: the message in chunks that ends with entry %d:%d is skipped, since its first chunk is missing",
            self._log_name,
            *last,
        )

    def _read(self, place: Place, entry: Entry, *, counts: bool) -> tuple[EntryFacts, Rows] | None:
        """The entry's messages, if there are any. An entry of which the first message does not count is in the slice
        only if it is a batch. Raises WireError."""
        if entry.is_chunk:
            whole = self._chunks.add(place, entry, counts=counts)
            return None if whole is None else self._join(whole)
        rows = read_rows(entry, self._wanted, self._decoding.max_decompressed_bytes)
        return _facts(place, entry.metadata, entry.broker), rows

    def _join(self, whole: Whole) -> tuple[EntryFacts, Rows] | None:
        first, last = whole.chunks[0], whole.chunks[-1]
        facts = _facts(whole.place, first.metadata, last.broker)
        described = read_metadata_rows(first.metadata, self._wanted)
        if not self._wanted.values and described is not None:
            return facts, described
        try:
            check_not_encrypted(first.metadata)
            messages = join_chunks(whole.chunks, max_uncompressed_bytes=self._decoding.max_decompressed_bytes)
            size = sum(len(payload or b"") for payload in messages.payloads) + first.metadata.ByteSize()
            return facts, rows_of_messages(first, messages, size, self._wanted)
        except WireError as error:
            return self._replace_unreadable(facts, first.metadata, described, error)

    def _metadata_rows(self, metadata: MessageMetadata) -> Rows | None:
        """None for a chunk that no message ends with, too."""
        if metadata.num_chunks_from_msg > 1 and metadata.chunk_id != metadata.num_chunks_from_msg - 1:
            return None
        return read_metadata_rows(metadata, self._wanted)

    def _replace_unreadable(
        self, facts: EntryFacts, metadata: MessageMetadata, described: Rows | None, error: WireError
    ) -> tuple[EntryFacts, Rows] | None:
        """What stands for messages whose payload can't be decoded: `described` is what the metadata tells of them.
        Raises UnreadableEntry."""
        if described is not None:
            if not described.count:
                return None
            is_batch = metadata.HasField("num_messages_in_batch")
            if not (self._opens_batches if is_batch else self._wanted.values):
                return facts, described
        unreadable = self._decoding.unreadable
        place = facts.ledger_id, facts.entry_id
        if unreadable is Unreadable.FAIL:
            raise self._refusal(place, error, _UNREADABLE_WAY_OUT) from error
        # An entry of which it is not known how many messages it has makes no rows, and counts as one.
        count, is_null = 1, unreadable is Unreadable.NULL and described is not None
        if described is not None:
            count = described.count
        outcome = "have null values, since unreadable is null" if is_null else f"are skipped, {_AS[unreadable]}"
        self._problems.add(
            f"messages have a payload that can't be decoded ({type(error).__name__}), and {outcome}",
            count,
            str(self._refusal(place, error)),
        )
        return (facts, described) if is_null and described is not None else None

    def _on_given_up(self, place: Place, last: Entry, error: WireError) -> None:
        facts = _facts(place, last.metadata, last.broker)
        found = self._replace_unreadable(facts, last.metadata, read_metadata_rows(last.metadata, self._wanted), error)
        if found is not None:
            self._given_up.append(found)

    def _add_given_up(self) -> Iterator[Any]:
        given_up, self._given_up = self._given_up, []
        for facts, rows in given_up:
            yield from self._batches.add(facts, rows)

    def _on_damaged(self, place: Place, error: WireError) -> None:
        if self._fail_on_data_loss:
            raise self._refusal(place, error, _DAMAGED_WAY_OUT) from error
        problem = "entries can't be read, and are skipped, since failOnDataLoss is false"
        self._problems.add(problem, 1, str(self._refusal(place, error)))

    def _refusal(self, place: Place, error: WireError, way_out: str = "") -> UnreadableEntry:
        kind = TooManyChunks if isinstance(error, NoChunkCapacity) else UnreadableEntry
        what = f"{error}{_HINTS.get(type(error), '')}{way_out}"
        return kind(f"entry {place[0]}:{place[1]} of {self._log_name} can't be read: {what}")

    def _count_out_of_range(self, column: str, count: int, first_ms: int) -> None:
        self._problems.add(
            f"messages have a {column} after the year 9999, which is null in their rows",
            count,
            f"{first_ms:,} ms since 1970",
        )


def _facts(place: Place, metadata: MessageMetadata, broker: BrokerEntryMetadata | None) -> EntryFacts:
    """The broker's index is that of the entry's last message."""
    index = broker_time = None
    if broker is not None:
        if broker.HasField("index"):
            index = broker.index - (max(metadata.num_messages_in_batch, 1) - 1)
        if broker.HasField("broker_timestamp"):
            broker_time = broker.broker_timestamp
    return EntryFacts(*place, metadata.publish_time, metadata.producer_name, broker_time, index)
