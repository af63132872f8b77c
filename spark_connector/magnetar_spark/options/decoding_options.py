"""How tasks decode messages: the option `unreadable`, and limits.

A message is unreadable if its entry is intact and its payload can't be decoded: it is encrypted, is larger than
`maxDecompressedBytes`, is compressed by an unknown codec, is malformed although the checksum is right, or its chunks
need more memory than `maxChunkBytes`. The message is stored and is not lost, so `failOnDataLoss` has no effect on it.
An entry with a wrong checksum or wrong metadata is damaged, which is a loss.

A message is readable if no selected column is in its payload. An entry's metadata alone has

    single message, chunks    every column but `value`
    batch of n messages       `topic`, `partition`, `message_id`, `publish_time`, `broker_time`, `index`,
                              `producer_name`; and that there are n messages

With `unreadable=null` the other columns are null in these rows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from magnetar_wire.limits import MAX_UNCOMPRESSED_BYTES

__all__ = [
    "BATCH_PAYLOAD_COLUMNS",
    "CHUNK_SEARCH_BYTES",
    "CHUNK_SEARCH_LEDGERS",
    "CHUNK_SEARCH_TEXT",
    "DEFAULT_DECODING",
    "MAX_DECOMPRESSED_BYTES",
    "DecodingOptions",
    "Unreadable",
]

# The columns that are in the payload of a batch, for each message.
BATCH_PAYLOAD_COLUMNS: Final = frozenset({"key", "value", "properties", "event_time", "sequence_id"})
# An Arrow array has at most 2 GiB, and a batch's column needs a little more than its payloads.
MAX_DECOMPRESSED_BYTES: Final = 1 << 30

# How far before its range a task searches the first chunk of a message: plans request the location of these entries,
# and leases retain them. A message that began before that can't be joined. It is refused by the position of its last
# chunk, since it is unknown whether it was complete.
CHUNK_SEARCH_LEDGERS: Final = 8
CHUNK_SEARCH_BYTES: Final = 1 << 30
CHUNK_SEARCH_TEXT: Final = f"{CHUNK_SEARCH_LEDGERS} ledgers and {CHUNK_SEARCH_BYTES >> 30} GiB"


class Unreadable(enum.StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    unreadable: Unreadable = Unreadable.FAIL
    # The largest payload after decompression, of one entry, or of all chunks of a message together.
    max_decompressed_bytes: int = MAX_UNCOMPRESSED_BYTES
    # Memory for the chunks of all incomplete messages of one task.
    max_chunk_bytes: int = 256 << 20


DEFAULT_DECODING: Final = DecodingOptions()
