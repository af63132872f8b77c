"""Table views."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator

import pytest

from magnetar.exceptions import (
    AlreadyClosed,
    ConsumerBusy,
    InvalidConfiguration,
    OperationNotSupported,
    SchemaUnavailable,
    Timeout,
)
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_testing.clock import ManualClock
from magnetar_wire.entry import encode_entry
from tests.running import GENEROUS_S, until
from tests.unit.client.consume_scene import MemoryBroker, MemoryTopic, client_of
from tests.unit.client.sync_consume_scene import SyncConsumeScene, sync_consume_scene, wait_until
from tests.unit.client.tagged_schema import TaggedSchema

P = "persistent://public/default/"


@pytest.fixture
def scene() -> Iterator[SyncConsumeScene]:
    with sync_consume_scene() as made:
        yield made


def put(topic: MemoryTopic, key: str | bytes | None, value: bytes | None) -> None:
    topic.publish(value, keys=[key])


def put_in(scene: SyncConsumeScene, key: str, value: bytes | None) -> None:
    scene.on_loop(lambda broker: put(broker.topic("t"), key, value))


async def test_a_view_holds_the_last_value_of_each_key() -> None:
    """(SCH-3) A null value or an empty payload removes the key; messages without a key are ignored."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        topic.publish(b"1", b"2", b"3", b"no key", keys=["a", "b", "a", None])
        put(topic, b"\xff", b"4")
        put(topic, "c", b"5")
        put(topic, "c", None)
        put(topic, "", b"6")
        view = await client.create_table_view("t")
        assert dict(view.items()) == {"a": b"3", "b": b"2", "/w==": b"4", "": b"6"}
        assert (len(view), list(view), list(view.values())) == (4, list(view.keys()), [b"3", b"2", b"4", b"6"])
        assert (view.get("a"), view.get("x"), view.get("x", 7), view["a"], "x" in view) == (b"3", None, 7, b"3", False)
        with pytest.raises(KeyError):
            view["x"]
        before = view.items()
        put(topic, "a", b"")
        put(topic, "b", b"7")
        await view.refresh()
        assert dict(view.items()) == {"b": b"7", "/w==": b"4", "": b"6"}
        assert dict(before)["a"] == b"3"
        assert repr(view) == f"TableView(topic='{P}t', is_connected=True)"
        assert topic.cursors.cursors == {}, "a view leaves no subscription behind"


async def test_refresh_applies_everything_that_was_published_before() -> None:
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        view = await client.create_table_view("t")
        for number in range(50):
            for _ in range(number % 7):
                put(topic, "k", b"%d" % number)
                topic.publish(b"%d" % number, b"x", keys=["k2", None])
            await view.refresh()
            if number % 7:
                assert view.get("k") == view.get("k2") == b"%d" % number


async def test_refresh_returns_if_the_topic_ends_with_an_entry_without_messages() -> None:
    """A marker, and an entry that is damaged."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        put(topic, "k", b"1")
        topic.store(
            encode_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, marker_type=10), b"")
        )
        view = await client.create_table_view("t")
        assert view.get("k") == b"1"
        topic.store(b"damaged")
        await view.refresh()
        put(topic, "k", b"2")
        await view.refresh()
        assert view.get("k") == b"2"


async def test_a_view_reads_all_partitions_and_new_ones() -> None:
    async with client_of() as (broker, client):
        broker.partitioned[P + "t"] = 2
        for index in range(3):
            put(broker.topic(f"t-partition-{index}"), f"k{index}", b"1")
        view = await client.create_table_view("t", auto_update_partitions_interval_seconds=0.01)
        assert sorted(view) == ["k0", "k1"]
        broker.partitioned[P + "t"] = 3
        await until(lambda: "k2" in view, "the new partition is read")
        await view.close()
        view = await client.create_table_view("t", auto_update_partitions_interval_seconds=0)
        broker.partitioned[P + "t"] = 4
        put(broker.topic("t-partition-3"), "k3", b"1")
        await view.refresh()
        assert sorted(view) == ["k0", "k1", "k2", "k3"]


async def test_a_view_catches_up_after_a_disconnect() -> None:
    """Each change is reported once, in order."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        view = await client.create_table_view("t")
        changes: list[bytes | None] = []
        await view.for_each_and_listen(lambda _, value: changes.append(value))
        for turn in range(12):
            for number in range(5):
                put(topic, "k", b"%d" % (5 * turn + number))
            if turn % 3:
                broker.break_streams()
            else:
                await broker.unload("t")
            for _ in range(turn):
                await asyncio.sleep(0)
        await view.refresh()
        assert view.get("k") == b"59"
        assert changes == [b"%d" % number for number in range(60)]


async def test_a_refresh_times_out_while_no_broker_answers() -> None:
    async with client_of(operation_timeout_seconds=0.2) as (broker, client):
        view = await client.create_table_view("t")
        broker.answering.clear()
        put(broker.topic("t"), "k", b"1")
        with pytest.raises(Timeout):
            await view.refresh()
        assert view.get("k") is None
        broker.answering.set()
        await view.refresh()
        assert view.get("k") == b"1"


async def test_values_are_decoded_by_the_schema(caplog: pytest.LogCaptureFixture) -> None:
    """(SCH-3) By the version with which they were written. One that can't be decoded leaves the former value."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        first, second = (
            broker.add_schema(P + "t", TaggedSchema(name).schema_info().to_message()) for name in ("first", "second")
        )
        topic.publish(b"1", b"", keys=["a", "b"], schema_version=first)
        view = await client.create_table_view("t", schema=TaggedSchema())
        changes: list[tuple[str, str | None]] = []
        await view.for_each_and_listen(lambda key, value: changes.append((key, value)))
        topic.publish(b"2", b"bad", b"3", b"bad", keys=["a", "a", "b", "c"], schema_version=second)
        topic.publish(b"4", keys=["d"], schema_version=b"wrong")
        topic.publish(None, keys=["b"], schema_version=second)
        await view.refresh()
        assert dict(view.items()) == {"a": "second:2"}
        assert changes == [("a", "first:1"), ("a", "second:2"), ("b", "second:3"), ("b", None)]
        logged = [record.getMessage() for record in caplog.records if "keeps its former value" in record.getMessage()]
        assert [text.partition(",")[0].rpartition(" ")[2] for text in logged] == ["'a'", "'c'", "'d'"]


async def test_a_view_waits_for_a_schema_version_that_is_not_available() -> None:
    """(SCH-3) Nothing is skipped or reordered."""
    clock = ManualClock()
    async with client_of(_clock=clock, operation_timeout_seconds=3) as (broker, client):
        topic = broker.topic("t")
        view = await client.create_table_view("t", schema=TaggedSchema())
        version = broker.add_schema(P + "t", TaggedSchema("first").schema_info().to_message())
        broker.has_registry.clear()
        topic.publish(b"1", keys=["k"], schema_version=version)
        topic.publish(b"2", keys=["k"], schema_version=version)
        refreshing = asyncio.create_task(view.refresh())

        def time_passes() -> bool:
            clock.advance(0.2)
            topic.publish(b"more", keys=["other"])  # the view gets messages all the time
            return refreshing.done()

        await until(time_passes, "the refresh has ended")
        with pytest.raises(SchemaUnavailable, match="the registry is away"):
            await refreshing
        creating = asyncio.create_task(client.create_table_view("t", schema=TaggedSchema()))

        def time_passes_alone() -> bool:
            clock.advance(0.2)
            return creating.done()

        await until(time_passes_alone, "the creation has ended")
        with pytest.raises((SchemaUnavailable, Timeout)):
            await creating
        assert "k" not in view
        broker.has_registry.set()
        refreshing = asyncio.create_task(view.refresh())
        await until(time_passes, "the refresh has ended")
        await refreshing
        assert view["k"] == "first:2"


async def test_callbacks_of_an_asyncio_view_may_be_coroutine_functions(caplog: pytest.LogCaptureFixture) -> None:
    """One that fails is logged, and the others go on. Nothing is missed while the present keys are reported."""
    async with client_of() as (broker, client):
        topic = broker.topic("t")
        put(topic, "a", b"1")
        put(topic, "b", b"2")
        view = await client.create_table_view("t")
        changes: list[tuple[str, bytes | None]] = []

        async def listen(key: str, value: bytes | None) -> None:
            if key == "a":
                put(topic, "b", b"3")
                for _ in range(100):
                    await asyncio.sleep(0)
            changes.append((key, value))

        def fail(key: str, value: bytes | None) -> None:
            raise ValueError(key)

        await view.for_each_and_listen(fail)
        await view.for_each_and_listen(listen)
        assert changes == [("a", b"1"), ("b", b"2")]
        put(topic, "a", None)
        await view.refresh()
        assert changes[2:] == [("b", b"3"), ("a", None), ("b", b"3")]
        assert sum("callback of the table view" in record.getMessage() for record in caplog.records) == 5
        seen = []

        async def see(key: str, value: bytes | None) -> None:
            seen.append(key)

        await view.for_each(see)
        assert seen == ["b"]
        with pytest.raises(ValueError, match="b"):
            await view.for_each(fail)
        with pytest.raises(InvalidConfiguration, match="callback = 7 can't be called"):
            await view.for_each_and_listen(7)  # type: ignore[arg-type]


async def test_what_a_callback_of_an_asyncio_view_may_call() -> None:
    """Everything but `refresh`, which would wait for it."""
    async with client_of() as (broker, client):
        view = await client.create_table_view("t")
        seen: list[object] = []

        async def listen(key: str, value: bytes | None) -> None:
            with pytest.raises(OperationNotSupported, match="another thread or task"):
                await view.refresh()
            await view.for_each_and_listen(lambda *change: seen.append(change))
            seen.append(view.get(key))
            await view.close()
            await asyncio.sleep(0)
            seen.append("closed")

        await view.for_each_and_listen(listen)
        put(broker.topic("t"), "k", b"1")
        await until(lambda: seen == [("k", b"1"), b"1", "closed"], "the callback ends")


async def test_a_closed_view_raises_in_every_call() -> None:
    async with client_of() as (broker, client):
        put(broker.topic("t"), "k", b"1")
        async with await client.create_table_view("t", "mine") as view:
            with pytest.raises(ConsumerBusy):
                await client.create_table_view("t", subscription_name="mine")
        await view.close()
        other = await client.create_table_view("t")
        with pytest.raises(TypeError, match="TableView objects can't be pickled"):
            pickle.dumps(other)
        refreshing = asyncio.create_task(other.refresh())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(AlreadyClosed):
            await refreshing
        for closed in (view, other):
            for use in (lambda view: view.get("k"), len, list, lambda view: "k" in view, lambda view: view.items()):
                with pytest.raises(AlreadyClosed):
                    use(closed)
            for wait in (closed.refresh, lambda closed=closed: closed.for_each_and_listen(print)):
                with pytest.raises(AlreadyClosed):
                    await wait()
            assert "is_connected=False" in repr(closed)


async def test_a_view_whose_creation_is_cancelled_is_closed() -> None:
    """At any point: otherwise its subscription would be busy."""
    async with client_of() as (broker, client):
        put(broker.topic("t"), "k", b"1")
        cancelled = 0
        for steps in range(60):
            creating = asyncio.create_task(client.create_table_view("t", "mine"))
            for _ in range(steps):
                await asyncio.sleep(0)
            creating.cancel()
            try:
                await (await creating).close()
            except asyncio.CancelledError:
                cancelled += 1
        assert 10 < cancelled < 60
        assert (await client.create_table_view("t", "mine")).get("k") == b"1"


def test_callbacks_of_a_synchronous_view(scene: SyncConsumeScene, caplog: pytest.LogCaptureFixture) -> None:
    """They run on one thread of the view's, in order, and may call everything but `refresh`."""
    put_in(scene, "a", b"1")
    view = scene.client.create_table_view("t")
    changes: list[tuple[str, bytes | None, str]] = []
    refused: list[Exception] = []
    nested: list[tuple[str, bytes | None]] = []

    def listen(key: str, value: bytes | None) -> None:
        changes.append((key, value, threading.current_thread().name))
        if len(changes) == 1:
            try:
                view.refresh()
            except OperationNotSupported as error:
                refused.append(error)
            view.for_each_and_listen(lambda *change: nested.append(change))
            raise SystemExit
        if key == "last":
            view.close()

    view.for_each_and_listen(listen)
    put_in(scene, "a", None)
    put_in(scene, "b", b"2")
    view.refresh()
    name = f"magnetar table view of {P}t"
    assert changes == [("a", b"1", name), ("a", None, name), ("b", b"2", name)]
    assert nested == [("a", b"1"), ("a", None), ("b", b"2")]
    assert (len(refused), dict(view.items())) == (1, {"b": b"2"})
    assert any("callback of the table view" in record.getMessage() for record in caplog.records)
    seen: dict[str, bytes | None] = {}
    view.for_each(seen.__setitem__)
    assert seen == {"b": b"2"}

    async def listen_async(key: str, value: bytes | None) -> None: ...

    with pytest.raises(InvalidConfiguration, match=r"callback = .* coroutine function, .* magnetar.aio"):
        view.for_each_and_listen(listen_async)
    put_in(scene, "last", b"3")
    wait_until(lambda: "is_connected=False" in repr(view), "the callback has closed the view")


def test_threads_read_a_synchronous_view_while_it_changes(scene: SyncConsumeScene) -> None:
    """A callback that is added during that gets the present values, and then all changes."""
    view = scene.client.create_table_view("t")
    ended = threading.Event()
    problems: list[RuntimeError] = []

    def read() -> None:
        while not ended.is_set():
            try:
                assert all(value is not None for _, value in view.items())
                assert len(list(view)) <= 10
            except RuntimeError as error:  # "dictionary changed size during iteration"
                problems.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    copies: list[dict[str, bytes | None]] = []

    def publish_some(broker: MemoryBroker) -> None:
        for number in range(100):
            put(broker.topic("t"), f"k{number % 10}", b"%d" % number if number % 3 else None)

    for _ in range(4):
        scene.on_loop(publish_some)
        copies.append({})
        view.for_each_and_listen(copies[-1].__setitem__)
    scene.on_loop(publish_some)
    view.refresh()
    ended.set()
    for reader in readers:
        reader.join(GENEROUS_S)
    assert problems == []
    for copy in copies:
        assert {key: value for key, value in copy.items() if value is not None} == dict(view.items())


def test_a_slow_callback_delays_only_its_view(scene: SyncConsumeScene) -> None:
    """A closed view's thread ends."""
    view = scene.client.create_table_view("t")
    other = scene.client.create_table_view("t")
    entered, release = threading.Event(), threading.Event()

    def block(key: str, value: bytes | None) -> None:
        entered.set()
        assert release.wait(GENEROUS_S)

    view.for_each_and_listen(block)
    put_in(scene, "k", b"0")
    assert entered.wait(GENEROUS_S)

    def publish_many(broker: MemoryBroker) -> None:
        for number in range(1_500):
            put(broker.topic("t"), "k", b"%d" % number)

    scene.on_loop(publish_many)
    other.refresh()
    assert (view.get("k"), other.get("k")) == (b"0", b"1499")
    release.set()
    view.refresh()
    assert view.get("k") == b"1499"
    view.close()
    view.close()
    name = f"magnetar table view of {P}t"
    other.close()
    wait_until(lambda: all(thread.name != name for thread in threading.enumerate()), "its thread ends")
    with pytest.raises(AlreadyClosed):
        view.get("k")
