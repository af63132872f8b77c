"""One thread for the rules on large definitions, which the hosts of clients use in turn.

Such a rule takes up to some seconds. With a queue for all, a client with many large schemas would use up the time of
others. So each host has a queue, and the thread takes the first rule of each in turn. A host waits at most for one rule
of each other host that has any. Ports don't count: a client can have many connections. Clients behind the same
translation of addresses, or the same proxy, are one host, and share its turns.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["LargeWork"]

T = TypeVar("T")

_MAX_WAITING_PER_HOST: Final = 64


class LargeWork:
    def __init__(self, max_waiting_per_host: int = _MAX_WAITING_PER_HOST) -> None:
        self._max_waiting_per_host = max_waiting_per_host
        self._thread = ThreadPoolExecutor(1, "schemas")
        # Those who wait for the thread, by host. The host whose turn is next is the first one; none has an empty queue.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        # Lets the rule that is being applied end soon. None: the thread is free.
        self._cancel_running: Callable[[], None] | None = None
        self._is_closed = False

    async def run(self, host: str, rule: Callable[[], T], cancel: Callable[[], None]) -> T:
        """Apply a rule in the thread when it is the turn of the host.

        `cancel` lets the rule end soon, with an error; it is called when the caller of this is cancelled. Raises what
        the rule raises, and SERVICE_NOT_READY.
        """
        await self._wait_for_turn(host)
        if self._is_closed:
            raise _closed()
        self._cancel_running = cancel
        running = asyncio.wrap_future(self._thread.submit(rule))
        running.add_done_callback(self._finish)
        try:
            await asyncio.wait([running])  # which does not cancel it: the thread is free when it has ended
        except asyncio.CancelledError:
            cancel()
            raise
        return running.result()

    async def _wait_for_turn(self, host: str) -> None:
        """Return when the thread is free, and this caller must use it."""
        waiting = self._waiting.get(host, deque())
        if self._is_closed:
            raise _closed()
        if len(waiting) >= self._max_waiting_per_host:
            raise BrokerError(
                ErrorCode.SERVICE_NOT_READY,
                f"{len(waiting)} large schemas of the host {host!r:.100} wait to be checked, the maximum: retry",
            )
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        self._waiting[host] = waiting
        self._give_turn()
        try:
            await turn
        except asyncio.CancelledError:
            if turn in waiting:
                self._leave(host, turn)
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                self._free()
            raise

    def _leave(self, host: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting[host]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[host]

    def _give_turn(self) -> None:
        """Let the next one use the thread, if it is free."""
        while self._cancel_running is None and self._waiting:
            host, waiting = next(iter(self._waiting.items()))
            turn = waiting[0]
            self._leave(host, turn)
            if waiting:
                self._waiting.move_to_end(host)
            if not turn.done():  # else its caller was cancelled a moment ago
                self._cancel_running = _nothing
                turn.set_result(None)

    def _finish(self, running: asyncio.Future[T]) -> None:
        if not running.cancelled():
            running.exception()  # retrieved, in case the caller was cancelled
        self._free()

    def _free(self) -> None:
        self._cancel_running = None
        self._give_turn()

    def close(self) -> None:
        """Refuse those that wait, and let the rule that is being applied end soon."""
        self._is_closed = True
        queues, self._waiting = list(self._waiting.values()), OrderedDict()
        for turn in (turn for waiting in queues for turn in waiting):
            if not turn.done():
                turn.set_exception(_closed())
        if self._cancel_running is not None:
            self._cancel_running()
        self._thread.shutdown(wait=False)


def _closed() -> BrokerError:
    return BrokerError(ErrorCode.SERVICE_NOT_READY, "the broker is shutting down: retry at another one")


def _nothing() -> None: ...
