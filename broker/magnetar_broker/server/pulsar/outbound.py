"""What goes to one client: gathered within a turn of the loop, so that a thousand receipts are one write.

**Room.** What is dealt out to consumers is bounded before it is written: `room_for` says how much more may come, of
this connection and of all (server/outbox_budget.py). A client that takes nothing costs what that says, and no other
one waits for it. Answers are not bounded here: a connection whose client does not take them is not read on (`behind`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from magnetar_broker.server.pulsar.listener_context import Door
from magnetar_broker.server.pulsar.options import HIGH_WATER_BYTES

__all__ = ["Outgoing", "Starving"]

# Pieces of this size on average are written one by one, and smaller ones put together first.
_LARGE_PIECE_BYTES: Final = 8_192


class Starving(Protocol):
    """Who found no room."""

    def room_again(self) -> None: ...


class Outgoing:
    __slots__ = (
        "_broken",
        "_counted_bytes",
        "_flushed_bytes",
        "_flushing",
        "_loop",
        "_most_bytes",
        "_most_waiting_bytes",
        "_out",
        "_out_bytes",
        "_outboxes",
        "_reserved_bytes",
        "_starved",
        "_taken",
        "_transport",
    )

    def __init__(self, door: Door, taken: Callable[[], object]) -> None:
        """`taken` is called whenever the client may have taken something."""
        self._outboxes = door.outboxes
        self._most_bytes = door.options.max_queued_bytes_per_stream
        self._most_waiting_bytes = self._most_bytes + door.options.max_waiting_answers_bytes
        self._loop = asyncio.get_running_loop()
        self._taken = taken
        self._transport: asyncio.Transport | None = None
        self._broken = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        # All that the transport was ever given.
        self._flushed_bytes = 0
        # Of what is read for consumers, and what the budget of all connections knows of this one.
        self._reserved_bytes = 0
        self._counted_bytes = 0
        # In the order in which they found no room.
        self._starved: dict[Starving, None] = {}

    def begin(self, transport: asyncio.Transport) -> None:
        """Whoever finds no room is told of some only where more had waited than the upper limit: so that is less than
        what may wait, and than what each connection may always have (outbox_budget.py)."""
        self._transport = transport
        high = min(HIGH_WATER_BYTES, self._most_bytes) - 1
        transport.set_write_buffer_limits(high=high, low=high // 4)

    def end(self) -> None:
        """Nobody has room any more."""
        self._broken = True
        self._starved.clear()

    def gone(self) -> None:
        """The connection is."""
        self._out, self._out_bytes = [], 0
        self._count(0)

    def write(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def write_all(self, parts: Sequence[bytes], size_bytes: int) -> None:
        """The same for many, of which the caller knows the size."""
        self._out += parts
        self._out_bytes += size_bytes
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        self._flushing = False
        out, self._out = self._out, []
        size, self._out_bytes = self._out_bytes, 0
        transport = self._transport
        if not out or transport is None or transport.is_closing():
            return
        self._flushed_bytes += size
        if size > _LARGE_PIECE_BYTES * len(out):
            transport.writelines(out)
        else:
            transport.write(b"".join(out))
        self.taken()

    def taken(self) -> None:
        waiting = self.waiting_bytes
        if waiting or self._reserved_bytes or self._counted_bytes:
            self._count(waiting)
        if self._starved:
            self._feed_starved()
        self._taken()

    @property
    def waiting_bytes(self) -> int:
        """Written, and not taken by the client's side yet."""
        return self._out_bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def taken_bytes(self) -> int:
        """Of all that was ever written, what the client's side has taken."""
        return self._flushed_bytes - (0 if self._transport is None else self._transport.get_write_buffer_size())

    @property
    def behind(self) -> bool:
        """More waits than the client may leave: it is told when it has taken some."""
        waiting = self._out_bytes + (0 if self._transport is None else self._transport.get_write_buffer_size())
        return waiting > 0 and self._outboxes.room_bytes(self._most_waiting_bytes, waiting) < 0

    def _count(self, size_bytes: int) -> None:
        size_bytes += 0 if self._broken else self._reserved_bytes
        self._outboxes.queued_bytes += size_bytes - self._counted_bytes
        self._counted_bytes = size_bytes

    # For consumers.

    def room_for(self, who: Starving) -> int:
        if self._broken:
            return 0
        # As `_room_bytes`, which is asked several times for each message.
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        room = self._outboxes.room_bytes(self._most_bytes, waiting + self._out_bytes + self._reserved_bytes)
        if room <= 0:
            self._starved[who] = None
        return room

    @property
    def _room_bytes(self) -> int:
        return self._outboxes.room_bytes(self._most_bytes, self.waiting_bytes + self._reserved_bytes)

    def forget(self, who: Starving) -> None:
        self._starved.pop(who, None)

    def reserve(self, size_bytes: int) -> None:
        self._reserved_bytes += size_bytes
        if size_bytes < 0 and self._starved:
            self._loop.call_soon(self.taken)

    def _feed_starved(self) -> None:
        """As many as there is room for: those who find none are starved again, behind the others."""
        for _ in range(len(self._starved)):
            if self._broken or not self._starved or self._room_bytes <= 0:
                return
            who = next(iter(self._starved))
            del self._starved[who]
            who.room_again()
