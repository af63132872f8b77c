"""Asking whichever broker answers: any of a service's addresses will do.

The one that answered last is asked first. One that can't be reached, or can't tell now, is passed over at once. One
that is silent for `PATIENCE_S` is not given up, since its answer may take its time; but the next is asked besides, and
the first answer counts. So a broker that stands still, or a connection of which only this end is left, costs a question
no more than that; and who has answered is asked first the next time.

What must not be done twice is asked of one after the other, and goes on only where nothing was done (`ask_in_turn`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from magnetar._problems import is_passing
from magnetar.exceptions import MagnetarException
from magnetar_wire.clock import Clock

__all__ = ["PATIENCE_S", "AnyBroker"]

A = TypeVar("A")

PATIENCE_S: Final = 1.0
# Of so many brokers is told why they could not answer.
_NAMED: Final = 5


class AnyBroker:
    def __init__(self, addresses: Sequence[str], clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        # Whom to ask next comes first.
        self._addresses = list(addresses)
        self._clock = clock

    def knows(self, address: str) -> bool:
        return address in self._addresses

    async def ask(self, ask_at: Callable[[str], Coroutine[Any, Any, A]]) -> A:
        """The first answer. Raises what a broker says that is no trouble of the moment, and where all have one, that
        of each."""
        if len(self._addresses) == 1:
            return await ask_at(self._addresses[0])
        left = deque(self._addresses)
        asking: list[tuple[str, asyncio.Task[A]]] = []
        troubles: list[MagnetarException] = []
        try:
            while left or asking:
                if left:
                    address = left.popleft()
                    asking.append((address, asyncio.get_running_loop().create_task(ask_at(address))))
                await self._any_ended([task for _, task in asking], self._patience_s if left else None)
                for address, task in [one for one in asking if one[1].done()]:
                    try:
                        answer = task.result()
                    except MagnetarException as error:
                        if not is_passing(error):
                            raise
                        troubles.append(error)
                        asking.remove((address, task))
                        self._put_last(address)
                    else:
                        self._put_first(address)
                        return answer
        finally:
            await _cancelled([task for _, task in asking])
        raise _all_of(troubles)

    async def ask_in_turn(
        self, ask_at: Callable[[str], Coroutine[Any, Any, A]], nothing_done: Callable[[MagnetarException], bool]
    ) -> A:
        """The first answer. Raises the first error that is not known to mean that nothing was done; and where it means
        that of all, what each of them said."""
        troubles: list[MagnetarException] = []
        for address in list(self._addresses):
            try:
                answer = await ask_at(address)
            except MagnetarException as error:
                if is_passing(error):
                    self._put_last(address)
                if not nothing_done(error):
                    raise
                troubles.append(error)
            else:
                self._put_first(address)
                return answer
        raise _all_of(troubles)

    async def _any_ended(self, tasks: Sequence[asyncio.Task[Any]], patience_s: float | None) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        for task in tasks:
            task.add_done_callback(wake)
        timer = None if patience_s is None else self._clock.call_later(patience_s, wake)
        try:
            await ended
        finally:
            if timer is not None:
                timer.cancel()
            for task in tasks:
                task.remove_done_callback(wake)

    def _put_first(self, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.insert(0, address)

    def _put_last(self, address: str) -> None:
        self._addresses.remove(address)
        self._addresses.append(address)


def _all_of(troubles: Sequence[MagnetarException]) -> MagnetarException:
    """The last one, which says what was wrong with each broker."""
    last = troubles[-1]
    if len(troubles) == 1:
        return last
    error = type(last)("; ".join(dict.fromkeys(map(str, troubles[:_NAMED]))))
    error.__cause__ = last.__cause__
    return error


async def _cancelled(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Their answers are not wanted any more."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        task.cancelled() or task.exception()  # looked at, so that nobody complains
