"""What stands in the metadata store for a bookie, for tests whose bookies are stand-ins."""

from __future__ import annotations

from magnetar_bookie import paths
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import ABSENT, MetadataStore
from magnetar_protos.ledger_pb2 import BookieRegistration, Cookie
from magnetar_testing.randomness import SeededRandomness

__all__ = ["make_cookie", "register_bookie"]


async def make_cookie(store: MetadataStore, bookie_id: str, instance_id: bytes = b"i") -> None:
    """Makes the bookie a member of the cluster, unless it is one."""
    if await store.exists(paths.cookie(bookie_id)) is None:
        cookie = Cookie(bookie_id=bookie_id, instance_id=instance_id).SerializeToString()
        value = compare_and_set.encode_first_value(cookie, SeededRandomness(bookie_id))
        await store.put(paths.cookie(bookie_id), value, ABSENT)


async def register_bookie(
    store: MetadataStore, bookie_id: str, address: str, *, read_only: bool = False, instance_id: bytes = b"i"
) -> None:
    """Registers the bookie for as long as the store's session lasts."""
    await make_cookie(store, bookie_id, instance_id)
    registration = BookieRegistration(address=address, instance_id=instance_id, read_only=read_only)
    await store.put(paths.available(bookie_id), registration.SerializeToString(), ABSENT, ephemeral=True)
