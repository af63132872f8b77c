"""The snapshot of a topic's stored ids, as the attachment of its cursor has it: a message of cursor.proto.

It has the names without a producer that are remembered, and all names with a producer. Its size has a limit. If the ids
of all names do not fit, those of the names that were used last are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from magnetar_broker.topics.deduplication.rules import Group, Progress
from magnetar_broker.topics.producer_names import StoredIds
from magnetar_protos.cursor_pb2 import DeduplicationSnapshot, StoredChunk, StoredProducerIds

__all__ = ["BadSnapshot", "Snapshot", "decode_stored_ids", "encode_stored_ids"]

# The tag and the length of one name's ids, at most.
_FRAME_BYTES: Final = 4


class BadSnapshot(Exception):
    """Bytes that are not a snapshot."""


class Snapshot(NamedTuple):
    encoded: bytes
    names: int


def encode_stored_ids(ids: Iterable[StoredIds], max_bytes: int) -> Snapshot:
    """`ids`: those that were used last are at the end."""
    found: list[StoredProducerIds] = []
    size = 0
    for one in reversed(list(ids)):
        encoded = _encode(one)
        size += encoded.ByteSize() + _FRAME_BYTES
        if size > max_bytes:
            break
        found.append(encoded)
    return Snapshot(DeduplicationSnapshot(producers=reversed(found)).SerializeToString(), len(found))


def _encode(ids: StoredIds) -> StoredProducerIds:
    group = ids.stored.group
    return StoredProducerIds(
        producer_name=ids.name,
        last_sequence_id=ids.last_sequence_id,
        sequence_id=ids.stored.sequence_id,
        used_ms=ids.used_ms,
        chunk=None if group is None else StoredChunk(sequence_id=group[0], message=group[1], chunk_id=group[2]),
    )


def decode_stored_ids(encoded: bytes) -> Iterator[StoredIds]:
    """Yield the ids of a snapshot. Raises `BadSnapshot`."""
    try:
        snapshot = DeduplicationSnapshot.FromString(encoded)
    except DecodeError as error:
        raise BadSnapshot(str(error)) from None
    for one in snapshot.producers:
        chunk = one.chunk
        group = Group(chunk.sequence_id, chunk.message, chunk.chunk_id) if one.HasField("chunk") else None
        yield StoredIds(one.producer_name, one.last_sequence_id, Progress(one.sequence_id, group), one.used_ms)
