"""The driver's requests to brokers: how long a query waits for them, and how many are in flight.

**A query that starts** fails within seconds if its address is wrong, since its user is waiting. If its first request is
not answered soon, `await_first_answer` checks in parallel whether any broker can be reached at all, and fails if none
can. Otherwise requests are retried for `START_TIMEOUT_S` (batch_reader.py).

**A query that runs** survives a restart of its cluster: its requests are retried for `reconnectSeconds`. The client
only retries if the error may be temporary: a broker can't be reached, or is not ready. Other errors fail at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from magnetar._errors import is_retryable
from magnetar.exceptions import ConnectError, MagnetarException, OperationNotSupported
from magnetar_spark.errors import BrokersAway, NobodyAnswers
from magnetar_spark.options.source_options import SourceOptions

__all__ = ["await_answer", "await_first_answer", "gather_bounded"]

T = TypeVar("T")
R = TypeVar("R")

# How long the first answer may take before brokers are checked, and how long the check may take.
_CHECK_AFTER_S: Final = 2.0
_CHECK_TIMEOUT_S: Final = 8.0
_MAX_IN_FLIGHT: Final = 32


async def await_first_answer(
    options: SourceOptions,
    requests: Coroutine[Any, Any, T],
    *,
    check_after_s: float = _CHECK_AFTER_S,
    check_timeout_s: float = _CHECK_TIMEOUT_S,
) -> T:
    """Return the result of the first requests of a query. Raises NobodyAnswers if no broker can be reached."""
    answer = asyncio.ensure_future(requests)
    try:
        if not (await asyncio.wait([answer], timeout=check_after_s))[0]:
            check = asyncio.ensure_future(_check_brokers(options, check_timeout_s))
            try:
                await asyncio.wait([answer, check], return_when=asyncio.FIRST_COMPLETED)
            finally:
                check.cancel()
                await asyncio.wait([check])
            if not answer.done() and not check.cancelled():
                check.result()
        return await answer
    except OperationNotSupported as error:
        raise NobodyAnswers(
            f"the server at {options.url} does not support a request of this query: {error}. Is the option "
            "'url' the address of brokers, and do they have this version?"
        ) from error
    finally:
        answer.cancel()
        await asyncio.wait([answer])


async def await_answer(options: SourceOptions, requests: Coroutine[Any, Any, T]) -> T:
    """Return the result of later requests. Raises BrokersAway if retrying for `reconnectSeconds` was not enough."""
    try:
        return await requests
    except MagnetarException as error:
        if not is_retryable(error):
            raise
        raise BrokersAway(
            f"brokers did not answer a request of this query for {options.reconnect_s} s, for which "
            f"requests are retried (option reconnectSeconds): {error}"
        ) from error


async def gather_bounded(request: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """Make a request for each item, a limited number at a time, and return the answers in the items' order. The first
    failure cancels the others."""
    slots = asyncio.Semaphore(_MAX_IN_FLIGHT)

    async def send(item: T) -> R:
        async with slots:
            return await request(item)

    tasks = [asyncio.ensure_future(send(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _check_brokers(options: SourceOptions, timeout_s: float) -> None:
    """Raise NobodyAnswers if no broker can be reached."""
    from magnetar.admin import AsyncAdmin

    async with AsyncAdmin(options.url, timeout_s, listener_name=options.listener_name) as admin:
        try:
            await admin.brokers.list()
        except ConnectError as error:
            if error.found is not None:
                raise NobodyAnswers(_describe_endpoints(options.url, error.found, timeout_s)) from error
        except MagnetarException:
            # A broker is there, and is slow or refuses this request: the query's own request gets its error.
            return


def _describe_endpoints(url: str, found: str, tried_s: float) -> str:
    from magnetar._connections.service_url import DEFAULT_PORT

    return (
        f"no broker has answered for {tried_s:.0f} s: {found}. Is a broker running (`magnetar standalone`), "
        f"and is the option 'url', {url}, the address of Magnetar's own protocol, whose port is "
        f"{DEFAULT_PORT} by default?"
    )
