"""A cursor that nothing is kept of; and what it has in common with those that are durable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.managed_ledger.interface import EntriesOf, MessagesOf
from magnetar_broker.managed_ledger.position import Position

__all__ = ["BaseCursor", "TransientCursor"]


class BaseCursor:
    """All that needs no disk."""

    __slots__ = ("__weakref__", "_state", "name", "properties", "waiting_for")

    durable = False

    def __init__(self, name: str, state: AckState, properties: Mapping[str, str]) -> None:
        self.name = name
        self.properties = properties
        self.waiting_for = ""
        self._state = state

    @property
    def mark_delete(self) -> Position:
        return self._state.mark_delete

    @property
    def has_holes(self) -> bool:
        return self._state.has_holes

    @property
    def moves(self) -> int:
        return self._state.moves

    @property
    def take_overs(self) -> int:
        return self._state.take_overs

    def taken_over(self) -> None:
        self._state.take_overs += 1

    def acknowledged(self, position: Position) -> bool:
        return self._state.acknowledged(position)

    def acknowledged_messages(self, position: Position) -> int:
        return self._state.acknowledged_messages(position)

    def first_open_after(self, position: Position) -> Position:
        return self._state.first_open_after(position)

    def open_entries(self) -> int:
        return self._state.open_entries()

    def acknowledge(self, entries: Iterable[EntriesOf], messages: Sequence[MessagesOf] = ()) -> list[Position]:
        before = self._state.changes
        done = self._state.acknowledge(entries, messages)
        if self._state.changes != before:
            self._changed()
        return done

    def acknowledge_up_to(self, position: Position, messages: int = 0, batch_size: int = 0) -> None:
        before = self._state.changes
        self._state.acknowledge_up_to(position, messages, batch_size)
        if self._state.changes != before:
            self._changed()

    def log_was_trimmed(self) -> None:
        before = self._state.changes
        self._state.log_was_trimmed()
        if self._state.changes != before:
            self._changed()

    def _changed(self) -> None:
        """There is more to save than before."""


class TransientCursor(BaseCursor):
    """Gone with whoever holds it."""

    __slots__ = ()

    @property
    def saved_mark_delete(self) -> Position:
        return self._state.mark_delete

    async def saved(self) -> None:
        """At once."""

    async def move_to(self, position: Position) -> None:
        self._state.move_to(position)
