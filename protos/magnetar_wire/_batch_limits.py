"""What a batch's metadata may come to, the same for everything that encodes or decodes one."""

from __future__ import annotations

from magnetar_wire.errors import TooLarge
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES


def check_batch_metadata(size: int) -> None:
    """`size` is what the batch has besides its payloads."""
    if size > MAX_BATCH_METADATA_BYTES:
        raise TooLarge(
            f"the metadata of the batch's messages has {size} bytes, above the limit of "
            f"{MAX_BATCH_METADATA_BYTES}: put fewer messages in a batch, or fewer properties in a message"
        )


def check_record_metadata(size: int) -> None:
    if size > MAX_RECORD_METADATA_BYTES:
        raise TooLarge(
            f"a message's metadata in a batch has {size} bytes, above the limit of "
            f"{MAX_RECORD_METADATA_BYTES}: use a shorter key, or fewer or shorter properties"
        )
