"""The sizes that all parts agree on. A sender stays below, a receiver refuses what is above."""

from __future__ import annotations

from typing import Final

# The payload of one entry as it is stored: compressed, a batch as a whole.
MAX_MESSAGE_BYTES: Final = 5_242_880
# What an entry may have besides its payload.
MAX_METADATA_BYTES: Final = 10_240
# The largest entry that a bookie takes.
MAX_ENTRY_BYTES: Final = MAX_MESSAGE_BYTES + MAX_METADATA_BYTES

# What one entry may come to when it is decompressed. A payload is counted after compression, so an honest one may be
# far above MAX_MESSAGE_BYTES; a forged size must not take the reader's memory.
MAX_UNCOMPRESSED_BYTES: Final = 134_217_728

# As many messages as a batch of MAX_MESSAGE_BYTES can hold uncompressed, the smallest having 6 bytes. Decoded, each
# takes hundreds of bytes: a batch that decompresses to MAX_UNCOMPRESSED_BYTES must not hold all the messages it could.
MAX_BATCH_MESSAGES: Final = MAX_MESSAGE_BYTES // 6

# A frame carries many entries. Senders fill one up to the first; receivers take up to the second, so that one entry of
# the largest size always fits with what is around it.
FRAME_FILL_BYTES: Final = 1_048_576
MAX_FRAME_BYTES: Final = 8_388_608
MAX_FRAME_ENTRIES: Final = 10_000
