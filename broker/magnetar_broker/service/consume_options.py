"""Options of `consume` streams."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import FRAME_FILL_BYTES

__all__ = ["ConsumeOptions"]


class ConsumeOptions(Configuration):
    # Of one client.
    max_consumers_per_stream: int = Field(default=10_000, gt=0)
    # Memory of the entries that wait for one stream: some frames, so that the next is ready when one has left.
    max_queued_bytes_per_stream: int = Field(default=4 * FRAME_FILL_BYTES, gt=0)
    # Of all streams together; each may always have a little.
    max_queued_bytes_of_all_streams: int = Field(default=268_435_456, gt=0)
    # Of one message: all ranges, batches and other parts together.
    max_parts_per_consume_request: int = Field(default=20_000, gt=0)
    # Receipts, and what else is not answered: above that the stream is not read on.
    max_waiting_answers_per_stream: int = Field(default=20_000, gt=0)
