"""What goes on beside a run for as long as it lasts. Without it the history would lack something and nobody would
know: so if it ends by an error, whoever runs it is told at once."""

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
        except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
            failed(what, error)

    task = asyncio.create_task(watched())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
