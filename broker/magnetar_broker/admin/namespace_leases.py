"""Takes, renews, ends and lists the leases on namespaces, for readers and administrators. The rules are in
core/namespace_leases.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker import paths
from magnetar_broker.admin.catalog_nodes import CatalogNodes
from magnetar_broker.core.namespace_leases import end_lease, hold_lease
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.log_leases import LEASE_ID_BYTES
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.managed_ledger_pb2 import NamespaceLease
from magnetar_protos.managed_ledger_pb2 import NamespaceLeases as LeasesNode
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import NamespaceName

__all__ = ["NamespaceLeases"]

_RENEWAL_BYTES: Final = 8
_MIN_LEASE_MS: Final = 1000
# What the setting managed_ledger_max_lease_minutes allows at most.
_MAX_LEASE_MS: Final = 24 * 3600 * 1000
_MAX_TEXT_BYTES: Final = 256


class NamespaceLeases:
    def __init__(self, nodes: CatalogNodes, randomness: Randomness, max_leases: int) -> None:
        self._nodes = nodes
        self._randomness = randomness
        self._max_leases = max_leases

    async def hold(self, name: NamespaceName, prefix: str, lease_id: bytes, lease_ms: int, holder: str) -> bool:
        """Take the lease, or renew it; return whether there was none. The caller has made sure that there is such a
        namespace. Raises `BrokerError`: INVALID_ARGUMENT, TOO_MANY_REQUESTS, METADATA_ERROR."""
        _check(prefix, lease_id, lease_ms, holder)
        lease = NamespaceLease(
            lease_id=lease_id,
            name_prefix=prefix,
            lease_ms=lease_ms,
            holder=holder,
            renewal=self._randomness.token(_RENEWAL_BYTES),
        )
        taken: bool | None = None

        def held(node: LeasesNode | None) -> LeasesNode:
            nonlocal taken
            node = node or LeasesNode()
            taken = hold_lease(node, lease, self._max_leases)
            if taken is None:
                raise BrokerError(
                    ErrorCode.TOO_MANY_REQUESTS,
                    f"{len(node.leases)} readers have leases on namespace {name}, as many as max_leases_per_namespace "
                    "allows: wait until one ends, or end one whose reader is gone "
                    "(admin.reading.namespace_leases shows them, admin.reading.end_namespace_lease ends them)",
                )
            return node

        await self._nodes.change(LeasesNode, paths.namespace_leases(name), held)
        assert taken is not None
        return taken

    async def end(self, name: NamespaceName, lease_id: bytes) -> None:
        """One that is not there has ended. Raises `BrokerError`."""

        def ended(node: LeasesNode | None) -> LeasesNode | None:
            if node is not None:
                end_lease(node, lease_id)
            return node

        await self._nodes.change(LeasesNode, paths.namespace_leases(name), ended)

    async def list(self, name: NamespaceName) -> Sequence[NamespaceLease]:
        found = await self._nodes.read(LeasesNode, paths.namespace_leases(name), fresh=True)
        return found.node.leases if found is not None else ()


def _check(prefix: str, lease_id: bytes, lease_ms: int, holder: str) -> None:
    if len(lease_id) != LEASE_ID_BYTES:
        raise _invalid(f"a lease's id has {LEASE_ID_BYTES} bytes, drawn at random, not {len(lease_id)}")
    if not _MIN_LEASE_MS <= lease_ms <= _MAX_LEASE_MS:
        raise _invalid(
            f"a lease lasts for {_MIN_LEASE_MS} to {_MAX_LEASE_MS} ms at a time, not for {lease_ms}: renew it"
        )
    for what, text in (("name prefix", prefix), ("holder", holder)):
        if (size := len(text.encode(errors="replace"))) > _MAX_TEXT_BYTES:
            raise _invalid(f"a lease's {what} has at most {_MAX_TEXT_BYTES} bytes, not {size}")


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_ARGUMENT, text)
