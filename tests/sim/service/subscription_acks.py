"""The acknowledgements that came to a subscription, and those of them that had a receipt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from magnetar_protos.broker_pb2 import Acknowledge

__all__ = ["Entry", "SubscriptionAcks", "WireAck"]

# Ledger and entry.
Entry = tuple[int, int]
_MOST_ENTRIES: Final = 10_000


@dataclass(slots=True, eq=False)
class WireAck:
    came: int
    # Whole entries, messages of others as bits, and all up to an entry and some messages of the next.
    whole: dict[Entry, None] = field(default_factory=dict)
    parts: dict[Entry, int] = field(default_factory=dict)
    up_to: Entry | None = None
    # Nobody had acknowledged all of it before.
    is_new: bool = False
    # When its receipt was given, and on which stream.
    done: int = 0
    stream: int = 0

    def __str__(self) -> str:
        if self.up_to is not None:
            return f"all up to {self.up_to}, {self.parts}"
        return f"{list(self.whole)}, {self.parts}"


class SubscriptionAcks:
    def __init__(self) -> None:
        self._came: dict[Entry, int] = {}
        self._came_up_to: Entry = (-1, -1)
        self._of_entry: dict[Entry, list[WireAck]] = {}
        self._up_to: list[WireAck] = []

    def came(self, request: Acknowledge, tick: int) -> WireAck:
        """One arrives at a broker."""
        ack = WireAck(tick)
        for run in request.entries:
            if request.cumulative:
                ack.up_to = run.ledger_id, run.last_entry_id
                continue
            for entry_id in range(run.first_entry_id, min(run.last_entry_id + 1, run.first_entry_id + _MOST_ENTRIES)):
                ack.whole[run.ledger_id, entry_id] = None
        for one in request.messages:
            entry = one.ledger_id, one.entry_id
            ack.parts[entry] = ack.parts.get(entry, 0) | int.from_bytes(one.messages, "little")
            if request.cumulative:
                ack.up_to = one.ledger_id, one.entry_id - 1
        ack.is_new = self._is_new(ack)
        for entry in ack.whole:
            self._came[entry] = -1
        for entry, bits in ack.parts.items():
            self._came[entry] = self._came.get(entry, 0) | bits
        if ack.up_to is not None:
            self._came_up_to = max(self._came_up_to, ack.up_to)
        return ack

    def _is_new(self, ack: WireAck) -> bool:
        if ack.up_to is not None and ack.up_to > self._came_up_to and self._came.get(ack.up_to) != -1:
            return True
        wanted = [(entry, -1) for entry in ack.whole] + list(ack.parts.items())
        return any(entry > self._came_up_to and bits & ~self._came.get(entry, 0) for entry, bits in wanted)

    def receipted(self, ack: WireAck, tick: int, stream: int) -> None:
        ack.done, ack.stream = tick, stream
        for entry in (*ack.whole, *ack.parts):
            self._of_entry.setdefault(entry, []).append(ack)
        if ack.up_to is not None:
            self._up_to.append(ack)

    def covering(self, entry: Entry, bits: int) -> Iterator[WireAck]:
        """Those with a receipt that say of this entry more than that these messages are acknowledged."""
        for ack in self._of_entry.get(entry, ()):
            if entry in ack.whole or ack.parts.get(entry, 0) & ~bits:
                yield ack
        for ack in self._up_to:
            if ack.up_to is not None and entry <= ack.up_to:
                yield ack
