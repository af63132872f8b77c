"""Whether anybody is at the other end of a connection.

Who has said nothing for an interval is asked, by PING, and cut off where nothing comes in the next one. Who has not
begun with CONNECT by the first look is cut off, whatever else it has sent. Who takes what waits for it is alive, too:
while a long message is on its way to a slow client, there is nothing for it to say. Only what waited in this process
counts, since the machine's own buffer takes a while whoever is at the other end; where something waits, that was full.

While a connection is not read, because the broker has too much to do for it, its silence says nothing; because its
client takes no answers, it lives as long as it takes some. It is asked all the same: what is written and not
acknowledged by the other machine in time has this one close the connection (listener.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from magnetar_broker.server.pulsar.options import PulsarOptions
from magnetar_broker.server.pulsar.replies import frame
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

    @property
    def taken_bytes(self) -> int:
        """What it has, ever."""

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


class LifeSigns:
    __slots__ = ("_asked", "_loop", "_options", "_stood_at", "_timer", "_who", "asked_now", "heard")

    def __init__(self, who: Watched, options: PulsarOptions) -> None:
        self._who = who
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # Something has come since the last look: whoever reads says so; how much was taken then; and whether a sign of
        # life was asked for.
        self.heard = True
        self._stood_at: int | None = None
        self._asked = False
        # Those who want to know now: `tell` is to be called when something comes.
        self.asked_now: list[asyncio.Future[None]] = []

    def begin(self) -> None:
        self._timer = self._loop.call_later(self._options.keep_alive_interval_seconds, self._look)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.tell()

    def _look(self) -> None:
        who = self._who
        if not who.connected:
            self._cut_off("it has not said CONNECT")
            return
        silent = (who.behind if who.held else not self.heard) and not self._took_since(self._stood_at)
        if silent and self._asked:
            self._cut_off("it gave no sign of life")
            return
        self._asked, self.heard, self._stood_at = silent, False, self._stands_at()
        if silent or who.held:
            who.write(_PING)
        self.begin()

    def _stands_at(self) -> int | None:
        """How much is taken, where more waits."""
        return self._who.taken_bytes if self._who.waiting_bytes else None

    def _took_since(self, stood_at: int | None) -> bool:
        return stood_at is not None and self._who.taken_bytes > stood_at

    def _cut_off(self, why: str) -> None:
        _log.info("the connection of %s is closed: %s", self._who.address, why)
        self._who.abort()

    async def lives(self) -> bool:
        """Whether a sign of life comes now; where none does, the connection is closed."""
        who = self._who
        if who.broken:
            return False
        stood_at = self._stands_at()
        sign: asyncio.Future[None] = self._loop.create_future()
        if not self.asked_now:
            who.write(_PING)
        self.asked_now.append(sign)
        await asyncio.wait([sign], timeout=self._options.connection_liveness_check_timeout_millis / 1000)
        if not sign.done() and not who.held and not self._took_since(stood_at):
            self._cut_off("somebody else asks for what it has, and it is silent")
        return not who.broken

    def tell(self) -> None:
        waiting, self.asked_now = self.asked_now, []
        for sign in waiting:
            if not sign.done():
                sign.set_result(None)
