"""What a batch's metadata may come to, the same for everything that encodes or decodes one."""

from __future__ import annotations

from magnetar_wire.errors import TooLarge
from magnetar_wire.limits import MAX_BATCH_METADATA_BYTES, MAX_RECORD_METADATA_BYTES


def check_batch_metadata(size: int) -> None:
    """`size` is what the batch has besides its payloads."""
    if size > MAX_BATCH_METADATA_BYTES:
        raise TooLarge(
            f"the batch has {size} bytes besides its payloads, and at most {MAX_BATCH_METADATA_BYTES} are allowed: "
            "fewer messages to a batch, or fewer properties to a message"
        )


def check_record_metadata(size: int) -> None:
    if size > MAX_RECORD_METADATA_BYTES:
        raise TooLarge(
            f"a message's metadata in a batch has {size} bytes, and at most {MAX_RECORD_METADATA_BYTES} are allowed"
        )
