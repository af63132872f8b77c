"""The event loop of all in-process brokers, on a daemon thread of its own.

The loop is created with the first broker and is never closed. gRPC has one queue of events for all loops of a process:
an event for a closed loop raises an error and delays the events behind it, which may be another broker's or client's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

__all__ = ["run_on_broker_loop"]

T = TypeVar("T")

_LOCK: Final = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_on_broker_loop(work: Coroutine[Any, Any, T], timeout_seconds: float) -> T:
    """Run the coroutine on the brokers' loop and block until it is done. Raise `TimeoutError` if it takes too long."""
    running: Future[T] = asyncio.run_coroutine_threadsafe(work, _broker_loop())
    try:
        return running.result(timeout_seconds)
    except (TimeoutError, CancelledError, KeyboardInterrupt):
        running.cancel()
        raise


def _broker_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _LOCK:
        if _loop is None:
            created: Future[asyncio.AbstractEventLoop] = Future()
            threading.Thread(target=_run_loop, args=(created,), name="magnetar-testing", daemon=True).start()
            _loop = created.result()
        return _loop


def _run_loop(created: Future[asyncio.AbstractEventLoop]) -> None:
    from magnetar_wire.process.event_loop import new_event_loop

    try:
        loop = new_event_loop()
    except BaseException as error:
        created.set_exception(error)
        raise
    created.set_result(loop)
    loop.run_forever()
