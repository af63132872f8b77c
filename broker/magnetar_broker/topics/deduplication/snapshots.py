"""The snapshot of a topic's stored ids, as the attachment of its cursor has it: a message of cursor.proto.

Its size has a limit. If the ids of all names do not fit, those of the names that were used last are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from magnetar_broker.topics.deduplication.rules import Group, Progress
from magnetar_broker.topics.producer_names import StoredIds
from magnetar_protos.cursor_pb2 import DeduplicationSnapshot, StoredChunk, StoredProducerIds

__all__ = ["BadSnapshot", "decode_stored_ids", "encode_stored_ids"]


class BadSnapshot(Exception):
    """Bytes that are not a snapshot."""


def encode_stored_ids(ids: Iterable[StoredIds], max_names: int, max_bytes: int) -> bytes:
    """`ids`: those that were used last are at the end."""
    snapshot = DeduplicationSnapshot(producers=[_encode(one) for one in ids][-max_names:])
    while len(encoded := snapshot.SerializeToString()) > max_bytes:
        del snapshot.producers[: max(1, len(snapshot.producers) // 8)]
    return encoded


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
