"""Split a bundle at its owner, in one transaction: the namespace's node gets one more start, the owner node of the
whole is deleted, and those of both parts are created. So no hash ever has two owners or none, and topics stay open.

A broker that has read the namespace before, and claims the whole bundle now, is refused, since the namespace's node has
another version.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.ownership.held_bundles import HeldBundle, HeldBundles
from magnetar_broker.ownership.namespace_bundles import decode_bundles, split_bundle_starts
from magnetar_broker.ownership.owner_nodes import OwnerNodes
from magnetar_broker.ownership.store_errors import convert_store_errors
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, MetadataError, SessionLost
from magnetar_metadata.store import ABSENT, Change, Delete, MetadataStore, Put
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.ownership_pb2 import BundleOwner
from magnetar_wire.bundles import BundleRange
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["split_held_bundle"]


async def split_held_bundle(
    store: MetadataStore,
    nodes: OwnerNodes,
    bundles: HeldBundles,
    held: HeldBundle,
    parts: tuple[BundleRange, BundleRange],
    owner: BundleOwner,
    clock: Clock,
    randomness: Randomness,
    *,
    max_bundles: int,
) -> None:
    """Split a held bundle, and hold its parts instead. Raises `BrokerError`."""
    name = held.namespace

    def add_start(payload: bytes | None) -> bytes:
        node = None if payload is None else _decode(payload)
        if node is None or node.incarnation != held.namespace_incarnation:
            raise TopicUnloaded(f"namespace {name} was deleted, or recreated: look its bundles up again")
        if len(decode_bundles(node.bundle_starts)) >= max_bundles:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{held} can't be split: the namespace has {len(decode_bundles(node.bundle_starts)):,} bundles, "
                f"and load_balancer_namespace_maximum_bundles is {max_bundles:,}",
            )
        try:
            node.bundle_starts[:] = split_bundle_starts(node.bundle_starts, held.bundle, parts[1].lower)
        except ValueError as error:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, f"{held} can't be split: {error}") from None
        return node.SerializeToString(deterministic=True)

    value = owner.SerializeToString(deterministic=True)
    along: list[Change] = [Delete(paths.owner(name, held.bundle), held.node_version)]
    along += [Put(paths.owner(name, part), value, ABSENT, ephemeral=True) for part in parts]
    with convert_store_errors(f"the split of {held}"):
        try:
            await compare_and_set.change(
                store, paths.namespace(name), add_start, clock=clock, randomness=randomness, along=along
            )
        except SessionLost:
            raise
        except MetadataError:
            # Refused, since the owner node is deleted; or the outcome is unknown. The nodes show it.
            created = [part for part in parts if nodes.is_ours(await nodes.read_until_answered(name, part))]
            if len(created) != len(parts):
                held.is_serving = False  # so the whole bundle is verified
                raise
    bundles.replace(held, parts)


def _decode(payload: bytes) -> NamespaceNode:
    try:
        return NamespaceNode.FromString(payload)
    except DecodeError as error:
        raise ForeignValue(f"it is not a valid NamespaceNode: {error}") from None
