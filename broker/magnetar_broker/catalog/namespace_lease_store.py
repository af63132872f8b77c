"""Take, renew, end and list leases on namespaces in the metadata store.

The rules are in managed_ledger/namespace_leases.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker import paths
from magnetar_broker.catalog.catalog_nodes import CatalogNodes
from magnetar_broker.catalog.namespaces import namespace_not_found
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.log_leases import LEASE_ID_BYTES
from magnetar_broker.managed_ledger.namespace_leases import end_lease, hold_lease
from magnetar_metadata.errors import Refused
from magnetar_metadata.store import Check
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.managed_ledger_pb2 import NamespaceLease
from magnetar_protos.managed_ledger_pb2 import NamespaceLeases as LeasesNode
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import NamespaceName

__all__ = ["NamespaceLeaseStore"]

_RENEWAL_BYTES: Final = 8
_MIN_LEASE_MS: Final = 1000
# The maximum of the setting managed_ledger_max_lease_minutes.
_MAX_LEASE_MS: Final = 24 * 3600 * 1000
_MAX_TEXT_BYTES: Final = 256


class NamespaceLeaseStore:
    def __init__(self, nodes: CatalogNodes, randomness: Randomness, max_leases: int) -> None:
        self._nodes = nodes
        self._randomness = randomness
        self._max_leases = max_leases

    async def hold(
        self, name: NamespaceName, incarnation: bytes, prefix: str, lease_id: bytes, lease_ms: int, holder: str
    ) -> bool:
        """Take the lease on this incarnation of the namespace, or renew it. Return whether there was none. Raises
        `BrokerError`: INVALID_ARGUMENT, NOT_FOUND, TOO_MANY_REQUESTS, METADATA_ERROR."""
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
                    "allows: wait until one ends, or end one whose reader has ended "
                    "(admin.reading.namespace_leases shows them, admin.reading.end_namespace_lease ends them)",
                )
            return node

        try:
            await self._change(name, incarnation, held)
        except Refused:
            raise namespace_not_found(name) from None
        assert taken is not None
        return taken

    async def end(self, name: NamespaceName, incarnation: bytes, lease_id: bytes) -> None:
        """End the lease, if there is such a lease on this incarnation of the namespace. Raises `BrokerError`."""

        def ended(node: LeasesNode | None) -> LeasesNode | None:
            if node is not None:
                end_lease(node, lease_id)
            return node

        with contextlib.suppress(Refused):  # the namespace was deleted, and its leases with it
            await self._change(name, incarnation, ended)

    async def list(self, name: NamespaceName) -> Sequence[NamespaceLease]:
        """A node that can't be decoded has no leases."""
        found = await self._nodes.read_decodable(LeasesNode, paths.namespace_leases(name))
        return found.node.leases if found is not None else ()

    async def _change(
        self, name: NamespaceName, incarnation: bytes, update: Callable[[LeasesNode | None], LeasesNode | None]
    ) -> None:
        """Raises `Refused` if the incarnation was deleted."""
        along = [Check(paths.namespace_incarnation(incarnation), 0)]
        await self._nodes.change_or_replace(LeasesNode, paths.namespace_leases(name), update, along)


def _check(prefix: str, lease_id: bytes, lease_ms: int, holder: str) -> None:
    if len(lease_id) != LEASE_ID_BYTES:
        raise _invalid(f"a lease's id has {LEASE_ID_BYTES} bytes, drawn at random, not {len(lease_id)}")
    if not _MIN_LEASE_MS <= lease_ms <= _MAX_LEASE_MS:
        raise _invalid(
            f"lease_ms = {lease_ms} is not between {_MIN_LEASE_MS} and {_MAX_LEASE_MS}: renew the lease instead"
        )
    for what, text in (("name prefix", prefix), ("holder", holder)):
        if (size := len(text.encode(errors="replace"))) > _MAX_TEXT_BYTES:
            raise _invalid(f"a lease's {what} has at most {_MAX_TEXT_BYTES} bytes, not {size}")


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_ARGUMENT, text)
