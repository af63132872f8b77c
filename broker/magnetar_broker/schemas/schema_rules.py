"""The rules that a topic has for schemas, by its policies."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_protos.catalog_pb2 import Policies, SchemaCompatibility

__all__ = ["SchemaRules"]


@dataclass(frozen=True, slots=True)
class SchemaRules:
    compatibility: SchemaCompatibility
    # Whether producers and consumers may add a version.
    allow_auto_update: bool
    # Whether producers without a schema are refused at a topic that has one.
    validation_enforced: bool

    @classmethod
    def of(cls, policies: Policies) -> SchemaRules:
        """Return the rules of applied policies: the brokers' settings, the namespace's and the topic's together."""
        raise NotImplementedError
