"""Whether anybody is at the other end of a connection.

Who has said nothing for an interval is asked, by PING, and cut off where nothing comes in the next one. Who has not
begun with CONNECT by the first look is cut off, whatever else it has sent. While a connection is not read, because the
broker has too much to do for it, its silence says nothing; because its client takes no answers, it lives as long as it
takes some.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from magnetar_broker.core.pulsar.replies import frame
from magnetar_broker.pulsar.options import PulsarOptions
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandPing

__all__ = ["LifeSigns", "Watched"]

_log = logging.getLogger(__name__)
_PING: Final = frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


class Watched(Protocol):
    """A connection."""

    address: str
    broken: bool
    # CONNECT has come.
    connected: bool

    @property
    def held(self) -> bool:
        """It is not read at the moment."""

    @property
    def behind(self) -> bool:
        """Its client takes too little of what it is sent."""

    @property
    def waiting_bytes(self) -> int:
        """What its client has not taken."""

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


class LifeSigns:
    __slots__ = ("_asked", "_heard", "_left_bytes", "_loop", "_options", "_timer", "_waiting", "_who")

    def __init__(self, who: Watched, options: PulsarOptions) -> None:
        self._who = who
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # Since the last look; what was left to be taken then; and whether a sign of life was asked for.
        self._heard = True
        self._left_bytes = 0
        self._asked = False
        # Those who want to know now.
        self._waiting: list[asyncio.Future[None]] = []

    def begin(self) -> None:
        self._timer = self._loop.call_later(self._options.keep_alive_interval_seconds, self._look)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tell()

    def heard(self) -> None:
        """Something has come."""
        self._heard = True
        if self._waiting:
            self._tell()

    def _look(self) -> None:
        who = self._who
        if not who.connected:
            self._cut_off("it has not said CONNECT")
            return
        left = who.waiting_bytes
        silent = (who.behind and left >= self._left_bytes) if who.held else not self._heard
        if silent and self._asked:
            self._cut_off("it gave no sign of life")
            return
        if silent and not who.held:
            who.write(_PING)
        self._asked, self._heard, self._left_bytes = silent, False, left
        self.begin()

    def _cut_off(self, why: str) -> None:
        _log.info("the connection of %s is closed: %s", self._who.address, why)
        self._who.abort()

    async def lives(self) -> bool:
        """Whether a sign of life comes now; where none does, the connection is closed."""
        who = self._who
        if who.broken:
            return False
        sign: asyncio.Future[None] = self._loop.create_future()
        if not self._waiting:
            who.write(_PING)
        self._waiting.append(sign)
        await asyncio.wait([sign], timeout=self._options.connection_liveness_check_timeout_millis / 1000)
        if not sign.done() and not who.held:
            self._cut_off("somebody else asks for what it has, and it is silent")
        return not who.broken

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for sign in waiting:
            if not sign.done():
                sign.set_result(None)
