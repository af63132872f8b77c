"""A topic's schema: a version is never another one later, and none occurs twice (SCH-1)."""

from __future__ import annotations

from magnetar_protos.schema_pb2 import SchemaNode
from tests.sim.invariants.history import Chain, Violation

__all__ = ["SchemaVersions"]


class SchemaVersions:
    def __init__(self) -> None:
        # Fingerprints by incarnation of a node and version.
        self._known: dict[tuple[bytes, int], bytes] = {}

    def schema_changed(self, path: str, node: SchemaNode) -> Chain:
        """Return the ledgers of its versions as a chain."""
        numbers = [one.version for one in node.versions]
        if numbers != sorted(set(numbers)):
            raise Violation("SCH-1", f"{path} has the versions {numbers}")
        live = [one for one in node.versions if one.ledger_id]
        if len({one.fingerprint for one in live}) < len(live):
            raise Violation("SCH-1", f"{path} has a definition twice")
        for one in live:
            if self._known.setdefault((node.incarnation, one.version), one.fingerprint) != one.fingerprint:
                raise Violation("SCH-1", f"{path}: version {one.version} had another definition before")
        return Chain([one.ledger_id for one in live], list(node.deleting))
