"""What can be set about bundles and their owners. Names are Pulsar's where it has the option."""

from __future__ import annotations

from pydantic import Field, model_validator

from magnetar_wire.configuration import Configuration

__all__ = ["OwnershipSettings"]


class OwnershipSettings(Configuration):
    # Change of a broker's load at which it publishes its load again, in percent of one core, or of one second of event
    # loop lag. A change of the number of its bundles is published at once.
    load_balancer_report_update_threshold_percentage: float = Field(default=10.0, gt=0)
    # Minimum time, in milliseconds, between two reports of a broker's load that are due to a change of the load.
    load_balancer_report_update_min_interval_millis: int = Field(default=5_000, gt=0)
    # Maximum time, in minutes, between two reports of a broker's load.
    load_balancer_report_update_max_interval_minutes: float = Field(default=1.0, gt=0)
    # Seconds that a broker has to answer when another one assigns a bundle to it. Then the next broker is chosen.
    bundle_claim_timeout_s: float = Field(default=2.0, gt=0)
    # Seconds that lookups, and requests for a topic, wait for a bundle that changes its owner.
    bundle_wait_timeout_s: float = Field(default=10.0, gt=0)
    # Seconds between two checks of whether this broker still owns its bundles.
    bundle_check_interval_s: float = Field(default=5.0, gt=0)

    @model_validator(mode="after")
    def _intervals_fit(self) -> OwnershipSettings:
        longest_s = self.load_balancer_report_update_max_interval_minutes * 60
        if self.load_balancer_report_update_min_interval_millis / 1000 > longest_s:
            raise ValueError(
                "load_balancer_report_update_min_interval_millis is above "
                "load_balancer_report_update_max_interval_minutes"
            )
        return self
