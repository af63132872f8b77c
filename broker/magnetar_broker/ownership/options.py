"""What can be set about bundles and their owners. Names are Pulsar's where it has the option."""

from __future__ import annotations

from pydantic import Field, model_validator

from magnetar_wire.configuration import Configuration

__all__ = ["OwnershipOptions"]


class OwnershipOptions(Configuration):
    # A broker says anew how loaded it is when that changed by so much of one core, at most so often; and at least so
    # often in any case. When the number of its bundles changed it does so at once.
    load_balancer_report_update_threshold_percentage: float = Field(default=10.0, gt=0)
    load_balancer_report_update_min_interval_millis: int = Field(default=5_000, gt=0)
    load_balancer_report_update_max_interval_minutes: float = Field(default=1.0, gt=0)
    # How long another broker may take to take a bundle, before the next one is asked.
    bundle_claim_timeout_s: float = Field(default=2.0, gt=0)
    # How long a lookup, and whoever wants a topic, waits for a bundle that changes hands.
    bundle_wait_timeout_s: float = Field(default=10.0, gt=0)
    # Between two looks at whether the bundles that this broker has are still its own.
    bundle_check_interval_s: float = Field(default=5.0, gt=0)

    @model_validator(mode="after")
    def _intervals_fit(self) -> OwnershipOptions:
        longest_s = self.load_balancer_report_update_max_interval_minutes * 60
        if self.load_balancer_report_update_min_interval_millis / 1000 > longest_s:
            raise ValueError(
                "load_balancer_report_update_min_interval_millis is above "
                "load_balancer_report_update_max_interval_minutes"
            )
        return self
