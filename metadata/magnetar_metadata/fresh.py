"""A read that is as new as the call.

The read is sent when the sync is answered, and not right behind it: concurrent callers may share a sync
(shared_sync.py), which is then sent later than the read would be. Should the connection break between the two, the read
is made over another one, to a server that has seen what this session was told last, the sync's answer included.
"""

from __future__ import annotations

from magnetar_metadata.store import MetadataStore, Node

__all__ = ["get_fresh"]


async def get_fresh(store: MetadataStore, path: str) -> Node | None:
    """The node as it was at this call or later."""
    await store.sync()
    return await store.get(path)
