"""A question that many ask and that may hang: put once at a time, and waited for no longer than a bound.

Whoever asks while it is under way waits for that same one. One that hangs is not put again, so that askers who come
every second don't pile up what hangs; they are told so at once, until it is answered or has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from magnetar_wire.clock import Clock

__all__ = ["SharedQuestion"]


class SharedQuestion:
    def __init__(self, ask: Callable[[], Coroutine[Any, Any, None]], bound_s: float, clock: Clock) -> None:
        self._ask = ask
        self._bound_s = bound_s
        self._clock = clock
        self._question: asyncio.Task[None] | None = None
        self._asked_at = 0.0

    async def problem(self, fresh_s: float = 0.0) -> str:
        """Why the answer is no; empty: it is yes. One that was put less than `fresh_s` ago is not put again."""
        question = self._question
        if question is None or (question.done() and not self._clock.monotonic() - self._asked_at < fresh_s):
            question = self._question = asyncio.get_running_loop().create_task(self._ask(), name="health")
            self._asked_at = self._clock.monotonic()
        left_s = self._asked_at + self._bound_s - self._clock.monotonic()
        await asyncio.wait([question], timeout=max(0.0, left_s))
        if not question.done():
            return f"has not answered for {self._clock.monotonic() - self._asked_at:.1f} s"
        error = None if question.cancelled() else question.exception()
        return "" if error is None else f"failed: {type(error).__name__}: {error}"

    async def close(self) -> None:
        if self._question is not None:
            self._question.cancel()
            await asyncio.wait([self._question])
