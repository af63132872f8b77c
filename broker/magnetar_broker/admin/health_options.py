"""What can be set about a broker's look at its health."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["HealthOptions"]


class HealthOptions(Configuration):
    # A message that takes longer has not gone through.
    health_check_timeout_s: float = Field(default=5.0, gt=0)
    # How old an answer may be that somebody else's question got.
    health_check_max_age_s: float = Field(default=1.0, ge=0)
