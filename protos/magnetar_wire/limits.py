"""The sizes that all parts agree on. A sender stays below them, and a receiver refuses data above them."""

from __future__ import annotations

from typing import Final

# The payload of one entry as it is stored: compressed, and a batch as a whole.
MAX_MESSAGE_BYTES: Final = 5_242_880
# The metadata of one entry: of a single message, or the shared part of a batch.
MAX_METADATA_BYTES: Final = 10_240
# The largest entry that a bookie stores, in total: broker metadata, the header of 10 bytes, metadata and payload. The
# header and the broker metadata share the metadata's limit. So metadata of the maximum size is possible only if the
# payload is smaller than its own maximum.
MAX_ENTRY_BYTES: Final = MAX_MESSAGE_BYTES + MAX_METADATA_BYTES
# The broker metadata: 6 bytes, and two numbers of at most 11 bytes with their tags. A producer leaves this many bytes.
MAX_BROKER_METADATA_BYTES: Final = 28

# The size of an entry after decompression. A payload is limited after compression, so a valid one may be far above
# MAX_MESSAGE_BYTES. A forged size must not make the reader allocate more.
MAX_UNCOMPRESSED_BYTES: Final = 134_217_728

# A batch without its messages' payloads, before compression: each message's metadata, and the four bytes of its size.
# Payloads become objects of about their size. But a property of 6 bytes becomes an object of 250, and compresses to
# almost nothing: a batch that decompresses to MAX_UNCOMPRESSED_BYTES must not consist of properties. Every batch that
# fits an entry uncompressed is below this limit. Compressed, it is enough for ten thousand messages with 500 bytes of
# metadata each; stock clients send a thousand messages in a batch by default.
MAX_BATCH_METADATA_BYTES: Final = MAX_MESSAGE_BYTES
# The metadata of one message in a batch: the size that stock clients allow a whole batch by default. A single message
# has MAX_METADATA_BYTES, because of the bookie's limit; within a batch that limit would refuse what they send.
MAX_RECORD_METADATA_BYTES: Final = 131_072
# The messages that MAX_BATCH_METADATA_BYTES can describe: the smallest has its size and the size of its payload.
MAX_BATCH_MESSAGES: Final = MAX_BATCH_METADATA_BYTES // 6

# A frame has many entries. A sender fills it up to the first limit, a receiver accepts it up to the second: so an entry
# of the maximum size always fits.
FRAME_FILL_BYTES: Final = 1_048_576
MAX_FRAME_BYTES: Final = 8_388_608
MAX_FRAME_ENTRIES: Final = 10_000

# Brokers allow no more partitions of a topic, and clients believe no more.
MAX_PARTITIONS: Final = 100_000
