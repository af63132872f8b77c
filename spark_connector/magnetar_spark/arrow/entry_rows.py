"""Decodes an entry's messages to `Rows`, by the fastest path that supports the entry.

    a table             uniform_batch.py: all payloads have one size, and the messages only have sequence ids besides
    most other batches  batch_fields.py: numpy, all messages at a time
    everything else     magnetar_wire's decoder, an object for each message: single messages, rare flags, malformed
    batches

The first two have counterparts in magnetar_wire, which make Python objects. Converting those to Arrow arrays takes four
times as long as decoding with numpy, and numpy is no dependency of the SDK. So both exist; they share the head of a
table (`uniform_head.py`) and the search for records (`record_cutting.py`).

All paths have the same result, that of the SDK's `Message`. If the payload of an entry can't be decoded,
`read_metadata_rows` returns the rows that its metadata describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_spark.arrow.batch_fields import read_batch_fields
from magnetar_spark.arrow.rows import Rows
from magnetar_spark.arrow.uniform_batch import read_uniform_batch
from magnetar_wire.batch import Messages, decode_payload, decompress_payload, read_key, read_properties
from magnetar_wire.compression import NONE
from magnetar_wire.entry import Entry
from magnetar_wire.errors import WireError
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = [
    "RequestedColumns",
    "convert_messages",
    "read_metadata_rows",
    "read_plain_table",
    "read_rows",
    "slice_by_batch_index",
]

_first_indexes: Final = np.arange(4096, dtype=np.int32)
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())


class RequestedColumns(NamedTuple):
    """Which of the columns are requested that are decoded on request only."""

    values: bool
    keys: bool
    properties: bool


def read_plain_table(metadata: MessageMetadata, stored: bytes, payload_at: int) -> Rows | None:
    """Read the most frequent kind of entry, without copying its payload: a table that is not compressed, encrypted,
    compacted or a chunk. Return None for any other entry. Raises WireError."""
    if (
        not metadata.HasField("num_messages_in_batch")
        or metadata.compression != NONE
        or metadata.encryption_keys
        or metadata.compacted_batch_indexes
        or metadata.num_chunks_from_msg > 1
        or metadata.num_messages_in_batch > MAX_BATCH_MESSAGES
    ):
        return None
    return _read_table(metadata, memoryview(stored)[payload_at:])


def read_rows(entry: Entry, requested: RequestedColumns, max_decompressed_bytes: int) -> Rows:
    """Read the messages of any entry but a chunk. Raises WireError."""
    metadata = entry.metadata
    if not entry.is_batch:
        payload = decompress_payload(entry, max_uncompressed_bytes=max_decompressed_bytes) if requested.values else None
        return _read_single(metadata, payload, requested)
    payload = decompress_payload(entry, max_uncompressed_bytes=max_decompressed_bytes)
    if not metadata.compacted_batch_indexes:
        rows = _read_table(metadata, payload) or _read_fields(metadata, payload, requested)
        if rows is not None:
            return rows
    return convert_messages(entry, decode_payload(entry, payload), len(payload), requested)


def read_metadata_rows(metadata: MessageMetadata, requested: RequestedColumns) -> Rows | None:
    """Return the rows of an entry, or of a chunk's message, without decoding the payload: columns that are not in the
    metadata are null. None if the number of messages is unknown."""
    if not metadata.HasField("num_messages_in_batch"):
        try:
            return _read_single(metadata, None, requested)
        except WireError:  # the key is malformed
            return _read_single(metadata, None, requested._replace(keys=False))
    indexes = _read_batch_indexes(metadata)
    if indexes is None:
        return None
    count = len(indexes)
    return Rows(count, count, count, pa.nulls(count, _PROPERTIES), count, count, indexes, 0)


def _read_batch_indexes(metadata: MessageMetadata) -> Any:
    """Return the batch index of each message; None if the metadata is contradictory, or exceeds the limit of messages
    in a batch."""
    count, left = metadata.num_messages_in_batch, metadata.compacted_batch_indexes
    if not 0 < count <= MAX_BATCH_MESSAGES:
        return None
    if not left:
        return _count_up(count)
    indexes = np.array(left, np.int32)
    is_increasing = bool((np.diff(indexes) > 0).all())
    return indexes if is_increasing and indexes[0] >= 0 and indexes[-1] < count else None


def _read_single(metadata: MessageMetadata, payload: bytes | None, requested: RequestedColumns) -> Rows:
    """Build the row of a single message, of which there may be many, without the columns of `Messages`."""
    key = read_key(metadata) if requested.keys else None
    return Rows(
        1,
        [None if metadata.null_value else payload],
        1 if key is None else [key],
        [read_properties(metadata)] if requested.properties and metadata.properties else 1,
        [metadata.event_time],
        [metadata.sequence_id],
        [-1],
        len(payload or b"") + metadata.ByteSize(),
    )


def _read_table(metadata: MessageMetadata, payload: bytes | memoryview) -> Rows | None:
    count = metadata.num_messages_in_batch
    table = read_uniform_batch(payload, count)
    if table is None:
        return None
    values, ids = table
    keys, key_bytes = _repeat_batch_key(metadata, count)
    return Rows(
        count,
        values,
        keys,
        count,
        count,
        _complete_sequence_ids(metadata, ids, None, count),
        _count_up(count),
        len(payload) + key_bytes,
    )


def _read_fields(metadata: MessageMetadata, payload: bytes, requested: RequestedColumns) -> Rows | None:
    count = metadata.num_messages_in_batch
    fields = read_batch_fields(payload, count, **requested._asdict())
    if fields is None:
        return None
    keys, key_bytes = (fields.keys, 0) if fields.keys is not None else _repeat_batch_key(metadata, count)
    return Rows(
        count,
        count if fields.values is None else fields.values,
        keys,
        count if fields.properties is None else fields.properties,
        count if fields.event_times is None else fields.event_times,
        _complete_sequence_ids(metadata, fields.sequence_ids, fields.has_sequence_id, count),
        _count_up(count),
        len(payload) + key_bytes,
    )


def _count_up(count: int) -> Any:
    """Return 0, 1, 2 …, in an array that must not be changed, since all batches share it."""
    return _first_indexes[:count] if count <= len(_first_indexes) else np.arange(count, dtype=np.int32)


def _complete_sequence_ids(metadata: MessageMetadata, ids: Any, present: Any, count: int) -> Any:
    """Return each message's sequence id: its own, or else the batch's plus the batch index."""
    if ids is not None and present is None:
        return ids
    counted = np.arange(count, dtype=np.uint64) + np.uint64(metadata.sequence_id)
    return counted if ids is None else np.where(present, ids, counted)


def _repeat_batch_key(metadata: MessageMetadata, count: int) -> tuple[Any, int]:
    """Return the key of a batch by key for each of its messages, and their size in bytes."""
    key = read_key(metadata)
    return (count, 0) if key is None else ([key] * count, len(metadata.partition_key) * count)


def convert_messages(entry: Entry, messages: Messages, size: int, requested: RequestedColumns) -> Rows:
    """Convert messages that magnetar_wire has decoded. `size` is that of their payload."""
    count, metadata = len(messages), entry.metadata
    own_indexes = messages.batch_indexes
    batch_indexes: Sequence[int] = range(count) if own_indexes is None else own_indexes
    ids = messages.sequence_ids
    if ids is None or None in ids:
        own_ids: Sequence[int | None] = [None] * count if ids is None else ids
        ids = [
            (metadata.sequence_id + index) % 2**64 if own is None else own
            for own, index in zip(own_ids, batch_indexes, strict=True)
        ]
    keys: Any = messages.keys
    if keys is None:
        keys, key_bytes = _repeat_batch_key(metadata, count) if entry.is_batch else (count, 0)
        size += key_bytes
    rows = Rows(
        count,
        list(messages.payloads),
        keys if isinstance(keys, int) else list(keys),
        list(messages.properties) if requested.properties and messages.properties is not None else count,
        count if messages.event_times is None else list(messages.event_times),
        list(ids),
        list(batch_indexes) if entry.is_batch else [-1] * count,
        size,
    )
    return rows if messages.compacted_out is None else _remove_rows(rows, messages.compacted_out)


def slice_by_batch_index(rows: Rows, first: int, stop: int) -> Rows:
    """Return the rows whose batch indexes are in the range. That of a single message counts as 0. Indexes increase."""
    start, end = np.searchsorted(np.maximum(rows.batch_indexes, 0), (first, stop))
    return rows.slice(int(start), max(int(start), int(end)))


def _remove_rows(rows: Rows, removed: Sequence[bool]) -> Rows:
    """Return the rows that are not marked. Every piece is a list here, or a number."""
    left = [not each for each in removed]
    count = sum(left)

    def select(piece: Any) -> Any:
        return count if isinstance(piece, int) else list(compress(piece, left))

    return Rows(
        count,
        select(rows.values),
        select(rows.keys),
        select(rows.properties),
        select(rows.event_times),
        select(rows.sequence_ids),
        select(rows.batch_indexes),
        rows.bytes,
    )
