"""The event loop of a server's process: uvloop where it is installed, and asyncio's own where not.

Sockets cost about half with uvloop. Nothing relies on it: Windows has none, and the `server` extra brings it elsewhere.
"""

from __future__ import annotations

import asyncio

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop, which is this thread's from now on."""
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop
