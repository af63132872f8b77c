"""Whether any broker answers: a warning while none does, and an error that says what is there instead.

A client goes on trying for the operation's time, 30 s by default, since brokers may be restarting. A user who wrote the
wrong address should not have to wait for that. So when operations have gone without any broker's answer for
`WARN_AFTER_S`, one warning is logged, with what a probe (_endpoint_probe.py) finds at the addresses; the next one only
after a broker has answered meanwhile. A broker that is merely slow is not warned of.

An operation that fails since no broker could be reached, and none has answered since it began, raises ConnectError with
what is found then (`ConnectError.found`). Operations do not take longer for it: a probe has the time that is left, and
`LEAST_PROBE_S` at least. If it takes longer, the error says what the last probe has found, if there was one.

Only a transport that reaches real addresses can describe them (`DescribesEndpoints`); one probe serves all operations
that ask at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, runtime_checkable

from magnetar._service_url import DEFAULT_PORT
from magnetar.exceptions import AlreadyClosed, ConnectError, MagnetarException, Timeout
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.transport import ForeignServer, NotReached, Transport

__all__ = ["LEAST_PROBE_S", "WARN_AFTER_S", "DescribesEndpoints", "Reachability", "is_unreachable"]

log = logging.getLogger("magnetar")

WARN_AFTER_S: Final = 1.0
LEAST_PROBE_S: Final = 0.3
_SHOWN_ADDRESSES: Final = 5


@runtime_checkable
class DescribesEndpoints(Protocol):
    def describe_endpoints(self, addresses: Sequence[str], *, failed: bool) -> Coroutine[Any, Any, str]:
        """Describe what listens there, in a sentence without its end. `failed`: a request has reached no broker.
        Otherwise it is empty if brokers may be there."""


def is_unreachable(error: MagnetarException) -> bool:
    """Whether a request reached no broker: no server at all, or one that is no broker."""
    return isinstance(error, ConnectError) and isinstance(error.__cause__, NotReached | ForeignServer)


class Reachability:
    def __init__(self, addresses: Sequence[str], clock: Clock, transport: Transport) -> None:
        self._addresses = tuple(addresses)
        self._clock = clock
        self._describer = transport if isinstance(transport, DescribesEndpoints) else None
        # How often a broker has answered.
        self.answers = 0
        # Since the last answer: a request has reached no broker; it was logged that none answers, or that need not be,
        # since a probe found what may be a slow broker.
        self._failed = False
        self._warned = False
        self._slow = False
        # What the last probe found.
        self._found = ""
        # Operations in progress.
        self._operations = 0
        self._timer: Timer | None = None
        self._probe: asyncio.Task[str] | None = None
        self._warning: asyncio.Task[None] | None = None

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Watch an operation that asks brokers until one of them answers."""
        self._operations += 1
        self._set_timer()
        try:
            yield
        finally:
            self._operations -= 1
            if not self._operations:
                self._stop_timer()

    def answered(self) -> None:
        """A broker has answered, if only by an error."""
        self.answers += 1
        self._stop_timer()
        if self._warned and not self._slow:
            log.info("a broker of %s answers again", self._shown_addresses())
        self._failed = self._warned = self._slow = False
        self._found = ""

    def failed(self, error: MagnetarException) -> None:
        """An attempt has ended with this error, and another one may follow."""
        if is_unreachable(error):
            self._failed = True
            if self._slow:
                self._slow = self._warned = False
        elif not isinstance(error, ConnectError | Timeout | AlreadyClosed):
            self.answered()
        self._set_timer()

    async def explain(self, error: MagnetarException, tried_s: float, left_s: float) -> MagnetarException:
        """Return the error of an operation that no broker has answered, with what is found at the addresses within the
        operation's time that is left."""
        found = await self._describe(max(left_s, LEAST_PROBE_S)) or self._found
        if not found or not isinstance(error, ConnectError) or error.found is not None:
            return error
        explained = ConnectError(
            f"no broker answers at {self._shown_addresses()}, tried for {tried_s:.3g} s: {found}. Is a broker running "
            "(`magnetar standalone`), and is this the address of its own protocol, whose port is "
            f"{DEFAULT_PORT} by default?"
        )
        explained.found = found
        explained.__cause__ = error.__cause__
        return explained

    def stop(self, cancel: Callable[[asyncio.Task[Any]], None]) -> None:
        """Nothing is asked any more, for now. `cancel` cancels a task, and waits for it later."""
        self._stop_timer()
        for task in (self._warning, self._probe):
            if task is not None:
                cancel(task)
        self._warning = self._probe = None

    def _set_timer(self) -> None:
        if self._operations and self._timer is None and not self._warned:
            self._timer = self._clock.call_later(WARN_AFTER_S, self._warn_soon)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _warn_soon(self) -> None:
        self._timer = None
        self._warned = True
        if self._describer is None:
            self._warn("")
        else:
            self._warning = asyncio.get_running_loop().create_task(self._describe_and_warn())

    async def _describe_and_warn(self) -> None:
        answers = self.answers
        found = await self._describe()
        if self.answers != answers:
            return
        if found and self._operations:
            self._warn(found)
        elif not found and not self._failed:
            self._slow = True
        else:
            self._warned = False

    def _warn(self, found: str) -> None:
        log.warning(
            "no broker has answered for %g s at %s%s; still trying",
            WARN_AFTER_S,
            self._shown_addresses(),
            f": {found}" if found else "",
        )

    async def _describe(self, limit_s: float = math.inf) -> str:
        """Probe the addresses. Empty if nobody can tell in this time, or the connections are closed meanwhile."""
        if self._describer is None:
            return ""
        probe = self._probe
        if probe is None or probe.done():
            work = self._describer.describe_endpoints(self._addresses, failed=self._failed)
            probe = self._probe = asyncio.get_running_loop().create_task(work)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(_: object = None) -> None:
            if not ended.done():
                ended.set_result(None)

        probe.add_done_callback(end)
        timer = None if limit_s == math.inf else self._clock.call_later(limit_s, end)
        try:
            await ended
        finally:
            probe.remove_done_callback(end)
            if timer is not None:
                timer.cancel()
        if not probe.done() or probe.cancelled() or probe.exception() is not None:
            return ""
        self._found = probe.result()
        return self._found

    def _shown_addresses(self) -> str:
        more = len(self._addresses) - _SHOWN_ADDRESSES
        return ", ".join(self._addresses[:_SHOWN_ADDRESSES]) + (f" and {more} more" if more > 0 else "")
