"""What can be set about how clients find topics."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["FindingOptions"]


class FindingOptions(Configuration):
    # Lookups, and questions after a topic's partitions and its last message, at a time. Further ones are told to come
    # again.
    max_concurrent_lookup_request: int = Field(default=10_000, gt=0)
