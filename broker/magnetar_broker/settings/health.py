"""What can be set about a broker's look at its health."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["HealthSettings"]


class HealthSettings(Configuration):
    # Seconds that the health check's message may take from publish to read. Then the check has failed.
    health_check_timeout_s: float = Field(default=5.0, gt=0)
    # Seconds for which a health check's result is reused for further requests.
    health_check_max_age_s: float = Field(default=1.0, ge=0)
