"""Which rules a topic has for schemas."""

from __future__ import annotations

import pytest

from magnetar_broker.catalog.applied_policies import override_policies
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.settings.schemas import SchemaSettings
from magnetar_protos.catalog_pb2 import Policies, SchemaCompatibility

_NONE = Policies()
_BACKWARD, _FORWARD = SchemaCompatibility.BACKWARD, SchemaCompatibility.FORWARD


def _of(namespace: Policies = _NONE, topic: Policies = _NONE, **settings: object) -> SchemaRules:
    return SchemaRules.of(SchemaSettings(**settings), namespace, topic)  # type: ignore[arg-type]


def test_default_rules_are_pulsars() -> None:
    """(SCH-2)"""
    assert _of() == SchemaRules(SchemaCompatibility.FULL, allow_auto_update=True, validation_enforced=False)
    assert _of(schema_compatibility_strategy="UNDEFINED").compatibility == SchemaCompatibility.FULL


def test_compatibility_is_the_topics_then_the_namespaces_then_the_brokers() -> None:
    """(SCH-2)"""
    undefined = Policies(schema_compatibility=SchemaCompatibility.UNDEFINED)
    backward, forward = Policies(schema_compatibility=_BACKWARD), Policies(schema_compatibility=_FORWARD)
    assert _of(backward, forward).compatibility == _FORWARD
    assert _of(backward, undefined).compatibility == _BACKWARD
    assert _of(undefined, schema_compatibility_strategy="FORWARD").compatibility == _FORWARD


@pytest.mark.parametrize(
    ("older", "compatibility"),
    [
        ("DISABLED", "ALWAYS_INCOMPATIBLE"),
        ("ALWAYS_COMPATIBLE", "ALWAYS_COMPATIBLE"),
        *((one, one) for one in ("BACKWARD", "FORWARD", "FULL")),
        *((f"{one}_TRANSITIVE", f"{one}_TRANSITIVE") for one in ("BACKWARD", "FORWARD", "FULL")),
    ],
)
def test_older_policy_counts_where_the_newer_is_not_set(older: str, compatibility: str) -> None:
    """(SCH-2)"""
    namespace = Policies(schema_auto_update=f"AUTO_UPDATE_{older}")
    assert SchemaCompatibility.Name(_of(namespace).compatibility) == compatibility
    namespace.schema_compatibility = SchemaCompatibility.UNDEFINED
    assert SchemaCompatibility.Name(_of(namespace).compatibility) == compatibility
    namespace.schema_compatibility = _FORWARD
    assert _of(namespace).compatibility == _FORWARD


def test_namespace_overrides_whether_versions_may_be_added() -> None:
    """(SCH-2)"""
    assert not _of(is_allow_auto_update_schema_enabled=False).allow_auto_update
    assert _of(Policies(allow_schema_auto_update=True), is_allow_auto_update_schema_enabled=False).allow_auto_update
    assert not _of(Policies(allow_schema_auto_update=False)).allow_auto_update


def test_undefined_policy_does_not_override_another() -> None:
    """TOP-4"""
    undefined = Policies(schema_compatibility=SchemaCompatibility.UNDEFINED)
    applied = override_policies(Policies(schema_compatibility=_BACKWARD), Policies(), undefined)
    assert applied.schema_compatibility == _BACKWARD
    assert override_policies(applied, Policies(schema_compatibility=_FORWARD)).schema_compatibility == _FORWARD


def test_topic_overrides_enforcement_of_its_namespace_but_not_of_the_brokers() -> None:
    """(SCH-2)"""
    on, off = Policies(schema_validation_enforced=True), Policies(schema_validation_enforced=False)
    assert _of(on).validation_enforced
    assert _of(off, on).validation_enforced
    assert not _of(on, off).validation_enforced
    assert _of(off, off, is_schema_validation_enforced=True).validation_enforced
