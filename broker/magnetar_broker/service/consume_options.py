"""Options of `consume` streams."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import FRAME_FILL_BYTES

__all__ = ["ConsumeOptions"]


class ConsumeOptions(Configuration):
    # Of one client.
    max_consumers_per_stream: int = Field(default=10_000, gt=0)
    # Memory, in bytes, of the entries that wait to be sent on one stream; each entry counts with 512 bytes besides what
    # is stored of it. No more entries are read for the stream at this bound.
    max_queued_bytes_per_stream: int = Field(default=4 * FRAME_FILL_BYTES, gt=0)
    # Of all streams together; each may always have a little.
    max_queued_bytes_of_all_streams: int = Field(default=268_435_456, gt=0)
    # Of one message: all ranges, batches and other parts together.
    max_parts_per_consume_request: int = Field(default=20_000, gt=0)
    # Receipts, and what else is not answered: above that the stream is not read on.
    max_waiting_answers_per_stream: int = Field(default=20_000, gt=0)
