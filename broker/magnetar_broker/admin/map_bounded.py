"""Run the same coroutine for many items, at most N at a time.

After the first failure no further item is begun. Those in flight end by themselves, since the outcome of a cancelled
one would be unknown. Then the error of the first failed item, in the items' order, is raised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["map_bounded"]

I = TypeVar("I")  # noqa: E741 (an item)
R = TypeVar("R")

_CONCURRENCY: Final = 16


async def map_bounded(
    items: Sequence[I], work: Callable[[I], Awaitable[R]], concurrency: int = _CONCURRENCY
) -> list[R]:
    """Return the results in the items' order."""
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
        for _ in range(min(concurrency, len(items))):
            tasks.create_task(worker())
    if errors:
        raise errors[min(errors)]
    return [results[index] for index in range(len(items))]
