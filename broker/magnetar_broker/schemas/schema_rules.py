"""The rules that a topic has for schemas, by the brokers' settings and its policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.schemas import SchemaSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, SchemaAutoUpdate, SchemaCompatibility
from magnetar_wire.topic_name import TopicName

__all__ = ["SchemaRules"]

# What the values of the older policy mean.
_COMPATIBILITY_OF: Final = {
    SchemaAutoUpdate.AUTO_UPDATE_DISABLED: SchemaCompatibility.ALWAYS_INCOMPATIBLE,
    SchemaAutoUpdate.AUTO_UPDATE_BACKWARD: SchemaCompatibility.BACKWARD,
    SchemaAutoUpdate.AUTO_UPDATE_FORWARD: SchemaCompatibility.FORWARD,
    SchemaAutoUpdate.AUTO_UPDATE_FULL: SchemaCompatibility.FULL,
    SchemaAutoUpdate.AUTO_UPDATE_ALWAYS_COMPATIBLE: SchemaCompatibility.ALWAYS_COMPATIBLE,
    SchemaAutoUpdate.AUTO_UPDATE_BACKWARD_TRANSITIVE: SchemaCompatibility.BACKWARD_TRANSITIVE,
    SchemaAutoUpdate.AUTO_UPDATE_FORWARD_TRANSITIVE: SchemaCompatibility.FORWARD_TRANSITIVE,
    SchemaAutoUpdate.AUTO_UPDATE_FULL_TRANSITIVE: SchemaCompatibility.FULL_TRANSITIVE,
}


@dataclass(frozen=True, slots=True)
class SchemaRules:
    compatibility: SchemaCompatibility
    # Whether producers and consumers may add a version.
    allow_auto_update: bool
    # Whether producers without a schema are refused at a topic that has one.
    validation_enforced: bool
    # False: the policies can't be read now. These rules are by those that were known last, or by none.
    is_known: bool = True

    def check_known(self, topic: TopicName) -> None:
        """Raise SERVICE_NOT_READY unless the rules are known."""
        if not self.is_known:
            raise BrokerError(
                ErrorCode.SERVICE_NOT_READY,
                f"the policies of {topic}, which decide on its schema, can't be read now: retry",
            )

    @classmethod
    def of(cls, settings: SchemaSettings, namespace: Policies, topic: Policies) -> SchemaRules:
        """Return the rules by the brokers' settings, the policies of the namespace and those of the topic."""
        return cls(
            _find_compatibility(settings, namespace, topic),
            _allows_auto_update(settings, namespace),
            _is_enforced(settings, namespace, topic),
        )


def _find_compatibility(settings: SchemaSettings, namespace: Policies, topic: Policies) -> SchemaCompatibility:
    """UNDEFINED counts as not set. The older policy counts where the newer one is not set."""
    if topic.schema_compatibility:
        return topic.schema_compatibility
    if namespace.schema_compatibility:
        return namespace.schema_compatibility
    if namespace.HasField("schema_auto_update"):
        return _COMPATIBILITY_OF.get(namespace.schema_auto_update, SchemaCompatibility.FULL)
    return settings.default_schema_compatibility


def _allows_auto_update(settings: SchemaSettings, namespace: Policies) -> bool:
    if namespace.HasField("allow_schema_auto_update"):
        return namespace.allow_schema_auto_update
    return settings.is_allow_auto_update_schema_enabled


def _is_enforced(settings: SchemaSettings, namespace: Policies, topic: Policies) -> bool:
    """The brokers' setting can't be switched off by policies."""
    if settings.is_schema_validation_enforced:
        return True
    policies = topic if topic.HasField("schema_validation_enforced") else namespace
    return policies.schema_validation_enforced
