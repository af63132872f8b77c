"""What can be set about the catalog."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from magnetar_wire.bundles import MAX_BUNDLES
from magnetar_wire.configuration import Configuration

__all__ = ["CatalogSettings"]


class CatalogSettings(Configuration):
    # Create topics on first use. A namespace's policies can override it.
    allow_auto_topic_creation: bool = True
    # Type of the topics that are created on first use: partitioned or non-partitioned. A namespace's policies can
    # override it.
    allow_auto_topic_creation_type: Literal["partitioned", "non-partitioned"] = "non-partitioned"
    # Partitions of a partitioned topic that is created on first use. A namespace's policies can override it.
    default_num_partitions: int = Field(default=1, ge=1)
    # Maximum number of partitions of one topic.
    max_num_partitions_per_partitioned_topic: int = Field(default=4096, ge=1)
    # Maximum number of topics of one namespace, system topics not counted. 0: no limit.
    max_topics_per_namespace: int = Field(default=0, ge=0)
    # Maximum number of leases on one namespace, which new topics are created with. At most
    # managed_ledger_max_leases_per_topic.
    max_leases_per_namespace: int = Field(default=1000, ge=1, le=1000)
    # Bundles of a namespace that is created without a number of bundles.
    default_number_of_namespace_bundles: int = Field(default=4, ge=1, le=MAX_BUNDLES)
    # Maximum number of bundles of one namespace, after its creation and after splits.
    load_balancer_namespace_maximum_bundles: int = Field(default=128, ge=1, le=MAX_BUNDLES)
    # Seconds for which a namespace's metadata is cached. Requests that create topics read it from the metadata store.
    # 0: it is not cached.
    metadata_cache_ttl_s: float = Field(default=5.0, ge=0)
    # Seconds for which a change waits for a metadata store that is unreachable.
    metadata_operation_timeout_s: float = Field(default=20.0, gt=0)
    # Maximum number of names in one response to an admin call. Clients request the rest with further calls.
    admin_max_names: int = Field(default=1000, ge=1)
    # Maximum number of entries that one peek may request.
    admin_max_peeked_entries: int = Field(default=100, ge=1)
    # Seconds for which a broker retries an admin call at the topic's owner while the owner changes, fails or does not
    # answer.
    admin_forward_timeout_s: float = Field(default=25.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> CatalogSettings:
        if self.default_num_partitions > self.max_num_partitions_per_partitioned_topic:
            raise ValueError("default_num_partitions is above max_num_partitions_per_partitioned_topic")
        if self.default_number_of_namespace_bundles > self.load_balancer_namespace_maximum_bundles:
            raise ValueError("default_number_of_namespace_bundles is above load_balancer_namespace_maximum_bundles")
        return self
