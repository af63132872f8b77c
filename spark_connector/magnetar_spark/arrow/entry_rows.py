"""An entry's messages as `Rows`: by the fastest way that fits the entry.

    a table           uniform.py: nothing but payloads of one size, and sequence ids
    any other batch   fields.py: numpy, all messages at a time
    all else          magnetar_wire's decoder, an object a message: single messages, flags that are rare, what is wrong

All ways say the same of a message as magnetar's `Message` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np

from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_spark.arrow.fields import read_fields
from magnetar_spark.arrow.rows import Rows
from magnetar_spark.arrow.uniform import read_uniform
from magnetar_wire.batch import Messages, decode_opened, open_payload, read_key, read_properties
from magnetar_wire.compression import NONE
from magnetar_wire.entry import Entry
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["Wanted", "read_plain_table", "read_rows", "rows_of_messages", "within"]

_first_places: Final = np.arange(4096, dtype=np.int32)


class Wanted(NamedTuple):
    """Which columns are asked for, of those that take work: the others are not looked at."""

    values: bool
    keys: bool
    properties: bool


def read_plain_table(metadata: MessageMetadata, stored: bytes, payload_at: int) -> Rows | None:
    """The messages of an entry of the likeliest kind, without a copy of its payload: a table, not compressed, and
    nothing else that is out of the ordinary. Raises WireError."""
    if (
        not metadata.HasField("num_messages_in_batch")
        or metadata.compression != NONE
        or metadata.encryption_keys
        or metadata.compacted_batch_indexes
        or metadata.num_chunks_from_msg > 1
        or metadata.num_messages_in_batch > MAX_BATCH_MESSAGES
    ):
        return None
    return _of_table(metadata, memoryview(stored)[payload_at:])


def read_rows(entry: Entry, wanted: Wanted) -> Rows:
    """The messages of any entry but a chunk. Raises WireError."""
    payload = open_payload(entry)
    if entry.is_batch and not entry.metadata.compacted_batch_indexes:
        rows = _of_table(entry.metadata, payload) or _of_fields(entry.metadata, payload, wanted)
        if rows is not None:
            return rows
    if not entry.is_batch:
        return _of_single(entry.metadata, payload, wanted)
    return rows_of_messages(entry, decode_opened(entry, payload), len(payload), wanted)


def _of_single(metadata: MessageMetadata, payload: bytes, wanted: Wanted) -> Rows:
    """A message that is no batch, of which there may be many: what it is, without the columns between."""
    key = read_key(metadata)
    return Rows(
        1,
        [None if metadata.null_value else payload],
        1 if key is None else [key],
        [read_properties(metadata)] if wanted.properties and metadata.properties else 1,
        [metadata.event_time],
        [metadata.sequence_id],
        [-1],
        len(payload) + metadata.ByteSize(),
    )


def _of_table(metadata: MessageMetadata, payload: bytes | memoryview) -> Rows | None:
    count = metadata.num_messages_in_batch
    table = read_uniform(payload, count)
    if table is None:
        return None
    values, ids = table
    keys, key_bytes = _key_of_batch(metadata, count)
    return Rows(
        count,
        values,
        keys,
        count,
        count,
        _sequence_ids(metadata, ids, None, count),
        _places(count),
        len(payload) + key_bytes,
    )


def _of_fields(metadata: MessageMetadata, payload: bytes, wanted: Wanted) -> Rows | None:
    count = metadata.num_messages_in_batch
    fields = read_fields(payload, count, **wanted._asdict())
    if fields is None:
        return None
    keys, key_bytes = (fields.keys, 0) if fields.keys is not None else _key_of_batch(metadata, count)
    return Rows(
        count,
        count if fields.values is None else fields.values,
        keys,
        count if fields.properties is None else fields.properties,
        count if fields.event_times is None else fields.event_times,
        _sequence_ids(metadata, fields.sequence_ids, fields.has_sequence_id, count),
        _places(count),
        len(payload) + key_bytes,
    )


def _places(count: int) -> Any:
    """0, 1, 2 … They are the same for all batches, and nobody changes them."""
    return _first_places[:count] if count <= len(_first_places) else np.arange(count, dtype=np.int32)


def _sequence_ids(metadata: MessageMetadata, ids: Any, present: Any, count: int) -> Any:
    """A message without a sequence id of its own has the batch's, and its place added."""
    if ids is not None and present is None:
        return ids
    counted = np.arange(count, dtype=np.uint64) + np.uint64(metadata.sequence_id)
    return counted if ids is None else np.where(present, ids, counted)


def _key_of_batch(metadata: MessageMetadata, count: int) -> tuple[Any, int]:
    """What a batch by key says once for all of its messages, and how many bytes that is with all of them."""
    key = read_key(metadata)
    return (count, 0) if key is None else ([key] * count, len(metadata.partition_key) * count)


def rows_of_messages(entry: Entry, messages: Messages, size: int, wanted: Wanted) -> Rows:
    count, metadata = len(messages), entry.metadata
    indexes = messages.batch_indexes
    places: Sequence[int] = range(count) if indexes is None else indexes
    ids = messages.sequence_ids
    if ids is None or None in ids:
        own: Sequence[int | None] = [None] * count if ids is None else ids
        ids = [
            (metadata.sequence_id + place) % 2**64 if each is None else each
            for each, place in zip(own, places, strict=True)
        ]
    keys: Any = messages.keys
    if keys is None:
        keys, key_bytes = _key_of_batch(metadata, count) if entry.is_batch else (count, 0)
        size += key_bytes
    rows = Rows(
        count,
        list(messages.payloads),
        keys if isinstance(keys, int) else list(keys),
        list(messages.properties) if wanted.properties and messages.properties is not None else count,
        count if messages.event_times is None else list(messages.event_times),
        list(ids),
        list(places) if entry.is_batch else [-1] * count,
        size,
    )
    return rows if messages.compacted_out is None else _without(rows, messages.compacted_out)


def within(rows: Rows, first_place: int, stop_place: int) -> Rows:
    """Those whose places in the batch are in the range, that of a single message being 0. Places rise."""
    start, stop = np.searchsorted(np.maximum(rows.places, 0), (first_place, stop_place))
    return rows.part(int(start), max(int(start), int(stop)))


def _without(rows: Rows, removed: Sequence[bool]) -> Rows:
    """The rows but those that are marked; every piece is a list here, or a number."""
    left = [not each for each in removed]
    count = sum(left)

    def kept(piece: Any) -> Any:
        return count if isinstance(piece, int) else list(compress(piece, left))

    return Rows(
        count,
        kept(rows.values),
        kept(rows.keys),
        kept(rows.properties),
        kept(rows.event_times),
        kept(rows.sequence_ids),
        kept(rows.places),
        rows.bytes,
    )
