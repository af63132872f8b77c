"""A query whose brokers are not there is told so in seconds.

A query that runs has the patience of a service: brokers are restarted under it, and answer a minute later. One that
begins is watched by somebody who may have written the wrong port. So when its first question is not answered at once,
it is looked beside it whether anybody is there at all, with the patience that the command line has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from magnetar.exceptions import ConnectError, MagnetarException
from magnetar_spark.errors import NobodyAnswers
from magnetar_spark.options import SourceOptions
from magnetar_wire.transport import NotReached

__all__ = ["answered"]

T = TypeVar("T")

_AT_ONCE_S: Final = 2.0
_PATIENCE_S: Final = 8.0


async def answered(
    options: SourceOptions,
    work: Coroutine[Any, Any, T],
    *,
    at_once_s: float = _AT_ONCE_S,
    patience_s: float = _PATIENCE_S,
) -> T:
    """What the work returns, which asks brokers that have not answered yet. Raises NobodyAnswers."""
    working = asyncio.ensure_future(work)
    try:
        if not (await asyncio.wait([working], timeout=at_once_s))[0]:
            looking = asyncio.ensure_future(_look(options, patience_s))
            try:
                await asyncio.wait([working, looking], return_when=asyncio.FIRST_COMPLETED)
            finally:
                looking.cancel()
                await asyncio.wait([looking])
            if not working.done() and not looking.cancelled():
                looking.result()
        return await working
    finally:
        working.cancel()
        await asyncio.wait([working])


async def _look(options: SourceOptions, patience_s: float) -> None:
    from magnetar.admin import AsyncAdmin

    async with AsyncAdmin(options.url, patience_s, listener_name=options.listener_name) as admin:
        try:
            await admin.brokers.list()
        except ConnectError as error:
            if isinstance(error.__cause__, NotReached):
                raise NobodyAnswers(
                    f"no broker answers: {error}. Is one running (`magnetar standalone`), and is the option 'url', "
                    f"{options.url}, right?"
                ) from error
        except MagnetarException:
            # Somebody is there, and is slow, or refuses this question: the work is told what there is to be told.
            return
