"""An administrator's operations, recorded in the history. Their result is open: no operation is sure to succeed during
faults.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from magnetar.admin import AsyncAdmin
from magnetar.exceptions import (
    ConnectError,
    Interrupted,
    MagnetarException,
    NotConnected,
    ReadError,
    Timeout,
    UnknownError,
)
from tests.faults.checker.recorder import Recorder
from tests.faults.torture.system import System

__all__ = ["administer", "say_act"]

_TIMEOUT_S: Final = 10
_RESULT_UNKNOWN: Final = (ConnectError, Interrupted, NotConnected, ReadError, Timeout, UnknownError)


async def administer(system: System, act: str, target: str, do: Callable[[AsyncAdmin], Awaitable[object]]) -> None:
    """Asks brokers, not by way of proxies."""
    begun = time.monotonic()
    try:
        async with AsyncAdmin(system.direct_url, operation_timeout_seconds=_TIMEOUT_S) as admin:
            await do(admin)
    except MagnetarException as error:
        result = "unknown" if isinstance(error, _RESULT_UNKNOWN) else "refused"
        say_act(system.recorder, act, target, begun, result, f"{type(error).__name__}: {error}")
    else:
        say_act(system.recorder, act, target, begun)


def say_act(recorder: Recorder, act: str, target: str, begun: float, result: str = "done", why: str = "") -> None:
    recorder.say("act", begun=begun, act=act, target=target, result=result, why=why)
