"""The limits of a batch's metadata, for all encoders and decoders."""

from __future__ import annotations

from magnetar_wire.errors import TooLarge
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES


def check_batch_metadata(size: int) -> None:
    """Raise TooLarge if a batch has more than the limit without its payloads."""
    if size > MAX_BATCH_METADATA_BYTES:
        raise TooLarge(
            f"the metadata of the batch's messages has {size} bytes, above the limit of "
            f"{MAX_BATCH_METADATA_BYTES}: put fewer messages in a batch, or fewer properties in a message"
        )


def check_record_metadata(size: int) -> None:
    """Raise TooLarge if one message's metadata in a batch is above the limit."""
    if size > MAX_RECORD_METADATA_BYTES:
        raise TooLarge(
            f"a message's metadata in a batch has {size} bytes, above the limit of "
            f"{MAX_RECORD_METADATA_BYTES}: use a shorter key, or fewer or shorter properties"
        )
