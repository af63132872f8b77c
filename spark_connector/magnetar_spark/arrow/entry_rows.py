"""An entry's messages as `Rows`: by the fastest way that fits the entry.

    a table           uniform_batch.py: nothing but payloads of one size, and sequence ids
    any other batch   batch_fields.py: numpy, all messages at a time
    all else          magnetar_wire's decoder, an object a message: single messages, flags that are rare, what is wrong

All ways say the same of a message as magnetar's `Message` does. Of an entry whose payload can't be decoded
`read_metadata_rows` makes the rows that its metadata describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_spark.arrow.batch_fields import read_fields
from magnetar_spark.arrow.rows import Rows
from magnetar_spark.arrow.uniform_batch import read_uniform
from magnetar_wire.batch import Messages, decode_payload, decompress_payload, read_key, read_properties
from magnetar_wire.compression import NONE
from magnetar_wire.entry import Entry
from magnetar_wire.errors import WireError
from magnetar_wire.limits import MAX_BATCH_MESSAGES

__all__ = ["Wanted", "read_metadata_rows", "read_plain_table", "read_rows", "rows_of_messages", "within"]

_first_places: Final = np.arange(4096, dtype=np.int32)
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())


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


def read_rows(entry: Entry, wanted: Wanted, max_decompressed_bytes: int) -> Rows:
    """The messages of any entry but a chunk. Raises WireError."""
    metadata = entry.metadata
    if not entry.is_batch:
        payload = decompress_payload(entry, max_uncompressed_bytes=max_decompressed_bytes) if wanted.values else None
        return _of_single(metadata, payload, wanted)
    payload = decompress_payload(entry, max_uncompressed_bytes=max_decompressed_bytes)
    if not metadata.compacted_batch_indexes:
        rows = _of_table(metadata, payload) or _of_fields(metadata, payload, wanted)
        if rows is not None:
            return rows
    return rows_of_messages(entry, decode_payload(entry, payload), len(payload), wanted)


def read_metadata_rows(metadata: MessageMetadata, wanted: Wanted) -> Rows | None:
    """The messages of an entry whose payload is not decoded, or of a message in chunks by what one of them says: null
    in every column that is not in the metadata. None if the metadata does not tell how many messages there are."""
    if not metadata.HasField("num_messages_in_batch"):
        try:
            return _of_single(metadata, None, wanted)
        except WireError:  # the key is malformed
            return _of_single(metadata, None, wanted._replace(keys=False))
    places = _places_of_batch(metadata)
    if places is None:
        return None
    count = len(places)
    return Rows(count, count, count, pa.nulls(count, _PROPERTIES), count, count, places, 0)


def _places_of_batch(metadata: MessageMetadata) -> Any:
    """None if the metadata contradicts itself, or has more messages than a batch may have."""
    count, left = metadata.num_messages_in_batch, metadata.compacted_batch_indexes
    if not 0 < count <= MAX_BATCH_MESSAGES:
        return None
    if not left:
        return _places(count)
    places = np.array(left, np.int32)
    is_rising = bool((np.diff(places) > 0).all())
    return places if is_rising and places[0] >= 0 and places[-1] < count else None


def _of_single(metadata: MessageMetadata, payload: bytes | None, wanted: Wanted) -> Rows:
    """A message that is no batch, of which there may be many: built directly, without the columns of `Messages`."""
    key = read_key(metadata) if wanted.keys else None
    return Rows(
        1,
        [None if metadata.null_value else payload],
        1 if key is None else [key],
        [read_properties(metadata)] if wanted.properties and metadata.properties else 1,
        [metadata.event_time],
        [metadata.sequence_id],
        [-1],
        len(payload or b"") + metadata.ByteSize(),
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
