"""The contract of metadata stores. Each store's test module subclasses `MetadataStoreContract` and gives it a space.

A test takes the fixture `space`: a `Space`, which is an empty tree of its own, and opens as many sessions as it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, Self

import pytest

from magnetar_metadata.compare_and_set import DELETE, LEAVE, change, read
from magnetar_metadata.errors import (
    BadVersion,
    Closed,
    ForeignValue,
    InvalidChange,
    InvalidPath,
    MetadataError,
    NoChildrenAllowed,
    NodeExists,
    NoNode,
    NotEmpty,
    OutcomeUnknown,
    Refused,
    SessionLost,
    Unavailable,
    ValueTooLarge,
)
from magnetar_metadata.store import (
    ABSENT,
    ANY,
    MAX_CHANGES,
    MAX_PATH_BYTES,
    MAX_TRANSACTION_BYTES,
    MAX_VALUE_BYTES,
    MAX_VERSION,
    Change,
    ChangeResult,
    Check,
    Delete,
    MetadataStore,
    Node,
    Put,
    SessionState,
    Stat,
    Watch,
)
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from tests.running import until, within

ROOTS = ("/policies", "/bundles/of")


class Space(ABC):
    """A tree of its own. Leaving it closes its sessions."""

    def __init__(self) -> None:
        self._opened: list[MetadataStore] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> MetadataStore:
        """Another session; closed with the space."""
        store = await self._connect()
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()

    @abstractmethod
    async def _connect(self) -> MetadataStore: ...

    @abstractmethod
    async def lose_session(self, store: MetadataStore) -> None:
        """Has the session lost for real, not closed by its owner."""

    async def break_connection(self, store: MetadataStore) -> None:
        """Break the connection and have it made again; the session stays."""
        pytest.skip("this store has no connection that could break")


class MetadataStoreContract:
    """The tests. A subclass defines the async fixture `space`."""

    # Nodes and versions

    async def test_a_node_is_made_changed_and_deleted_by_version(self, space: Space) -> None:
        store = await space.connect()
        assert await store.get("/a") is None
        assert await store.exists("/a") is None
        assert await store.put("/a", b"one", ABSENT) == ChangeResult("/a", 0)
        assert await store.get("/a") == Node(b"one", Stat(0))
        assert await store.put("/a", b"two", 0) == ChangeResult("/a", 1)
        assert await store.put("/a", b"", 1) == ChangeResult("/a", 2)
        assert await store.get("/a") == Node(b"", Stat(2))
        assert await store.exists("/a") == Stat(2)
        await store.delete("/a", 2)
        assert await store.get("/a") is None
        assert await store.put("/a", b"again", ABSENT) == ChangeResult("/a", 0)

    async def test_a_change_is_refused_unless_the_node_is_as_expected(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/a", b"one", ABSENT)
        for wrong in (store.put("/a", b"x", 1), store.delete("/a", 3), store.transaction([Check("/a", 7)])):
            with pytest.raises(BadVersion):
                await wrong
        with pytest.raises(NodeExists):
            await store.put("/a", b"x", ABSENT)
        for missing in (store.put("/b", b"", 0), store.delete("/b", 0), store.delete("/b", ANY)):
            with pytest.raises(NoNode):
                await missing
        with pytest.raises(NoNode):
            await store.transaction([Check("/b", 0)])
        assert await store.get("/a") == Node(b"one", Stat(0))
        assert await store.exists("/b") is None

    async def test_any_makes_or_overwrites(self, space: Space) -> None:
        store = await space.connect()
        assert await store.put("/deep/er/any", b"1", ANY) == ChangeResult("/deep/er/any", 0)
        assert await store.put("/deep/er/any", b"2", ANY) == ChangeResult("/deep/er/any", 1)
        await store.delete("/deep/er/any", ANY)
        assert await store.put("/deep/er/any", b"3", ANY) == ChangeResult("/deep/er/any", 0)

    async def test_concurrent_puts_of_any_version_all_succeed(self, space: Space) -> None:
        stores = [await space.connect() for _ in range(3)]
        made = await asyncio.gather(*(store.put("/any/node", b"", ANY) for store in stores * 4))
        assert sorted(each.version for each in made) == list(range(12))

    async def test_missing_parents_are_created_and_outlive_the_child(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/p/q/r", b"deep", ABSENT)
        assert await store.get("/p") == Node(b"", Stat(0))
        assert await store.get("/p/q") == Node(b"", Stat(0))
        await store.delete("/p/q/r", 0)
        assert await store.children("/p") == ["q"]
        assert await store.children("/p/q") == []

    async def test_children_are_the_direct_ones_sorted(self, space: Space) -> None:
        store = await space.connect()
        for name in ("b", "a", "a.b", "a-b", "c/below", "é", "Z"):
            await store.put(f"/f/{name}", b"", ABSENT)
        assert await store.children("/f") == ["Z", "a", "a-b", "a.b", "b", "c", "é"]
        assert await store.children("/f/c") == ["below"]
        assert await store.children("/f/a") == []
        assert await store.children("/nowhere") == []
        assert await store.children("/") == ["f"]

    async def test_the_root_is_there_and_can_not_be_changed(self, space: Space) -> None:
        store = await space.connect()
        assert await store.get("/") == Node(b"", Stat(0))
        assert await store.transaction([Check("/", 0)]) == [ChangeResult("/", 0)]
        for change_ in (Put("/", b"", 0), Put("/", b"", ABSENT), Put("/", b"", ANY), Delete("/", ANY)):
            with pytest.raises(InvalidChange):
                await store.transaction([change_])

    async def test_a_node_with_children_is_not_deleted(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/a/b", b"", ABSENT)
        with pytest.raises(NotEmpty):
            await store.delete("/a", 0)
        with pytest.raises(BadVersion):
            await store.delete("/a", 4)
        await store.delete("/a/b", 0)
        await store.delete("/a", 0)

    # Transactions

    async def test_a_transaction_happens_whole_and_in_order(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/old", b"", ABSENT)
        await store.put("/x/deleted", b"", ABSENT)
        made = await store.transaction(
            [
                Put("/x/new", b"1", ABSENT),
                Put("/old", b"2", 0),
                Delete("/x/deleted", 0),
                Check("/x", 0),
                Put("/y/any", b"3", ANY),
                Put("/y/any/below", b"4", ABSENT),
                Put("/s/n-", b"", ABSENT, sequential=True),
                Put("/s/n-", b"", ABSENT, sequential=True),
            ]
        )
        assert [each.version for each in made] == [0, 1, ABSENT, 0, 0, 0, 0, 0]
        assert [each.path for each in made[:6]] == ["/x/new", "/old", "/x/deleted", "/x", "/y/any", "/y/any/below"]
        assert made[6].path < made[7].path
        assert await store.children("/x") == ["new"]
        assert await store.children("/y/any") == ["below"]

    async def test_a_refused_transaction_does_nothing_and_names_the_change(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/there", b"", ABSENT)
        refused: list[tuple[list[Change], int, type[Refused]]] = [
            ([Put("/n/1", b"", ABSENT), Put("/there", b"", 5), Delete("/nope", 0)], 1, BadVersion),
            ([Put("/n/1", b"", ABSENT), Delete("/nope", 0), Put("/there", b"", 5)], 1, NoNode),
            ([Put("/n/1", b"", ABSENT), Put("/n/2", b"", ANY), Put("/there", b"", ABSENT)], 2, NodeExists),
            ([Put("/there", b"x", 0), Put("/n/1", b"", ABSENT), Check("/there/not", 0)], 2, NoNode),
            ([Put("/there/child", b"", ABSENT), Delete("/other", ANY)], 1, NoNode),
            # A check behind creates, some of whose parents are missing.
            (
                [Put("/n/1/2", b"", ABSENT), Put("/m/1", b"", ABSENT), Check("/there", 1), Check("/nope", 0)],
                2,
                BadVersion,
            ),
            ([Put("/n/1/2", b"", ABSENT), Put("/m/1", b"", ABSENT), Check("/there", 0), Check("/nope", 0)], 3, NoNode),
        ]
        for changes, index, kind in refused:
            with pytest.raises(kind) as raised:
                await store.transaction(changes)
            assert raised.value.index == index
            assert raised.value.path == changes[index].path
        assert await store.children("/") == ["there"]
        assert await store.children("/there") == []
        assert await store.get("/there") == Node(b"", Stat(0))

    async def test_deletes_and_their_parents_go_together(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/a/b/c", b"", ABSENT)
        await store.transaction([Delete("/a/b/c", 0), Delete("/a/b", 0), Delete("/a", 0)])
        assert await store.exists("/a") is None

    async def test_invalid_transactions_are_refused(self, space: Space) -> None:
        store = await space.connect()
        invalid: list[list[Change]] = [
            [],
            [Put("/a", b"", ABSENT), Delete("/a", 0)],
            [Put("/a", b"", 0), Check("/a", 0)],
            [Delete("/a/b", 0), Put("/a/b/c", b"", ABSENT)],
            [Put("/a", b"", -3)],
            [Put("/a", b"", ANY, ephemeral=True)],
            [Put("/a", b"", 0, ephemeral=True, sequential=True)],
            [Put("/a", b"", ANY, sequential=True)],
            [Delete("/a", ABSENT)],
            [Delete("/a", -3)],
            [Check("/a", ANY)],
            [Check("/a", ABSENT)],
            [Put(f"/many/{n}", b"", ABSENT) for n in range(MAX_CHANGES + 1)],
        ]
        for changes in invalid:
            with pytest.raises(InvalidChange):
                await store.transaction(changes)
        assert await store.children("/") == []

    async def test_invalid_values_and_versions_are_refused_without_side_effects(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        await store.put("/a", b"", ABSENT)
        for value in ("text", bytearray(b"a"), memoryview(b"a"), None, 1):
            for expected in (ABSENT, ANY, 0):
                with pytest.raises(InvalidChange, match="bytes"):
                    await store.put("/a", value, expected)  # type: ignore[arg-type]
        no_versions: list[Any] = [MAX_VERSION + 1, 2**40, 10**30, -3, True, False, None, 0.0, "0"]
        for version in no_versions:
            for change_ in (Put("/a", b"", version), Delete("/a", version), Check("/a", version)):
                with pytest.raises(InvalidChange, match="version"):
                    await store.transaction([change_])
        with pytest.raises(BadVersion):
            await store.put("/a", b"", MAX_VERSION)
        for each in (store, other):
            assert each.session.state is SessionState.CONNECTED
            assert await each.get("/a") == Node(b"", Stat(0))

    async def test_parents_that_may_be_missing_count_in_the_size_of_a_transaction(self, space: Space) -> None:
        """What is within the limit is made, the missing parents with it; what is above never leaves."""
        store = await space.connect()
        heard: list[SessionState] = []
        store.session.listen(heard.append)
        deep = "/".join(["e" * 40] * 20)
        too_large: list[list[Change]] = [
            [Put(f"/p{n}/{deep}", b"", expected) for n in range(300)] for expected in (ABSENT, ANY)
        ]
        too_large.append([Put("/" + "/".join(["d" * 3] * 500), b"x" * 900_000, ABSENT)])
        too_large.append([Put("/" + "/".join(["d"] * 2000), b"", ABSENT, sequential=True)])
        for changes in too_large:
            with pytest.raises(ValueTooLarge, match="parents"):
                await store.transaction(changes)
        made = await store.transaction([Put(f"/p{n}/{deep}", b"", ABSENT) for n in range(100)])
        assert len(made) == 100
        await store.put("/" + "/".join(["d" * 3] * 100), b"x" * 1_000_000, ABSENT)
        # The most changes, up to the last byte.
        full: list[Change] = [Put(f"/f/{n:03}", b"x" * 1990, ABSENT) for n in range(MAX_CHANGES - 1)]
        left = MAX_TRANSACTION_BYTES - sum(6 + 80 + 1990 for _ in full) - (2 + 80) - (6 + 80)
        with pytest.raises(ValueTooLarge):
            await store.transaction([*full, Put("/f/499", b"x" * (left + 1), ABSENT)])
        assert len(await store.transaction([*full, Put("/f/499", b"x" * left, ABSENT)])) == MAX_CHANGES
        # A node that is there needs no parents.
        await store.transaction([Put(f"/p{n}/{deep}", b"x" * 9000, 0) for n in range(100)])
        assert heard == []

    async def test_the_largest_value_and_the_most_changes_fit(self, space: Space) -> None:
        store = await space.connect()
        largest = bytes(range(256)) * (MAX_VALUE_BYTES // 256) + b"\0" * (MAX_VALUE_BYTES % 256)
        long_path = "/" + "p" * (MAX_PATH_BYTES - 1)
        await store.put(long_path, largest, ABSENT)
        found = await store.get(long_path)
        assert found is not None
        assert found.value == largest
        with pytest.raises(ValueTooLarge):
            await store.put("/b", largest + b"x", ABSENT)
        with pytest.raises(ValueTooLarge):
            await store.transaction([Put("/b", largest, ABSENT), Put("/c", largest, ABSENT)])
        made = await store.transaction([Put(f"/many/{n}", b"", ABSENT) for n in range(MAX_CHANGES)])
        assert len(made) == MAX_CHANGES
        assert len(await store.children("/many")) == MAX_CHANGES

    async def test_paths_that_no_node_can_have(self, space: Space) -> None:
        store = await space.connect()
        bad = ["", "a", "a/b", "//", "/a/", "/a//b", "/.", "/a/../b", "/a/./b", "/a\0b", "/a\nb", "/a\x7f", "/\ud800"]
        bad += ["/\ue000", "/\uffff", "/😀", "/" + "x" * MAX_PATH_BYTES, "/" + "é" * (MAX_PATH_BYTES // 2)]
        bad += ["/change-counters", "/change-counters/x", "/zookeeper", "/zookeeper/quota"]
        for path in bad:
            for pending in (store.get(path), store.exists(path), store.children(path), store.put(path, b"", ANY)):
                with pytest.raises(InvalidPath):
                    await pending
            with pytest.raises(InvalidPath):
                store.watch(path)
        for path in ("/a b", "/…", "/..a", "/a.", "/%2F", "/日本", "/change-counters-2", "/a/zookeeper"):
            await store.put(path, path.encode(), ABSENT)
            found = await store.get(path)
            assert found is not None
            assert found.value == path.encode()

    # Sequential and ephemeral nodes

    async def test_sequence_numbers_are_never_used_again(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        made = [(await store.put("/q/n-", b"", ABSENT, sequential=True)).path for _ in range(3)]
        assert all(len(path) == len("/q/n-") + 10 and path[5:].isdigit() for path in made)
        await store.delete(made[-1], 0)
        made.append((await other.put("/q/n-", b"", ABSENT, sequential=True)).path)
        puts = (writer.put("/q/n-", b"", ABSENT, sequential=True) for writer in (store, other) * 5)
        made += [each.path for each in await asyncio.gather(*puts)]
        assert len(set(made)) == len(made)
        assert made[:4] == sorted(made[:4])
        assert max(made[:4]) < min(made[4:])

    async def test_sequential_put_is_refused_while_next_node_exists(self, space: Space) -> None:
        store = await space.connect()
        first = (await store.put("/q/n-", b"", ABSENT, sequential=True)).path
        number = int(first.removeprefix("/q/n-"))
        # A store may count all new children or the numbered ones: the next number is one of these.
        taken = [f"/q/n-{number + more:010d}" for more in (1, 3)]
        for path in taken:
            await store.put(path, b"", ABSENT)
        for _ in range(3):
            with pytest.raises(NodeExists) as raised:
                await store.transaction([Check("/q", 0), Put("/q/n-", b"", ABSENT, sequential=True)])
            assert (raised.value.index, raised.value.path) == (1, "/q/n-")
        for path in taken:
            await store.delete(path, 0)
        made = await store.put("/q/n-", b"", ABSENT, sequential=True)
        assert made.path > first

    async def test_ephemeral_nodes_go_with_the_session_that_made_them(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        await store.put("/e/mine", b"1", ABSENT, ephemeral=True)
        numbered = await store.put("/e/mine-", b"1", ABSENT, ephemeral=True, sequential=True)
        await other.put("/e/theirs", b"2", ABSENT, ephemeral=True)
        assert await store.exists("/e/mine") == Stat(0, store.session.id)
        await other.sync()
        assert await other.exists("/e/mine") == Stat(0, store.session.id)
        assert store.session.id not in (0, other.session.id)
        await other.put("/e/mine", b"changed by another", 0)
        await store.sync()
        assert await store.get("/e/mine") == Node(b"changed by another", Stat(1, store.session.id))
        await store.close()
        await other.sync()
        assert await other.children("/e") == ["theirs"]
        assert await other.exists(numbered.path) is None

    async def test_a_replaced_node_belongs_to_the_session_that_replaced_it(self, space: Space) -> None:
        """OWN-2: it goes with the new session only, and of two that replace the same node one succeeds."""
        store, other, third = await space.connect(), await space.connect(), await space.connect()
        await store.put("/e/owner", b"first", ABSENT, ephemeral=True)
        outcomes = await asyncio.gather(
            other.put("/e/owner", b"second", 0, ephemeral=True),
            third.put("/e/owner", b"second", 0, ephemeral=True),
            return_exceptions=True,
        )
        made = [outcome for outcome in outcomes if isinstance(outcome, ChangeResult)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, BadVersion)]
        assert made == [ChangeResult("/e/owner", 1)]
        assert len(refused) == 1
        winner, loser = (other, third) if isinstance(outcomes[0], ChangeResult) else (third, other)
        await store.close()
        await loser.sync()
        assert await loser.get("/e/owner") == Node(b"second", Stat(1, winner.session.id))
        assert await loser.put("/e/owner", b"third", 1, ephemeral=True) == ChangeResult("/e/owner", 0)
        await winner.close()
        await loser.sync()
        assert await loser.get("/e/owner") == Node(b"third", Stat(0, loser.session.id))
        with pytest.raises(NoNode):
            await loser.put("/e/nobody", b"", 0, ephemeral=True)
        await loser.put("/e/folder/child", b"", ABSENT)
        with pytest.raises(NotEmpty):
            await loser.put("/e/folder", b"", 0, ephemeral=True)

    async def test_ephemeral_nodes_go_when_the_session_is_lost(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        await store.put("/e/mine", b"", ABSENT, ephemeral=True)
        await space.lose_session(store)
        await within(store.session.wait_lost(), "the loss of the session")
        if other.session.state is SessionState.LOST:
            other = await space.connect()

        async def is_deleted() -> bool:
            await other.sync()
            return await other.exists("/e/mine") is None

        await until(is_deleted, "the ephemeral node is deleted")

    async def test_ephemeral_nodes_have_no_children(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/e/mine", b"", ABSENT, ephemeral=True)
        for path in ("/e/mine/child", "/e/mine/deep/child"):
            with pytest.raises(NoChildrenAllowed):
                await store.put(path, b"", ABSENT)

    async def test_ephemeral_nodes_are_refused_at_and_below_declared_roots(self, space: Space) -> None:
        store = await space.connect()
        for path in ("/policies", "/policies/deep/er", "/bundles/of/one"):
            with pytest.raises(InvalidChange):
                await store.put(path, b"", ABSENT, ephemeral=True)
        await store.put("/bundles/owner", b"", ABSENT, ephemeral=True)
        await store.put("/policies2", b"", ABSENT, ephemeral=True)

    # Reading

    async def test_read_after_sync_sees_writes_of_other_sessions(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        for version in range(20):
            await store.put("/a", b"%d" % version, version - 1)
            await other.sync()
            assert await other.get("/a") == Node(b"%d" % version, Stat(version))

    async def test_a_store_sees_its_own_changes(self, space: Space) -> None:
        store = await space.connect()
        for version in range(20):
            await store.put("/a", b"%d" % version, version - 1)
            assert await store.get("/a") == Node(b"%d" % version, Stat(version))

    # Watches

    async def test_a_watch_is_up_at_the_start_and_after_each_kind_of_change(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        watch = store.watch("/w/node")

        async def sees(expected: bytes | None, names: list[str]) -> None:
            """Takes the flag down and reads, until what is read is what is expected."""
            while True:
                await within(watch.wait(), f"a sign of {expected!r} with {names}")
                node = await store.get("/w/node")
                if (node.value if node else None) == expected and await store.children("/w/node") == names:
                    return

        await sees(None, [])
        await other.put("/w/node", b"1", ABSENT)
        await sees(b"1", [])
        await other.put("/w/node", b"2", 0)
        await sees(b"2", [])
        await other.put("/w/node/child", b"", ABSENT)
        await sees(b"2", ["child"])
        await other.delete("/w/node/child", 0)
        await sees(b"2", [])
        await other.delete("/w/node", 1)
        await sees(None, [])
        await other.put("/w/node/child", b"", ABSENT)
        await sees(b"", ["child"])
        watch.close()

    async def test_a_watch_sees_ephemeral_children_go(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        await other.put("/brokers/one", b"", ABSENT, ephemeral=True)
        watch = store.watch("/brokers")
        await until(lambda: _reads(store.children("/brokers"), ["one"]), "the child is seen")
        await other.close()
        while True:
            await within(watch.wait(), "an event for the deleted child")
            if await store.children("/brokers") == []:
                break

    async def test_a_watch_folds_changes_and_never_misses_the_last(self, space: Space) -> None:
        store, writers = await space.connect(), [await space.connect() for _ in range(3)]
        await self._last_change_is_seen(store, store.watch("/w/node"), "/w/node", writers)

    async def test_a_subtree_watch_never_misses_the_last_of_concurrent_changes(self, space: Space) -> None:
        store, writers = await space.connect(), [await space.connect() for _ in range(3)]
        await self._last_change_is_seen(store, store.watch_subtree("/policies"), "/policies/a/b", writers)

    async def _last_change_is_seen(
        self, store: MetadataStore, watch: Watch, path: str, writers: list[MetadataStore]
    ) -> None:
        async def write(writer: MetadataStore) -> None:
            for _ in range(15):
                await writer.put(path, b"", ANY)

        writing = asyncio.gather(*(write(writer) for writer in writers))
        last, waits = -1, 0
        while last < 15 * len(writers) - 1:
            await within(watch.wait(), f"a sign of a version above {last}")
            waits += 1
            stat = await store.exists(path)
            last = stat.version if stat else -1
        await writing
        assert waits <= 15 * len(writers) + 5

    async def test_a_subtree_watch_sees_all_below_its_root_and_the_root(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        watch = store.watch_subtree("/bundles/of")
        changes: list[list[Change]] = [
            [Put("/bundles/of", b"", ABSENT)],
            [Put("/bundles/of/a/b/c", b"", ABSENT)],
            [Put("/elsewhere", b"", ABSENT), Put("/bundles/of/a", b"2", 0), Put("/policies/x", b"", ABSENT)],
            [Delete("/bundles/of/a/b/c", 0)],
            [Put("/bundles/of/s-", b"", ABSENT, sequential=True)],
        ]
        await self._settle(watch)
        for each in changes:
            await other.transaction(each)
            await within(watch.wait(), f"a sign of {each}")
        watch.close()

    async def _settle(self, watch: Watch) -> None:
        """Takes down what the watch's own start puts up: it may go up a second time when it is set.

        Should that come later still, the test that goes on proves less than it could, and does not fail.
        """
        await within(watch.wait(), "the first sign")
        await self._take_down(watch)

    async def test_only_declared_roots_can_be_watched_as_subtrees(self, space: Space) -> None:
        store = await space.connect()
        for path in ("/", "/policies/below", "/bundles", "/undeclared"):
            with pytest.raises(InvalidPath):
                store.watch_subtree(path)

    async def test_change_counters_are_nobodys_business(self, space: Space) -> None:
        store = await space.connect()
        await store.put("/policies/a", b"", ABSENT)
        assert await store.children("/") == ["policies"]

    async def test_a_closed_watch_ends_its_wait(self, space: Space) -> None:
        store = await space.connect()
        watch, again = store.watch("/w"), store.watch("/w")
        await self._settle(watch)
        waiting = asyncio.create_task(_for_ever(watch))
        await asyncio.sleep(0)
        watch.close()
        watch.close()
        with pytest.raises(Closed):
            await within(waiting, "the end of the wait")
        with pytest.raises(Closed):
            await watch.wait()
        await store.put("/w", b"", ABSENT)
        await within(again.wait(), "the other watch")

    async def test_a_cancelled_wait_leaves_the_watch_as_it_was(self, space: Space) -> None:
        store = await space.connect()
        watch = store.watch("/w")
        await self._settle(watch)
        waiting = asyncio.create_task(_for_ever(watch))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await store.put("/w", b"", ABSENT)
        await within(watch.wait(), "the sign after a cancelled wait")

    async def test_watches_go_up_after_a_reconnection(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        watches = [store.watch("/w"), store.watch_subtree("/policies")]
        for watch in watches:
            await self._settle(watch)
        await space.break_connection(store)
        for watch in watches:
            await within(watch.wait(), "the sign after a reconnection")
        for watch in watches:
            await self._take_down(watch)
        await other.transaction([Put("/w", b"", ABSENT), Put("/policies/x", b"", ABSENT)])
        for watch in watches:
            await within(watch.wait(), "the sign of a change after a reconnection")

    async def _take_down(self, watch: Watch) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await _for_ever(watch)

    # Sessions

    async def test_a_closed_store_is_closed_for_all(self, space: Space) -> None:
        store = await space.connect()
        heard: list[SessionState] = []
        store.session.listen(heard.append)
        watch, subtree = store.watch("/w"), store.watch_subtree("/policies")
        await self._settle(watch)
        waiting = asyncio.create_task(_for_ever(watch))
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        for over in (waiting, subtree.wait(), store.watch("/v").wait(), store.watch_subtree("/policies").wait()):
            with pytest.raises(Closed):
                await over
        await self._everything_raises(store, Closed)
        await within(store.session.wait_lost(), "the end of wait_lost")
        assert heard == [SessionState.LOST]
        assert store.session.state is SessionState.LOST

    async def test_a_lost_session_can_not_be_missed(self, space: Space) -> None:
        """After the loss every request and every watch raises, and listeners are called once."""
        store = await space.connect()
        heard: list[SessionState] = []
        store.session.listen(heard.append)
        ended = store.session.listen(lambda state: heard.append(state))
        ended()
        watch, subtree = store.watch("/w"), store.watch_subtree("/policies")
        waits = [asyncio.create_task(each.wait()) for each in (watch, subtree)]
        for each in waits:
            await each
        waits = [asyncio.create_task(_for_ever(each)) for each in (watch, subtree)]
        await space.lose_session(store)
        await within(store.session.wait_lost(), "the loss of the session")
        assert store.session.state is SessionState.LOST
        assert heard[-1] is SessionState.LOST
        assert heard.count(SessionState.LOST) == 1
        for waiting in waits:
            with pytest.raises(SessionLost):
                await within(waiting, "the end of a watch")
        await self._everything_raises(store, SessionLost)
        late: list[SessionState] = []
        store.session.listen(late.append)
        assert late == [SessionState.LOST]
        with pytest.raises(SessionLost):
            await store.watch("/late").wait()

    async def _everything_raises(self, store: MetadataStore, kind: type[MetadataError]) -> None:
        pending: list[Awaitable[object]] = [
            store.get("/a"),
            store.exists("/a"),
            store.children("/a"),
            store.put("/a", b"", ANY),
            store.delete("/a", ANY),
            store.sync(),
            store.ping(),
        ]
        for each in pending:
            with pytest.raises(kind):
                await each

    async def test_requests_in_flight_end_when_session_closes(self, space: Space) -> None:
        store, other = await space.connect(), await space.connect()
        pending = [asyncio.create_task(store.put(f"/u/{n}", b"", ABSENT)) for n in range(50)]
        await asyncio.sleep(0)
        await store.close()
        made = 0
        for n, each in enumerate(pending):
            try:
                await within(each, "the end of a request")
                made += 1
                await other.sync()
                assert await other.exists(f"/u/{n}") is not None
            except (Unavailable, SessionLost):
                pass

    async def test_safe_until_counts_from_send_time_of_answered_request(self, space: Space) -> None:
        """The time counts from when an answered request was sent, not from its answer."""
        clock = SystemClock()
        store = await space.connect()
        session = store.session
        assert session.timeout_s > 1
        for _ in range(3):
            before = clock.monotonic()
            await store.ping()
            assert before <= session.answered_sent_at <= clock.monotonic()
            assert session.safe_until() == session.answered_sent_at + session.timeout_s - 1.0
            assert session.safe_until(0.5) == session.answered_sent_at + session.timeout_s - 0.5
        before = clock.monotonic()
        await asyncio.gather(*(store.put(f"/t/{n}", b"", ANY) for n in range(10)))
        assert before <= session.answered_sent_at <= clock.monotonic()

    async def test_a_cancelled_request_harms_nobody(self, space: Space) -> None:
        store = await space.connect()
        pending = [asyncio.create_task(store.put(f"/c/{n}", b"", ABSENT)) for n in range(10)]
        await asyncio.sleep(0)
        for each in pending[::2]:
            each.cancel()
        ended = await asyncio.gather(*pending, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended[::2])
        assert all(isinstance(each, ChangeResult) for each in ended[1::2])
        await store.sync()
        assert len(await store.children("/c")) >= 5

    # Compare and set

    async def test_compare_and_set_by_many_loses_nothing(self, space: Space) -> None:
        stores = [await space.connect() for _ in range(3)]
        clock = SystemClock()

        await asyncio.gather(*(count_with(store, n, clock) for n, store in enumerate(stores)))
        await stores[0].sync()
        stored = await read(stores[0], "/cas/count")
        assert stored is not None
        assert (stored.payload, stored.version) == (b"24", 23)

    async def test_compare_and_set_leaves_deletes_and_refuses_foreign_values(self, space: Space) -> None:
        store = await space.connect()
        clock, randomness = SystemClock(), SeededRandomness(1)
        assert await change(store, "/cas/a", lambda _: LEAVE, clock=clock, randomness=randomness) is None
        assert await change(store, "/cas/a", lambda _: DELETE, clock=clock, randomness=randomness) is None
        made = await change(store, "/cas/a", lambda _: b"x", clock=clock, randomness=randomness)
        assert made is not None
        left = await change(store, "/cas/a", lambda _: LEAVE, clock=clock, randomness=randomness)
        assert left == made == await read(store, "/cas/a")
        assert await change(store, "/cas/a", lambda _: DELETE, clock=clock, randomness=randomness) is None
        assert await store.exists("/cas/a") is None
        again = await change(store, "/cas/a", lambda _: b"x", clock=clock, randomness=randomness)
        assert again is not None
        assert again.incarnation != made.incarnation
        await store.put("/cas/foreign", b"not ours", ABSENT)
        with pytest.raises(ForeignValue):
            await change(store, "/cas/foreign", lambda _: b"x", clock=clock, randomness=randomness)


def _plus_one(old: bytes | None) -> bytes:
    return b"%d" % (int(old or b"0") + 1)


async def count_with(store: MetadataStore, seed: int | str, clock: SystemClock, times: int = 8) -> tuple[int, int]:
    """Counts a node up; returns how often it was made and how often nobody knows."""
    randomness = SeededRandomness(seed)
    made = unknown = 0
    for _ in range(times):
        try:
            await change(store, "/cas/count", _plus_one, clock=clock, randomness=randomness, timeout_s=120)
            made += 1
        except OutcomeUnknown:
            unknown += 1
    return made, unknown


async def _reads(reading: Awaitable[list[str]], expected: list[str]) -> bool:
    return await reading == expected


async def _for_ever(watch: Watch) -> None:
    while True:
        await watch.wait()
