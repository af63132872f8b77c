"""The event loop of a server's process: uvloop if it is installed, otherwise asyncio's own.

With uvloop sockets take about half the time. Nothing else relies on it: it doesn't exist for Windows, and the extra
`server` installs it elsewhere.
"""

from __future__ import annotations

import asyncio

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Create a loop, and make it the current one of this thread."""
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
    else:
        loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop
