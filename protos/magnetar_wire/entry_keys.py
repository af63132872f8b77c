"""The key of a stored entry, by which a broker chooses the consumer of a Key_Shared subscription.

The keys of a batch's first message are in the entry's metadata: producers copy them there. So the payload, which may be
compressed or encrypted, is not decoded. Only `has_several_keys` decodes it, for statistics.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from magnetar_protos.entry_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar_wire.batch import decompress_payload
from magnetar_wire.entry import broker_metadata_bytes, decode_entry
from magnetar_wire.errors import WireError
from magnetar_wire.hashing import NO_KEY, murmur3_32, ordering_bytes

__all__ = ["has_several_keys", "hash_entry_key"]

# Magic and checksum come before the size of the metadata, and the size before the metadata.
_SIZE_AT: Final = 6
_METADATA_AT: Final = 10
_NO_KEY_HASH: Final = murmur3_32(NO_KEY)
# Of a batch, to find a message with another key: messages, and bytes of a compressed payload when it is decompressed. A
# batch of one key takes longest, a microsecond or two for each message; without batching by key, the first few messages
# usually have several keys. A few kilobytes may decompress to a hundred megabytes, which takes a tenth of a second.
_MAX_COMPARED: Final = 100
_MAX_DECOMPRESSED_BYTES: Final = 262_144


def hash_entry_key(stored: bytes) -> int:
    """Return the hash of the key of an entry that was stored by a broker: that of its first message."""
    at = broker_metadata_bytes(stored)
    head_at = at + _METADATA_AT
    size = int.from_bytes(stored[at + _SIZE_AT : head_at], "big")
    return _hash_key(MessageMetadata.FromString(stored[head_at : head_at + size]))


def _hash_key(metadata: MessageMetadata | SingleMessageMetadata) -> int:
    if metadata.HasField("ordering_key"):
        return murmur3_32(metadata.ordering_key)
    if not metadata.HasField("partition_key"):
        return _NO_KEY_HASH
    return murmur3_32(ordering_bytes(metadata.partition_key, b64_encoded=metadata.partition_key_b64_encoded))


def has_several_keys(stored: bytes) -> bool:
    """Return whether the first messages of a batch, at most 100, have more than one key. False if that is not known:
    the entry is encrypted or damaged, or is compressed and large."""
    try:
        entry = decode_entry(stored, verify=False)
        payload = decompress_payload(entry, max_uncompressed_bytes=_MAX_DECOMPRESSED_BYTES)
        return _has_other_key(payload, min(entry.metadata.num_messages_in_batch, _MAX_COMPARED))
    except (WireError, DecodeError):
        return False


def _has_other_key(batch: bytes, count: int) -> bool:
    """Return whether one of the batch's first messages has another key than the first one."""
    at, first = 0, None
    for _ in range(count):
        head_at = at + 4
        end = head_at + int.from_bytes(batch[at:head_at], "big")
        head = SingleMessageMetadata.FromString(batch[head_at:end])
        key = _hash_key(head)
        if first is None:
            first = key
        elif key != first:
            return True
        at = end + head.payload_size
    return False
