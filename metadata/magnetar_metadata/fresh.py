"""A read that is as new as the call, in the time of one answer.

The read need not wait for the answer to the sync: a session's requests are taken in the order in which they were made.
Should the connection break between the two, the read is either lost with it, or made over another one, to a server that
has seen what this session was told last, the sync's answer included.
"""

from __future__ import annotations

import asyncio

from magnetar_metadata.store import MetadataStore, Node

__all__ = ["get_fresh"]


async def get_fresh(store: MetadataStore, path: str) -> Node | None:
    """The node as it was at this call or later."""
    _, node = await asyncio.gather(store.sync(), store.get(path))
    return node
