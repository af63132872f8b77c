"""How long an operation may take, and how often it is retried.

An operation is what an application waits for and a broker answers: a lookup, the opening of a producer, a seek. An
attempt at it that fails with a retryable error (`is_retryable`) is made again after a pause. After
`operation_timeout_seconds`, the operation raises the error of its last attempt.

All operations of a client share an `EndpointCheck`: while no broker answers, it logs what is at their addresses, and
the final error contains that.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from magnetar._connections.connection_pool import ConnectionPool
from magnetar._connections.endpoint_check import EndpointCheck, is_unreachable
from magnetar._errors import is_retryable
from magnetar.exceptions import AlreadyClosed, MagnetarException, Timeout
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["CLOSE_TIMEOUT_S", "Backoff", "Operations"]

A = TypeVar("A")

# How long closing a producer or consumer waits for the broker's answer, if nothing of it is pending.
CLOSE_TIMEOUT_S: Final = 3.0
# The shortest time that a broker has to answer, also if the operation's timeout is nearly over.
LEAST_WAIT_S: Final = 0.1
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
# A producer or consumer that was open for this long is reopened at once. One that was closed sooner is reopened after
# a pause: a broker that opens and closes it at once would otherwise get requests, and all that is pending, as fast as
# client and broker can.
SETTLED_S: Final = 1.0


class Operations:
    def __init__(
        self,
        pool: ConnectionPool,
        endpoint_check: EndpointCheck,
        clock: Clock,
        randomness: Randomness,
        timeout_s: float,
    ) -> None:
        self.timeout_s = timeout_s
        self.clock = clock
        self.randomness = randomness
        self._pool = pool
        self._endpoint_check = endpoint_check

    def deadline(self) -> float:
        """Return when an operation that begins now times out, on the monotonic clock."""
        return self.clock.monotonic() + self.timeout_s

    def time_left(self, deadline: float, most_s: float = math.inf) -> float:
        """Return how long a broker has for an answer now: until the deadline, at most `most_s`, at least a moment."""
        return min(most_s, max(deadline - self.clock.monotonic(), LEAST_WAIT_S))

    async def retry(self, attempt: Callable[[], Awaitable[A]]) -> A:
        """Return what `attempt` returns. Repeat it after each retryable error, until the operation's timeout is over.

        If no broker could be reached, the error describes what listens at their addresses.
        """
        check = self._endpoint_check
        began, answers = self.clock.monotonic(), check.answers
        deadline = began + self.timeout_s
        backoff = Backoff(self.randomness)
        with check.operation():
            while True:
                await self._pool.wait_resumed()
                try:
                    result = await attempt()
                except MagnetarException as error:
                    check.failed(error)
                    pause_s = backoff.next()
                    if self._pool.closed and is_retryable(error):
                        raise AlreadyClosed("the client was closed during the operation") from error
                    now = self.clock.monotonic()
                    if not is_retryable(error):
                        raise
                    if now + pause_s >= deadline:
                        if is_unreachable(error) and check.answers == answers:
                            explained = await check.explain(error, now - began, deadline - now)
                            raise explained from error.__cause__
                        raise
                else:
                    check.answered()
                    return result
                await self.clock.sleep(pause_s)

    async def wait_for(
        self,
        answer: asyncio.Future[None],
        what: str,
        most_s: float = math.inf,
        why: Callable[[], str] = str,
        is_queued: Callable[[], bool] = bool,
    ) -> None:
        """Wait for a broker's answer on a stream, for the operation's timeout, or for `most_s` if that is less.

        There is no timeout while `is_queued`: the broker has answered that the request waits for its turn. Raises the
        answer's error, or Timeout with the text `what` ("the broker has not …") and, if known, `why`.
        """
        seconds = min(self.timeout_s, most_s)

        def on_timeout() -> None:
            if not answer.done() and not is_queued():
                reason = why()
                answer.set_exception(Timeout(f"{what} within {seconds:g} s" + (f": {reason}" if reason else "")))

        timer = self.clock.call_later(seconds, on_timeout)
        try:
            await answer
        finally:
            timer.cancel()


class Backoff:
    """The pauses between attempts: each twice as long as the one before, up to a maximum, and shortened at random, so
    that clients that wait for the same broker do not all return at once."""

    def __init__(
        self, randomness: Randomness, first_s: float = FIRST_PAUSE_S, longest_s: float = LONGEST_PAUSE_S
    ) -> None:
        self._randomness = randomness
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next(self) -> float:
        """Return the next pause in seconds: between half of its full length and all of it."""
        full = self._next_s
        self._next_s = min(full * 2, self._longest_s)
        return full * (0.5 + 0.5 * self._randomness.random())

    def after(self, lasted_s: float) -> float:
        """Return the pause after something that was open for `lasted_s` seconds: 0 if it had settled."""
        if lasted_s < SETTLED_S:
            return self.next()
        self.reset()
        return 0.0

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self._next_s = self._first_s
