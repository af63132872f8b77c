"""Cursors and cursor tables that store nothing.

A save takes one turn of the event loop, or lasts until `gate` is set, and fails with `fails` if that is set.
All cursors are open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor import SaveDone, TransientCursor
from magnetar_broker.cursors.cursor_opener import UnopenedCursor
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from tests.unit.broker.fake_log import FakeLog

__all__ = ["FakeCursor", "FakeCursorTable"]


class FakeCursor(TransientCursor):
    """A cursor with the real rules that is never stored."""

    def __init__(
        self, log: FakeLog, name: str, is_durable: bool, mark_delete: Position, properties: Mapping[str, str]
    ) -> None:
        self.log = log
        self.state = AckState(log, mark_delete)
        super().__init__(name, self.state, properties)
        self.is_durable = is_durable
        self.gate: asyncio.Event | None = None
        self.fails: BrokerError | None = None
        self.stored_unused_ms = 0
        self.saves = 0
        self._waiting: list[SaveDone] = []
        self._saver: asyncio.Task[None] | None = None

    @property
    def acknowledged_entries(self) -> set[Position]:
        return {position for position in self.log.entries if self.is_acknowledged(position)}

    @property
    def partial_batches(self) -> dict[Position, int]:
        return {position: bits for position, bits, _ in self.state.batches()}

    @property
    def unused_ms(self) -> int:
        return self.stored_unused_ms

    def call_when_saved(self, done: SaveDone) -> None:
        self._waiting.append(done)
        if self._saver is None:
            self._saver = asyncio.get_running_loop().create_task(self._save())

    async def _save(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            self.saves += 1
            if self.gate is not None:
                await self.gate.wait()
            else:
                await asyncio.sleep(0)
            for done in group:
                done(self.fails)
        self._saver = None

    async def move_to(self, position: Position) -> None:
        await self.wait_until_saved()
        await super().move_to(position)


class FakeCursorTable(CursorTable):
    def __init__(self, log: FakeLog) -> None:
        self.on_lost: Callable[[TopicUnloaded], object] = lambda error: None
        self.log = log
        self.cursors: dict[str, FakeCursor] = {}
        self.created = 0
        self.gate: asyncio.Event | None = None
        self.fails: BrokerError | None = None
        # Number of calls of `set_unused`, and of `drop_trimmed_ledgers`.
        self.used_writes = 0
        self.trimmed = 0
        self.closed = self.abandoned = False
        # `flush` waits for it.
        self.settled = asyncio.Event()
        self.settled.set()
        # `close` hangs, and raises this when it is cancelled.
        self.fails_when_cancelled: Exception | None = None

    def get(self, name: str) -> FakeCursor | None:
        return self.cursors.get(name)

    def get_internal(self, name: str) -> None:
        return None

    def has_internal(self, name: str) -> bool:
        return False

    def durable_cursors(self) -> Sequence[FakeCursor]:
        return list(self.cursors.values())

    def names(self) -> list[str]:
        return list(self.cursors)

    def unopened_cursors(self) -> Sequence[UnopenedCursor]:
        return []

    async def wait_until_open(self, name: str, *, wait_again: bool = True) -> None:
        """All cursors are open."""

    async def replace(self, name: str, mark_delete: Position) -> FakeCursor:
        raise AssertionError(f"{name} is open")

    async def _wait(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails

    def check_capacity(self, transient: int = 0) -> None:
        pass

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> FakeCursor:
        await self._wait()
        if name in self.cursors:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is {name}")
        self.created += 1
        self.cursors[name] = FakeCursor(self.log, name, True, mark_delete, dict(properties))
        return self.cursors[name]

    def create_transient(self, name: str, mark_delete: Position) -> FakeCursor:
        return FakeCursor(self.log, name, False, mark_delete, {})

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        await self._wait()
        self.cursors[name].properties = dict(properties)

    async def set_unused(self, name: str, unused_ms: int) -> None:
        await self._wait()
        self.cursors[name].stored_unused_ms = unused_ms
        self.used_writes += 1

    async def delete(self, name: str) -> None:
        await self._wait()
        del self.cursors[name]

    def find_slowest_position(self) -> Position | None:
        return min((cursor.saved_mark_delete for cursor in self.cursors.values()), default=None)

    def tick(self, now: float) -> None:
        """No cursor has a ledger."""

    def drop_trimmed_ledgers(self) -> None:
        self.trimmed += 1

    async def flush(self) -> None:
        await self.settled.wait()

    async def close(self) -> None:
        self.closed = True
        if self.fails_when_cancelled is not None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise self.fails_when_cancelled from None

    def abandon(self) -> None:
        self.abandoned = True
