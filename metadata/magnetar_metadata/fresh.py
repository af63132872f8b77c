"""A read that returns the node as it was at the call, or later.

The read is sent after the answer to the sync, not together with it: concurrent callers may share a sync
(shared_sync.py), which is then sent later than the read would be. If the connection breaks in between, the read goes
to a server that has seen everything that was answered to this session, including the sync.
"""

from __future__ import annotations

from magnetar_metadata.store import MetadataStore, Node

__all__ = ["get_fresh"]


async def get_fresh(store: MetadataStore, path: str) -> Node | None:
    """Return the node as it was at this call, or later."""
    await store.sync()
    return await store.get(path)
