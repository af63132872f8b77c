"""The same work for many topics, some of them at a time.

Behind the first that fails none is begun: what is under way then ends as it will, since nobody could tell what had
become of it if it were broken off, and the error of the earliest in line is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName

__all__ = ["on_each_part", "partly_done", "some_at_a_time"]

I = TypeVar("I")  # noqa: E741 (an item)
R = TypeVar("R")

_AT_A_TIME: Final = 16


async def some_at_a_time(items: Sequence[I], work: Callable[[I], Awaitable[R]], at_a_time: int = _AT_A_TIME) -> list[R]:
    """What the work made of each of them, in their order."""
    if len(items) == 1:
        return [await work(items[0])]
    results: dict[int, R] = {}
    errors: dict[int, Exception] = {}
    left = iter(enumerate(items))

    async def worker() -> None:
        while not errors:
            index, item = next(left, (-1, None))
            if index < 0:
                return
            assert item is not None
            try:
                results[index] = await work(item)
            except Exception as error:  # noqa: BLE001 (raised below)
                errors[index] = error

    async with OrderedTaskGroup() as tasks:
        for _ in range(min(at_a_time, len(items))):
            tasks.create_task(worker())
    if errors:
        raise errors[min(errors)]
    return [results[index] for index in range(len(items))]


async def on_each_part(parts: Sequence[TopicName], change: Callable[[TopicName], Awaitable[R]]) -> list[R]:
    """A change of all partitions of a topic. That one can't be changed now does not say that nothing was done, where
    there are others."""
    try:
        return await some_at_a_time(parts, change)
    except BrokerError as error:
        if len(parts) == 1:
            raise
        raise partly_done(error) from error


def partly_done(error: BrokerError) -> BrokerError:
    """The error to raise where a change may have been made on other partitions before this one failed."""
    if error.code != ErrorCode.SERVICE_NOT_READY:
        return error
    return BrokerError(
        ErrorCode.UNKNOWN_ERROR, f"it may have been done on some of the partitions, and not on all: {error}"
    )
