"""Nodes of schemas that break what must hold."""

from __future__ import annotations

import pytest

from magnetar_protos.schema_pb2 import SchemaNode, SchemaVersion
from tests.sim.invariants.history import Violation
from tests.sim.service.schema_versions import SchemaVersions


def _node(*versions: tuple[int, bytes]) -> SchemaNode:
    listed = [SchemaVersion(version=number, ledger_id=7, fingerprint=print_) for number, print_ in versions]
    return SchemaNode(versions=listed, incarnation=b"i")


@pytest.mark.parametrize("after", [_node((1, b"a"), (0, b"b")), _node((0, b"a"), (1, b"a")), _node((0, b"other"))])
def test_broken_versions_are_found(after: SchemaNode) -> None:
    versions = SchemaVersions()
    versions.schema_changed("/schemas/t", _node((0, b"a")))
    with pytest.raises(Violation):
        versions.schema_changed("/schemas/t", after)
