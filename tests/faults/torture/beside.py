"""Background tasks of a run, such as recorders. If one fails, the history would lack lines without notice: so its error
is reported to the run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["OnFailure", "going_on"]

# Of what, and by which error.
OnFailure = Callable[[str, Exception], None]


@contextlib.asynccontextmanager
async def going_on(what: str, act: Callable[[], Awaitable[None]], failed: OnFailure) -> AsyncIterator[None]:
    async def watched() -> None:
        try:
            await act()
        except Exception as error:  # noqa: BLE001 (any error is reported)
            failed(what, error)

    task = asyncio.create_task(watched())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
