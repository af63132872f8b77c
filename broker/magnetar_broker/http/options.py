"""What can be set about a broker's numbers."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["MetricsOptions"]


class MetricsOptions(Configuration):
    # Series for each topic and subscription, for so many topics at most; the others are added up by namespace.
    expose_topic_level_metrics_in_prometheus: bool = True
    max_topics_in_metrics: int = Field(default=1000, ge=0)
    # Over so long are rates, of messages a second and the like.
    stats_update_frequency_in_secs: float = Field(default=10.0, gt=0)
