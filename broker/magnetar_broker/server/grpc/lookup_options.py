"""What can be set about how clients find topics."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["FindingOptions"]


class FindingOptions(Configuration):
    # Maximum number of concurrent lookups, requests for a topic's partitions and requests for its last message. Further
    # ones are refused, and clients retry them.
    max_concurrent_lookup_request: int = Field(default=10_000, gt=0)
