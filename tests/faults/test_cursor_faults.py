"""Receipts for acknowledgements, while bookies, metadata answers and owners fail; and a million holes.

Each run of the topic acknowledges at random and requests receipts. An acknowledgement with a receipt must be there
whenever the cursor is reopened, by any owner; what nobody acknowledged must not. A seed chooses the moments, at any
await.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from contextlib import suppress

import pytest

from magnetar_broker.cursors.ack_state import AckState
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.cursor_record import encode_snapshot
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_metadata.errors import MetadataError
from magnetar_testing.metadata import Fault, MemoryStore
from magnetar_testing.randomness import SeededRandomness
from tests.unit.broker.cursor_scene import OPTIONS, CursorScene, at, running_cursor_scene
from tests.unit.broker.fake_log import FakeLogPositions

_log = logging.getLogger(__name__)
_ENTRIES = 300
# What is acknowledged of a batch counts as an entry of its own: (entry, message).
Done = int | tuple[int, int]


class CursorRuns:
    """What was acknowledged, and what of it had a receipt; by how often the cursor had been moved."""

    def __init__(self, scene: CursorScene, seed: int) -> None:
        self.scene = scene
        self.chance = SeededRandomness(seed)
        self.acknowledged: dict[int, set[Done]] = {0: set()}
        self.receipted: dict[int, set[Done]] = {0: set()}
        self.seeks = seed % 2 == 0
        self.tables: list[CursorTable] = []
        self.stores: list[MemoryStore] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.receipts = 0

    async def open(self) -> None:
        """Open the cursor again, while earlier runs go on. Where the cursor is moved, only one run is open at a time:
        otherwise the last move would be unknown.
        """
        if self.seeks and self.tables:
            await self._ended()
        client = await self.scene.client()
        store = client.ledgers.store
        assert isinstance(store, MemoryStore)
        try:
            table = await self.scene.open(client)
        except (BrokerError, MetadataError):
            return
        if [one.is_damaged for one in table.unopened_cursors()] == [False]:  # its bookies are away
            table.abandon()
            return
        self.tables.append(table)
        self.stores.append(store)
        self.check(table)

    async def open_surely(self) -> None:
        before = len(self.stores)
        while len(self.stores) == before:
            self.heal()
            await self.open()
            await self.scene.clock.sleep(1.0)

    async def _ended(self) -> None:
        self.tables.pop().abandon()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def check(self, table: CursorTable) -> None:
        cursor = table.get("s")
        assert cursor is not None, "a cursor that was created is missing"
        found = {one for one in range(_ENTRIES) if cursor.is_acknowledged(at(5, one))}
        some = {one: cursor.get_acknowledged_messages(at(5, one)) for one in range(_ENTRIES) if one not in found}
        assert cursor.moves >= max((moves for moves, done in self.receipted.items() if done), default=0)
        for done in self.receipted.get(cursor.moves, ()):
            if isinstance(done, int):
                assert done in found, f"entry {done} had a receipt"
            else:
                assert done[0] in found or some[done[0]] >> done[1] & 1, f"message {done} had a receipt"
        acknowledged = self.acknowledged.get(cursor.moves, set())
        assert all(one in acknowledged or {(one, 0), (one, 1), (one, 2)} <= acknowledged for one in found)
        assert all((one, bit) in acknowledged for one, bits in some.items() for bit in range(3) if bits >> bit & 1)

    async def step(self) -> None:
        """Do a step of a random run, most often of the last one."""
        table = self.tables[-1] if self.chance.below(4) else self.chance.choice(self.tables)
        cursor = table.get("s")
        assert cursor is not None
        draw = self.chance.below(20)
        acknowledged = self.acknowledged.setdefault(cursor.moves, set())
        if draw == 0 and self.seeks:
            entry_id = self.chance.below(_ENTRIES)
            moves = cursor.moves + 1
            self.acknowledged[moves] = set(range(entry_id + 1))
            self.tasks.append(asyncio.ensure_future(self._moved(cursor, at(5, entry_id), moves)))
            await asyncio.sleep(0)
            return
        if draw < 4:
            entry_id, bit = self.chance.below(_ENTRIES), self.chance.below(3)
            cursor.acknowledge((), [(at(5, entry_id), 1 << bit, 3)])
            acknowledged.add((entry_id, bit))
        elif draw == 4:
            entry_id = cursor.mark_delete.entry_id + self.chance.below(12)
            cursor.acknowledge_up_to(at(5, entry_id))
            acknowledged.update(range(entry_id + 1))
        else:
            first = self.chance.below(_ENTRIES)
            last = min(_ENTRIES - 1, first + self.chance.below(6))
            cursor.acknowledge([(5, first, last)])
            acknowledged.update(range(first, last + 1))
        if self.chance.below(2):
            self.tasks.append(asyncio.ensure_future(self._receipt(cursor, self._known(cursor), cursor.moves)))

    def _known(self, cursor: Cursor) -> set[Done]:
        known: set[Done] = set()
        for one in range(_ENTRIES):
            if cursor.is_acknowledged(at(5, one)):
                known.add(one)
            known.update((one, bit) for bit in range(3) if cursor.get_acknowledged_messages(at(5, one)) >> bit & 1)
        return known

    async def _receipt(self, cursor: Cursor, known: set[Done], moves: int) -> None:
        with suppress(BrokerError):
            await cursor.wait_until_saved()
            self.receipts += 1
            self.receipted.setdefault(moves, set()).update(known)

    async def _moved(self, cursor: Cursor, to: Position, moves: int) -> None:
        with suppress(BrokerError):
            await cursor.move_to(to)
            self.receipted.setdefault(moves, set()).update(range(to.entry_id + 1))

    def inject_fault(self) -> None:
        server, bookies = self.scene.cluster.server, list(self.scene.cluster.bookies.values())
        bookie, store = self.chance.choice(bookies), self.chance.choice(self.stores)
        match self.chance.below(8):
            case 0:
                bookie.failing = {"add"}
            case 1:
                bookie.hanging = {"add"}
            case 2 | 3:
                server.queue_faults(
                    store, self.chance.choice([Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST])
                )
            case 4:
                server.expire(store)
            case 5:
                self.tables.pop(self.chance.below(len(self.tables))).abandon() if len(self.tables) > 1 else None
            case _:
                self.heal()

    def heal(self) -> None:
        for bookie in self.scene.cluster.bookies.values():
            bookie.failing, bookie.hanging = set(), set()
        for store in self.stores:
            with suppress(MetadataError):
                self.scene.cluster.server.resume(store)


@pytest.mark.parametrize("seed", range(24))
async def test_persisted_acknowledgements_survive_bookie_and_metadata_faults(seed: int) -> None:
    """ACK-1, CHK-34, OWN-2, CHK-58: runs overlap, and each receipt's acknowledgement is known to the next run."""

    async with running_cursor_scene(bookies=5) as scene:
        scene.log = FakeLogPositions((5, _ENTRIES))
        scene.options = CursorSettings(
            **OPTIONS.model_dump() | {"managed_ledger_cursor_max_size_per_ledger_bytes": 400 if seed % 3 else 10_000}
        )
        runs = CursorRuns(scene, seed)
        first = await scene.open()
        await first.create("s", at(5, -1), {})
        first.abandon()
        await runs.open()
        for _ in range(150):
            if not runs.chance.below(25):
                await runs.open_surely() if runs.seeks else await runs.open()
            if not runs.chance.below(8):
                runs.inject_fault()
            await runs.step()
            if not runs.chance.below(10):
                await scene.clock.sleep(runs.chance.random() * 2)
            await scene.turns(runs.chance.below(12))
        while not all(task.done() for task in runs.tasks):
            runs.heal()  # once and again: what was ordered for a store's next requests still comes
            await scene.clock.sleep(1.0)
        await asyncio.gather(*runs.tasks)
        await runs.open_surely()
        assert runs.receipts > 10
        await runs.tables[-1].close()
        last = await scene.open()
        runs.check(last)
        node = await scene.node("s")
        assert node is not None
        named = {node.ledger_id, *node.deleting, *await scene.intents()}
        assert set(await scene.ledgers()) <= named, "a ledger that nobody knows of"


@pytest.mark.slow
async def test_million_acknowledgement_holes_are_recovered() -> None:
    """ACK-1, CHK-34: every second entry of two million, in bitmaps; also through the disk."""

    async with running_cursor_scene() as scene:
        scene.log = log = FakeLogPositions(*((10 + number, 50_000) for number in range(40)))
        table = await scene.open()
        cursor = await table.create("s", at(10, -1), {})
        began = time.perf_counter()
        for ledger_id in log.ledgers:
            cursor.acknowledge([(ledger_id, entry_id, entry_id) for entry_id in range(1, 50_000, 2)])
        acknowledged_s = time.perf_counter() - began
        await cursor.wait_until_saved()
        # The cursor's own state is private: another one that was acknowledged the same.
        state = AckState(log, at(10, -1), durable=True)
        for ledger_id in log.ledgers:
            state.acknowledge([(ledger_id, entry_id, entry_id) for entry_id in range(1, 50_000, 2)])
        held = sum(
            sys.getsizeof(entries)
            + sys.getsizeof(dict(entries.blocks()))
            + sum(sys.getsizeof(bits) for _, bits in entries.blocks())
            for entries in state.entries().values()
        )
        assert held < 600_000, f"{held} bytes for a million holes"
        began = time.perf_counter()
        snapshot = list(encode_snapshot(state))
        encoded_s = time.perf_counter() - began
        assert sum(map(len, snapshot)) < 300_000
        table.abandon()
        began = time.perf_counter()
        again = (await scene.open()).get("s")
        opened_s = time.perf_counter() - began
        _log.info(
            "a million holes: %d bytes in memory, %d on disk, %.1f ms to make, %.1f ms to encode, %.1f ms to open",
            held, sum(map(len, snapshot)), acknowledged_s * 1000, encoded_s * 1000, opened_s * 1000,
        )  # fmt: skip
        assert again is not None
        assert again.count_unacknowledged() == 1_000_000
        assert again.mark_delete == at(10, -1)
        for ledger_id in (10, 29, 49):
            assert [again.is_acknowledged(at(ledger_id, one)) for one in range(50_000)] == [False, True] * 25_000
        again.acknowledge([(10, 0, 0)])
        assert again.mark_delete == at(10, 1)


def test_numbers_that_nobody_has_seen_take_neither_time_nor_memory() -> None:
    """CHK-34: what a hostile client acknowledges is held back to what there is."""
    log = FakeLogPositions((5, 100))
    state = AckState(log, log.before_first, durable=True)
    far = 2**63 - 1
    state.acknowledge([(5, 50, far), (far, 0, far), (6, 0, far), (5, -far, -1), (5, 3, 2)])
    state.acknowledge(
        (), [(at(5, far), 1, 2), (at(5, 1), 2**4000, 3), (at(5, 2), 1, far), (at(5, 2), -1, 0), (at(far, 0), 1, 2)]
    )
    state.acknowledge_up_to(at(far, far))
    assert [one for one in range(100) if state.is_acknowledged(at(5, one))] == list(range(50, 100))
    assert not any(state.get_acknowledged_messages(at(5, one)) for one in range(100))
    log.append(10)
    assert not state.is_acknowledged(at(5, 100))
    state.acknowledge_up_to(at(5, far))
    assert state.mark_delete == log.last
