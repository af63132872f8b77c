"""The sizes that all parts agree on. A sender stays below, a receiver refuses what is above."""

from __future__ import annotations

from typing import Final

# The payload of one entry as it is stored: compressed, a batch as a whole.
MAX_MESSAGE_BYTES: Final = 5_242_880
# The metadata of one entry: of a single message, or what a batch's messages share.
MAX_METADATA_BYTES: Final = 10_240
# The largest entry that a bookie takes, all that is stored counted: the broker's part, the header of 10 bytes, the
# metadata and the payload. Header and broker's part share the metadata's room, so metadata may be as long as it may be
# only where the payload leaves them some.
MAX_ENTRY_BYTES: Final = MAX_MESSAGE_BYTES + MAX_METADATA_BYTES
# What a broker puts in front of an entry: 6 bytes, and two numbers of at most 11 with their tags. A producer leaves so
# much room.
MAX_BROKER_METADATA_BYTES: Final = 28

# What one entry may come to when it is decompressed. A payload is counted after compression, so an honest one may be
# far above MAX_MESSAGE_BYTES; a forged size must not take the reader's memory.
MAX_UNCOMPRESSED_BYTES: Final = 134_217_728

# What a batch may have besides its messages' payloads, before it is compressed: each message's metadata, and the four
# bytes that say its size. Payloads become objects of about their size; a property of 6 bytes becomes one of 250, and it
# compresses to nothing: a batch that decompresses to MAX_UNCOMPRESSED_BYTES must not hold all the properties it could.
# Whatever fits an entry uncompressed is below; compressed, it is enough for ten thousand messages of 500 bytes each,
# where stock clients send a thousand in a batch by default.
MAX_BATCH_METADATA_BYTES: Final = MAX_MESSAGE_BYTES
# The metadata of one message in a batch: as much as stock clients put into a whole batch by default. A message alone
# has MAX_METADATA_BYTES, which a bookie's limit needs; within a batch that would refuse what they have sent.
MAX_RECORD_METADATA_BYTES: Final = 131_072
# As many messages as MAX_BATCH_METADATA_BYTES can describe: the smallest has its size and the size of its payload.
MAX_BATCH_MESSAGES: Final = MAX_BATCH_METADATA_BYTES // 6

# A frame carries many entries. Senders fill one up to the first; receivers take up to the second, so that one entry of
# the largest size always fits with what is around it.
FRAME_FILL_BYTES: Final = 1_048_576
MAX_FRAME_BYTES: Final = 8_388_608
MAX_FRAME_ENTRIES: Final = 10_000
