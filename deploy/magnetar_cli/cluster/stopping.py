"""Ending parts: asked first, so that they drain; and after a bound as a crash would end them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_cli.cluster.errors import ClusterError
from magnetar_cli.cluster.part import Part
from magnetar_cli.cluster.process import send, wait_ended

__all__ = ["kill", "stop"]

# A process that is killed ends when the kernel has its hands free: not while a disk does not answer.
_KILLED_S: Final = 30.0


def kill(parts: Sequence[Part]) -> list[Part]:
    """Kill -9, and waits for the end; returns those that ran. Raises `ClusterError` if one does not end."""
    hit = [part for part in parts if part.place.process is not None and send(part.place.process, signal.SIGKILL)]
    for part in hit:
        assert part.place.process is not None
        if not wait_ended(part.place.process, _KILLED_S):
            raise ClusterError(f"{part.name}, process {part.place.process.pid}, was killed and has not ended")
    return hit


def stop(parts: Sequence[Part], timeout_s: float, say: Callable[[str], None]) -> None:
    """SIGTERM to all at once; those that were paused go on first, or would never hear it."""
    asked = []
    for part in parts:
        process = part.place.process
        if process is not None and send(process, signal.SIGTERM):
            send(process, signal.SIGCONT)
            asked.append(part)
    deadline = time.monotonic() + timeout_s
    for part in asked:
        assert part.place.process is not None
        if not wait_ended(part.place.process, max(deadline - time.monotonic(), 0.0)):
            say(f"{part.name} has not ended within {timeout_s:g} s: it is killed")
            kill([part])
