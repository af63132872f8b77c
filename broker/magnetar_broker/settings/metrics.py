"""What can be set about a broker's numbers."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["MetricsSettings"]


class MetricsSettings(Configuration):
    # Expose metrics of each topic and subscription. If false, they are summed by namespace.
    expose_topic_level_metrics_in_prometheus: bool = True
    # Maximum number of topics with metrics of their own. Metrics of further topics are summed by namespace.
    max_topics_in_metrics: int = Field(default=1000, ge=0)
    # Seconds over which rates, as of messages per second, are measured.
    stats_update_frequency_in_secs: float = Field(default=10.0, gt=0)
