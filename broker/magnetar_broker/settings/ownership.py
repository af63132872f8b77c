"""Settings of bundles and their owners. Names are Pulsar's where it has the setting."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, setting

__all__ = ["OwnershipSettings"]


class OwnershipSettings(Configuration):
    load_balancer_report_update_threshold_percentage: float = setting(
        10.0,
        "Change of a broker's load, in percent, at which the broker reports its load again. 100 percent is one core, "
        "or one second of event loop lag. A change of the number of its bundles is reported at once.",
        subject=Subject.BUNDLES,
        gt=0,
        named_by="Pulsar",
    )
    load_balancer_report_update_min_interval_millis: int = setting(
        5_000,
        "Minimum interval, in milliseconds, of a broker's load reports that are due to a change of the load.",
        subject=Subject.BUNDLES,
        ge=1,
        named_by="Pulsar",
    )
    load_balancer_report_update_max_interval_minutes: float = setting(
        1.0,
        "Maximum interval, in minutes, of a broker's load reports. Pulsar's default: 15.",
        subject=Subject.BUNDLES,
        gt=0,
        named_by="Pulsar",
    )
    bundle_claim_timeout_seconds: float = setting(
        2.0,
        "Seconds that a broker has to answer when another broker assigns a bundle to it. Then the next broker is "
        "chosen.",
        subject=Subject.BUNDLES,
        gt=0,
        formerly="bundle_claim_timeout_s",
    )
    bundle_wait_timeout_seconds: float = setting(
        10.0,
        "Seconds that lookups, and requests for a topic, wait for a bundle that changes its owner.",
        subject=Subject.BUNDLES,
        gt=0,
        formerly="bundle_wait_timeout_s",
    )
    bundle_check_interval_seconds: float = setting(
        5.0,
        "Seconds between two checks of whether this broker still owns its bundles.",
        subject=Subject.BUNDLES,
        gt=0,
        formerly="bundle_check_interval_s",
    )

    @model_validator(mode="after")
    def _check_intervals(self) -> Self:
        millis, minutes = (
            self.load_balancer_report_update_min_interval_millis,
            self.load_balancer_report_update_max_interval_minutes,
        )
        if millis > minutes * 60_000:
            raise ValueError(
                f"load_balancer_report_update_min_interval_millis is {millis}, above "
                f"load_balancer_report_update_max_interval_minutes, which is {minutes:g} ({minutes * 60_000:g} ms): "
                "lower the first or raise the second"
            )
        return self
