"""The embedded store against the in-memory server, with sessions that come and go and reopened folders.

All sessions call the embedded store at once, so that transactions meet in one group or in two that follow each other;
the server gets the same calls one by one. For any grouping, answers and trees must be the same.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar_metadata.embedded import EmbeddedDatabase, open_embedded
from magnetar_metadata.embedded import store as store_module
from magnetar_metadata.embedded.rocks_table import new_batch, open_database
from magnetar_metadata.errors import InvalidChange, Refused
from magnetar_metadata.store import ABSENT, ANY, Change, Check, Delete, MetadataStore, Put
from magnetar_testing.metadata import MemoryServer
from magnetar_wire.clock import SystemClock

_SESSIONS = 3
_ROUNDS = 16
_OWNED = b"\x01"

# The session, and its request; None closes the session and opens another one instead.
Step = tuple[int, list[Change] | None]


def _change(chance: random.Random) -> Change:
    # Few names, so that changes meet.
    path = "/" + "/".join(chance.choice("ab") for _ in range(chance.choice([1, 1, 2, 3])))
    match chance.randrange(10):
        case 0 | 1 | 2:
            return Put(path, b"%d" % chance.randrange(100), chance.choice([ABSENT, ABSENT, ANY, 0, 1]))
        case 3 | 4 | 5:
            if chance.random() < 0.3:
                return Put(path, b"replaced", chance.choice([0, 0, 1]), ephemeral=True)
            return Put(path, b"ephemeral", ABSENT, ephemeral=True, sequential=chance.random() < 0.2)
        case 6:
            return Check(path, chance.choice([0, 1]))
        case _:
            return Delete(path, chance.choice([ANY, ANY, 0]))


def _steps(chance: random.Random) -> list[Step]:
    return [
        (
            chance.randrange(_SESSIONS),
            None if chance.random() < 0.12 else [_change(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))],
        )
        for _ in range(chance.randint(1, 10))
    ]


class _Side:
    """One of the two, with its open sessions."""

    def __init__(self, connect: Callable[[], MetadataStore]) -> None:
        self.connect = connect
        self.stores = [connect() for _ in range(_SESSIONS)]

    async def take(self, step: Step) -> Any:
        """Return its answer. The session is chosen, and the request made, before this waits for anything."""
        who, changes = step
        store = self.stores[who]
        if changes is None:
            self.stores[who] = self.connect()
            await store.close()
            return None
        try:
            return await store.transaction(changes)
        except Refused as refused:
            return type(refused), refused.path, refused.index
        except InvalidChange:
            return InvalidChange

    async def tree(self, path: str = "/") -> list[tuple[Any, ...]]:
        """All nodes; an ephemeral one with the index of its session, as the ids of the two sides differ."""
        owners = {store.session.id: number for number, store in enumerate(self.stores)}
        found: list[tuple[Any, ...]] = []
        for name in await self.stores[0].children(path):
            child = f"/{name}" if path == "/" else f"{path}/{name}"
            node = await self.stores[0].get(child)
            assert node is not None, f"{child} is a child and not there"
            owner = owners[node.stat.ephemeral_owner] if node.stat.ephemeral_owner else None
            found.append((child, node.value, node.stat.version, owner))
            found += await self.tree(child)
        return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The databases of RocksDB that stores opened, oldest first."""
    databases: list[Any] = []

    def open_and_keep(folder: Path, acknowledged: int) -> Any:
        databases.append(open_database(folder, acknowledged))
        return databases[-1]

    monkeypatch.setattr(store_module, "open_database", open_and_keep)
    return databases


def _copy_as_killed(folder: Path, to: Path) -> Path:
    while True:
        try:
            return Path(shutil.copytree(folder, to))
        except shutil.Error:  # a compaction deleted files between listing and copying: the next copy is whole
            shutil.rmtree(to)


@pytest.mark.parametrize("seed", range(24))
async def test_embedded_store_behaves_like_the_memory_server(tmp_path: Path, opened: list[Any], seed: int) -> None:
    chance = random.Random(seed)
    server = MemoryServer(SystemClock())
    folder = tmp_path / "0"
    database = await EmbeddedDatabase.open(folder, SystemClock())
    embedded, memory = _Side(database.connect), _Side(server.connect)
    for number in range(_ROUNDS):
        steps = _steps(chance)
        pending = []
        for step in steps:
            pending.append(asyncio.create_task(embedded.take(step)))
            if chance.random() < 0.2:
                # The group that gathers is started.
                await asyncio.sleep(0)
        answers = await asyncio.gather(*pending)
        assert answers == [await memory.take(step) for step in steps], (number, steps)
        tree = await embedded.tree()
        assert tree == await memory.tree(), (number, steps)
        assert len(_index(opened[-1])) == sum(owner is not None for *_, owner in tree)
        if chance.random() < 0.15:
            killed = chance.random() < 0.5
            if killed:
                # What a process that is killed leaves: the folder with all its ephemeral nodes.
                folder = _copy_as_killed(folder, tmp_path / str(number + 1))
            await database.close()
            for store in memory.stores:
                await store.close()
            database = await EmbeddedDatabase.open(folder, SystemClock())
            embedded, memory = _Side(database.connect), _Side(server.connect)
            assert await embedded.tree() == await memory.tree(), (number, "killed" if killed else "closed")
    await database.close()


@pytest.mark.parametrize("ephemeral", [True, False])
async def test_a_node_made_again_in_the_same_group_outlives_its_first_session(
    tmp_path: Path, opened: list[Any], ephemeral: bool
) -> None:
    database = await EmbeddedDatabase.open(tmp_path, SystemClock())
    first, second = database.connect(), database.connect()
    await first.put("/x", b"first", ABSENT, ephemeral=True)
    await asyncio.gather(first.delete("/x", 0), second.put("/x", b"second", ABSENT, ephemeral=ephemeral))
    assert len(_index(opened[-1])) == ephemeral
    await first.close()
    node = await second.get("/x")
    assert node is not None
    assert node.value == b"second"
    await database.close()
    async with await open_embedded(tmp_path, SystemClock()) as store:
        assert (await store.exists("/x") is None) == ephemeral


@pytest.mark.parametrize("closing", [True, False])
async def test_an_index_that_a_node_disagrees_with_is_not_believed(
    tmp_path: Path, opened: list[Any], closing: bool
) -> None:
    """Neither when the session is closed nor when the folder is opened; then the fault is removed."""
    database = await EmbeddedDatabase.open(tmp_path, SystemClock())
    first, second = database.connect(), database.connect()
    await second.put("/persistent/child", b"", ABSENT)
    batch = new_batch()
    for path in ("/persistent", "/ephemeral"):
        batch.put(_OWNED + first.session.id.to_bytes(8, "big") + path.encode(), b"")
    opened[-1].write(batch)
    if closing:
        await first.close()
        assert await second.children("/") == ["persistent"]
    await database.close()
    database = await EmbeddedDatabase.open(tmp_path, SystemClock())
    assert await database.connect().children("/persistent") == ["child"]
    assert _index(opened[-1]) == []
    await database.close()


def _index(database: Any) -> list[bytes]:
    """Return the keys of the index of ephemeral nodes, as `rocks_table` describes them."""
    return [key for key in database.keys(from_key=_OWNED) if key.startswith(_OWNED)]
