"""One slice of a log, entry by entry in the log's order, as record batches.

An entry that can't be read ends it with an error that says which one it is. Who would rather go on without it gives
`unreadable`, which is told instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_spark.arrow.chunk_groups import ChunkGroups, Place, Whole
from magnetar_spark.arrow.entry_rows import Wanted, read_plain_table, read_rows, rows_of_messages, within
from magnetar_spark.arrow.record_batches import EntryFacts, RecordBatches
from magnetar_spark.arrow.rows import Rows
from magnetar_spark.chunk_reach import REACH
from magnetar_spark.errors import TooManyChunks, UnreadableEntry
from magnetar_wire.chunks import join_chunks
from magnetar_wire.entry import Entry, locate_payload
from magnetar_wire.errors import EncryptedEntry, MalformedEntry, TooLarge, WireError

__all__ = ["MAX_BATCH_BYTES", "MAX_BATCH_ROWS", "MAX_CHUNK_BYTES", "EntriesToArrow"]

# Spark's own default for Arrow, and what a few thousand rows of a few hundred bytes come to: the cost of a batch is far
# below that of its rows then, and the columns of a few batches fit the processor's caches.
MAX_BATCH_ROWS: Final = 10_000
MAX_BATCH_BYTES: Final = 4_194_304
# Of messages that are not whole yet, all together. A single one may have 128 MiB.
MAX_CHUNK_BYTES: Final = 268_435_456

_EVERY: Final = 2**63
_WAY_OUT: Final = "with failOnDataLoss=false the query goes on without it"

_log = logging.getLogger("magnetar.spark")


def nothing_earlier() -> Iterable[tuple[int, int, bytes]]:
    return ()


class EntriesToArrow:
    """`topic` and `partition` are as the columns show them, the partition -1 where there is none. `earlier` gives the
    entries in front of the slice backwards, nearest first, and is asked only if chunks of a message may be there;
    `more_earlier`: not all that there are."""

    def __init__(
        self,
        columns: Sequence[str],
        topic: str,
        partition: int,
        earlier: Callable[[], Iterable[tuple[int, int, bytes]]] = nothing_earlier,
        *,
        unreadable: Callable[[UnreadableEntry], None] | None = None,
        max_batch_rows: int = MAX_BATCH_ROWS,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        max_chunk_bytes: int = MAX_CHUNK_BYTES,
        more_earlier: bool = False,
    ) -> None:
        self._log_name = topic if partition < 0 else f"{topic}-partition-{partition}"
        self._earlier = earlier
        self._more_earlier = more_earlier
        self._unreadable = unreadable
        self._wanted = Wanted("value" in columns, "key" in columns, "properties" in columns)
        self._batches = RecordBatches(columns, topic, partition, max_batch_rows, max_batch_bytes)
        self._chunks = ChunkGroups(max_chunk_bytes, self._refuse)

    def add(
        self,
        ledger_id: int,
        first_entry_id: int,
        entries: Sequence[bytes],
        skip_messages: int = 0,
        stop_after_messages: int = 0,
    ) -> Iterator[Any]:
        """The record batches that are full with these entries, as they are stored; they must be taken to the end.

        Of the first entry's batch so many messages are not in the slice, and of the last one's only so many are,
        counted from the batch's first; 0: all.
        """
        last = len(entries) - 1
        for at, stored in enumerate(entries):
            first_place = 0 if at else skip_messages
            stop_place = _EVERY if at < last or not stop_after_messages else stop_after_messages
            place = (ledger_id, first_entry_id + at)
            try:
                found = self._read(place, stored, counts=not first_place)
            except WireError as error:
                self._refuse(place, error)
                continue
            if found is None:
                continue
            facts, rows = found
            if first_place or stop_place != _EVERY:
                rows = within(rows, first_place, stop_place)
            yield from self._batches.add(facts, rows)

    def finish(self) -> Iterator[Any]:
        """The rest."""
        for whole in self._chunks.complete(self._earlier):
            try:
                found = self._joined(whole)
            except WireError as error:
                self._refuse(whole.place, error)
                continue
            yield from self._batches.add(*found)
        for place in self._chunks.drop_headless():
            self._without_beginning(place)
        yield from self._batches.take()

    def _without_beginning(self, last: Place) -> None:
        """A message in chunks, by where the last one is."""
        if self._more_earlier:
            text = f"it ends a message in chunks that did not begin in the {REACH} in front that are looked through"
            self._refuse(last, MalformedEntry(text))
            return
        _log.warning(
            "%s has no beginning of the message in chunks that ends with entry %d:%d: it is left out",
            self._log_name,
            *last,
        )

    def _read(self, place: Place, stored: bytes, *, counts: bool) -> tuple[EntryFacts, Rows] | None:
        """What an entry comes to, if it comes to any messages. One of which the first message does not count is in the
        slice only if it is a batch."""
        broker, metadata, payload_at = locate_payload(stored)
        if metadata.HasField("marker_type"):
            return None
        rows = read_plain_table(metadata, stored, payload_at)
        if rows is None:
            entry = Entry(metadata, stored[payload_at:], broker)
            if entry.is_chunk and not metadata.encryption_keys:
                whole = self._chunks.add(place, entry, counts=counts)
                return None if whole is None else self._joined(whole)
            rows = read_rows(entry, self._wanted)
        return _facts(place, metadata, broker), rows

    def _joined(self, whole: Whole) -> tuple[EntryFacts, Rows]:
        first, last = whole.chunks[0], whole.chunks[-1]
        messages = join_chunks(whole.chunks)
        size = sum(len(payload or b"") for payload in messages.payloads) + first.metadata.ByteSize()
        return _facts(whole.place, first.metadata, last.broker), rows_of_messages(first, messages, size, self._wanted)

    def _refuse(self, place: Place, error: WireError) -> None:
        kind = UnreadableEntry
        what = str(error)
        if isinstance(error, EncryptedEntry):
            what = f"{error}, and encryption is not supported"
        elif isinstance(error, TooLarge) and "chunks of" in what:
            kind = TooManyChunks
            what = f"{what}; the option maxChunkBytes allows for more"
        if self._unreadable is None:
            what = f"{what}; {_WAY_OUT}"
        refused = kind(f"entry {place[0]}:{place[1]} of {self._log_name} can't be read: {what}")
        if self._unreadable is None:
            raise refused from error
        self._unreadable(refused)


def _facts(place: Place, metadata: MessageMetadata, broker: BrokerEntryMetadata | None) -> EntryFacts:
    """The broker's index is that of the entry's last message."""
    index = broker_time = None
    if broker is not None:
        if broker.HasField("index"):
            index = broker.index - (max(metadata.num_messages_in_batch, 1) - 1)
        if broker.HasField("broker_timestamp"):
            broker_time = broker.broker_timestamp
    return EntryFacts(*place, metadata.publish_time, metadata.producer_name, broker_time, index)
