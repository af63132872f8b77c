"""What can be set about the catalog."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from magnetar_wire.bundles import MAX_BUNDLES
from magnetar_wire.configuration import Configuration

__all__ = ["CatalogOptions"]


class CatalogOptions(Configuration):
    # What a namespace's policies may set otherwise: whether topics are made on first use.
    allow_auto_topic_creation: bool = True
    allow_auto_topic_creation_type: Literal["partitioned", "non-partitioned"] = "non-partitioned"
    # Of partitioned topics that are made on first use.
    default_num_partitions: int = Field(default=1, ge=1)
    max_num_partitions_per_partitioned_topic: int = Field(default=4096, ge=1)
    # Topics that one namespace may have, those of the system not counted; 0: any number.
    max_topics_per_namespace: int = Field(default=0, ge=0)
    # Maximum number of leases on one namespace, which new topics are made with. At most
    # managed_ledger_max_leases_per_topic.
    max_leases_per_namespace: int = Field(default=1000, ge=1, le=1000)
    # Into how many bundles a namespace is divided where its maker doesn't say, and how many it may have: neither its
    # maker nor a split makes more.
    default_number_of_namespace_bundles: int = Field(default=4, ge=1, le=MAX_BUNDLES)
    load_balancer_namespace_maximum_bundles: int = Field(default=128, ge=1, le=MAX_BUNDLES)
    # How old what is known of a namespace may be where nothing is made in it.
    metadata_cache_ttl_s: float = Field(default=5.0, ge=0)
    # How long a change waits for a metadata store that can't be reached.
    metadata_operation_timeout_s: float = Field(default=20.0, gt=0)
    # Names and entries in one answer, and what a peek may carry.
    admin_max_names: int = Field(default=1000, ge=1)
    admin_max_peeked_entries: int = Field(default=100, ge=1)
    # How long an administrator's call goes after the broker that is to do it: one that moves, dies or hangs meanwhile.
    admin_forward_timeout_s: float = Field(default=25.0, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> CatalogOptions:
        if self.default_num_partitions > self.max_num_partitions_per_partitioned_topic:
            raise ValueError("default_num_partitions is above max_num_partitions_per_partitioned_topic")
        if self.default_number_of_namespace_bundles > self.load_balancer_namespace_maximum_bundles:
            raise ValueError("default_number_of_namespace_bundles is above load_balancer_namespace_maximum_bundles")
        return self
