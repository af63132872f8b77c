"""Messages in chunks, as stock clients of Pulsar send them: Magnetar's own clients send none."""

from __future__ import annotations

from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_wire.batch import message_parts
from magnetar_wire.compression import NONE
from magnetar_wire.entry import encode_entry
from magnetar_wire.limits import MAX_MESSAGE_BYTES
from magnetar_wire.messages import Messages

__all__ = ["encode_chunks"]


def encode_chunks(
    message: Messages,
    shared: MessageMetadata,
    uuid: str,
    max_payload_bytes: int = MAX_MESSAGE_BYTES,
    compression: CompressionType = NONE,
) -> list[bytes]:
    """Encode the one message of `message` as entries of at most `max_payload_bytes` of payload each.

    A message that fits once it is compressed is one plain entry, as `encode_message` makes it. `uuid` is the message's
    alone among all that its topic's producers send in chunks.
    """
    metadata, payload = message_parts(message, shared, compression)
    total = len(payload)
    if total <= max_payload_bytes:
        return [encode_entry(metadata, payload)]
    metadata.uuid = uuid
    metadata.num_chunks_from_msg = -(-total // max_payload_bytes)
    metadata.total_chunk_msg_size = total
    entries = []
    for chunk_id, at in enumerate(range(0, total, max_payload_bytes)):
        metadata.chunk_id = chunk_id
        entries.append(encode_entry(metadata, payload[at : at + max_payload_bytes]))
    return entries
