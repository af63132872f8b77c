"""Options of `consume` streams."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import FRAME_FILL_BYTES

__all__ = ["ConsumeOptions"]


class ConsumeOptions(Configuration):
    # Maximum number of consumers on one stream, or one connection of Pulsar's protocol. Further ones are refused.
    max_consumers_per_stream: int = Field(default=10_000, gt=0)
    # Memory, in bytes, of the entries that wait to be sent on one stream; each entry counts with 512 bytes besides what
    # is stored of it. No more entries are read for the stream at this bound.
    max_queued_bytes_per_stream: int = Field(default=4 * FRAME_FILL_BYTES, gt=0)
    # Memory, in bytes, of the entries that wait to be sent on all streams and connections. At this bound each may hold
    # 262144 bytes.
    max_queued_bytes_of_all_streams: int = Field(default=268_435_456, gt=0)
    # Maximum number of parts of one message on a consume stream: acknowledged ranges, batches and requests, together.
    # More end the stream.
    max_parts_per_consume_request: int = Field(default=20_000, gt=0)
    # Maximum number of unanswered requests and unread responses of one consume stream. Above it the broker stops
    # reading the stream.
    max_waiting_answers_per_stream: int = Field(default=20_000, gt=0)
