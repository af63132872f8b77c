"""Settings of topics' schemas. Names are Pulsar's."""

from __future__ import annotations

from typing import Literal

from magnetar_protos.catalog_pb2 import Policies, SchemaCompatibility
from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, setting

__all__ = ["SchemaSettings"]


class SchemaSettings(Configuration):
    schema_compatibility_strategy: Literal[
        "UNDEFINED",
        "ALWAYS_INCOMPATIBLE",
        "ALWAYS_COMPATIBLE",
        "BACKWARD",
        "FORWARD",
        "FULL",
        "BACKWARD_TRANSITIVE",
        "FORWARD_TRANSITIVE",
        "FULL_TRANSITIVE",
    ] = setting(
        "FULL",
        "How a new version of a topic's schema has to fit the earlier ones, unless the policies of the topic or of its "
        "namespace set it. UNDEFINED: as FULL.",
        subject=Subject.SCHEMAS,
        named_by="Pulsar",
    )
    is_allow_auto_update_schema_enabled: bool = setting(
        True,
        "Whether producers and consumers may add a version to a topic's schema, unless the namespace's policies set "
        "it. Otherwise only administrators add versions.",
        subject=Subject.SCHEMAS,
        named_by="Pulsar",
        dynamic=True,
    )
    is_schema_validation_enforced: bool = setting(
        False,
        "Whether producers without a schema are refused at all topics that have one. If false, the policies of the "
        "topic and of its namespace decide.",
        subject=Subject.SCHEMAS,
        named_by="Pulsar",
    )

    max_schema_versions_per_topic: int = setting(
        1000,
        "Maximum number of versions of one topic's schema. Further ones are refused until the schema is deleted by "
        "force.",
        subject=Subject.SCHEMAS,
        unit="versions",
        ge=1,
        le=5000,
    )
    max_schema_bytes_per_topic: int = setting(
        16_777_216,
        "Maximum size, in bytes, of all versions of one topic's schema together. Further ones are refused until the "
        "schema is deleted by force.",
        subject=Subject.SCHEMAS,
        ge=1,
        le=268_435_456,
    )

    @property
    def default_schema_compatibility(self) -> SchemaCompatibility:
        found = Policies(schema_compatibility=self.schema_compatibility_strategy).schema_compatibility
        return found or SchemaCompatibility.FULL
