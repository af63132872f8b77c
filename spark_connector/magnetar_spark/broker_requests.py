"""How long a query waits for brokers.

A query that begins is watched by somebody who may have written the wrong port: if its first request is not answered
at once, `answered` checks in parallel whether any broker can be reached at all, and fails within seconds if none can.
Requests of a query that begins are retried for `START_TIMEOUT_S` (batch_reader.py).

A query that runs is a service, and its cluster may be restarted: its requests are retried for `reconnectSeconds`. Only
errors that may pass are retried, by the client: that a broker can't be reached, or is not ready. Others fail at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from magnetar._errors import is_retryable
from magnetar.exceptions import ConnectError, MagnetarException, OperationNotSupported
from magnetar_spark.errors import BrokersAway, NobodyAnswers
from magnetar_spark.options.source_options import SourceOptions

__all__ = ["answered", "naming_reconnect_timeout"]

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
    except OperationNotSupported as error:
        raise NobodyAnswers(
            f"the server at {options.url} does not support a request of this query: {error}. Is the option "
            "'url' the address of brokers, and do they have this version?"
        ) from error
    finally:
        working.cancel()
        await asyncio.wait([working])


async def naming_reconnect_timeout(options: SourceOptions, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which retries for `reconnectSeconds`. Raises BrokersAway if that was too short."""
    try:
        return await work
    except MagnetarException as error:
        if not is_retryable(error):
            raise
        raise BrokersAway(
            f"brokers did not answer a request of this query for {options.reconnect_s} s, for which "
            f"requests are retried (option reconnectSeconds): {error}"
        ) from error


async def _look(options: SourceOptions, patience_s: float) -> None:
    from magnetar.admin import AsyncAdmin

    async with AsyncAdmin(options.url, patience_s, listener_name=options.listener_name) as admin:
        try:
            await admin.brokers.list()
        except ConnectError as error:
            if error.found is not None:
                raise NobodyAnswers(_explain(options.url, error.found, patience_s)) from error
        except MagnetarException:
            # Somebody is there, and is slow, or refuses this question: the work is told what there is to be told.
            return


def _explain(url: str, found: str, tried_s: float) -> str:
    from magnetar._service_url import DEFAULT_PORT

    return (
        f"no broker has answered for {tried_s:.0f} s: {found}. Is a broker running (`magnetar standalone`), "
        f"and is the option 'url', {url}, the address of Magnetar's own protocol, whose port is "
        f"{DEFAULT_PORT} by default?"
    )
