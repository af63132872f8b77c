"""How a task decodes messages: its limits, and the option `unreadable`.

A message is unreadable when its entry is intact and its payload can't be decoded: it is encrypted, larger than
`maxDecompressedBytes`, compressed by an unknown codec, or malformed behind a good checksum; or its chunks need more
memory than `maxChunkBytes`. That is no loss: the message is there, and stays there. So `failOnDataLoss` has no say in
it. An entry whose checksum or metadata is wrong is damaged, which is a loss.

A message of which the chosen columns need nothing from the payload is not unreadable. What an entry's metadata tells
without the payload:

    single message, chunks    every column but `value`
    batch of n messages       `topic`, `partition`, `message_id`, `publish_time`, `broker_time`, `index`,
                              `producer_name`; and that there are n messages

Under `null` the other columns are null in these rows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from magnetar_wire.limits import MAX_UNCOMPRESSED_BYTES

__all__ = ["BATCH_PAYLOAD_COLUMNS", "DEFAULT_DECODING", "MOST_DECOMPRESSED_BYTES", "Decoding", "Unreadable"]

# The columns that stand in the payload of a batch, message by message.
BATCH_PAYLOAD_COLUMNS: Final = frozenset({"key", "value", "properties", "event_time", "sequence_id"})
# A column of one Arrow array has at most 2 GiB, and a batch besides its payloads some more than them.
MOST_DECOMPRESSED_BYTES: Final = 1 << 30


class Unreadable(enum.StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Decoding:
    unreadable: Unreadable = Unreadable.FAIL
    # Of one entry's payload, or of a message's in all its chunks, without its compression.
    max_decompressed_bytes: int = MAX_UNCOMPRESSED_BYTES
    # Of the chunks of all messages that are not whole yet, in one task.
    max_chunk_bytes: int = 256 << 20


DEFAULT_DECODING: Final = Decoding()
