"""Expires messages of which some chunks have not come in time, by a timer."""

from __future__ import annotations

from collections.abc import Callable

from magnetar._prefetching.chunk_assembly import ChunkAssembler
from magnetar_wire.clock import Clock, Timer

__all__ = ["ChunkExpiry"]


class ChunkExpiry:
    __slots__ = ("_assembler", "_clock", "_is_stopped", "_may_come", "_on_expired", "_timer")

    def __init__(
        self, assembler: ChunkAssembler, clock: Clock, may_come: Callable[[], bool], on_expired: Callable[[], object]
    ) -> None:
        """`may_come`: whether missing chunks could come at present. While they can't, no message expires."""
        self._assembler = assembler
        self._clock = clock
        self._may_come = may_come
        self._on_expired = on_expired
        self._timer: Timer | None = None
        self._is_stopped = False

    def watch(self) -> None:
        """Set the timer, unless it is set or no message is incomplete."""
        if self._timer is None and not self._is_stopped and (due := self._assembler.next_due) is not None:
            self._timer = self._clock.call_later(due - self._clock.monotonic(), self._expire)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        if self._may_come():
            self._assembler.expire(now)
            self._on_expired()
        else:
            self._assembler.postpone(now)
        self.watch()
