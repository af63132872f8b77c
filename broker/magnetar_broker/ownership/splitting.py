"""Cutting a bundle in two, by its owner: one transaction, in which the namespace's node gets one more beginning, the
owner's node of the whole goes, and those of both halves come. So at no time has a hash two owners or none, and topics
stay open.

Whoever had read the namespace before, and claims the whole now, is refused, since its node has another version.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.core.namespace_bundles import bundles_of, starts_after_split
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.ownership.held_bundles import HeldBundle, HeldBundles
from magnetar_broker.ownership.owner_nodes import OwnerNodes
from magnetar_broker.ownership.store_errors import told
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, MetadataError, SessionLost
from magnetar_metadata.store import ABSENT, Change, Delete, MetadataStore, Put
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.ownership_pb2 import BundleOwner
from magnetar_wire.bundles import BundleRange
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["split"]


async def split(
    store: MetadataStore,
    nodes: OwnerNodes,
    bundles: HeldBundles,
    held: HeldBundle,
    halves: tuple[BundleRange, BundleRange],
    owner: BundleOwner,
    clock: Clock,
    randomness: Randomness,
    *,
    max_bundles: int,
) -> None:
    """`bundles` has the halves in place of the whole then. Raises `BrokerError`."""
    name = held.namespace

    def cut(payload: bytes | None) -> bytes:
        node = None if payload is None else _decoded(payload)
        if node is None or node.incarnation != held.namespace_incarnation:
            raise TopicUnloaded(f"namespace {name} was deleted, or recreated: look its bundles up again")
        if len(bundles_of(node.bundle_starts)) >= max_bundles:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{held} can't be split: the namespace has {len(bundles_of(node.bundle_starts)):,} bundles, "
                f"and load_balancer_namespace_maximum_bundles is {max_bundles:,}",
            )
        try:
            node.bundle_starts[:] = starts_after_split(node.bundle_starts, held.bundle, halves[1].lower)
        except ValueError as error:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{held} can't be split: {error}") from None
        return node.SerializeToString(deterministic=True)

    value = owner.SerializeToString(deterministic=True)
    along: list[Change] = [Delete(paths.owner(name, held.bundle), held.node_version)]
    along += [Put(paths.owner(name, half), value, ABSENT, ephemeral=True) for half in halves]
    with told(f"the split of {held}"):
        try:
            await compare_and_set.change(
                store, paths.namespace(name), cut, clock=clock, randomness=randomness, along=along
            )
        except SessionLost:
            raise
        except MetadataError:
            # Refused, since the owner's node is gone; or its answer was lost for good. The nodes say what there is.
            parts = [half for half in halves if nodes.is_ours(await nodes.read_for_sure(name, half))]
            if len(parts) != len(halves):
                held.serving = False  # and so it is looked at whether the whole is still there
                raise
    bundles.replace(held, halves)


def _decoded(payload: bytes) -> NamespaceNode:
    try:
        return NamespaceNode.FromString(payload)
    except DecodeError as error:
        raise ForeignValue(f"it is not a valid NamespaceNode: {error}") from None
