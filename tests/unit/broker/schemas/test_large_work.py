"""The thread for rules on large definitions, which hosts use in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas import definitions
from magnetar_broker.schemas.large_work import LargeWork
from magnetar_broker.schemas.work_budget import WorkBudget
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.schema_pb2 import Schema
from magnetar_wire.process.addresses import get_host
from tests.running import within
from tests.unit.broker.admin.catalog_scene import code_of
from tests.unit.broker.schemas.registry_scene import FULL, TOPIC, running_registry_scene, schema


class _Scene:
    """Rules that note that they were applied. The first one waits in the thread until `go_on`, or is cancelled."""

    def __init__(self, max_waiting_per_host: int = 64) -> None:
        self.work = LargeWork(max_waiting_per_host)
        self.done: list[str] = []
        self._continues = threading.Event()

    def start(self, host: str, name: str) -> asyncio.Task[str]:
        def rule() -> str:
            self._continues.wait()
            self.done.append(name)
            return name

        return asyncio.create_task(self.work.run(host, rule, self.go_on))

    def go_on(self) -> None:
        self._continues.set()


async def _idle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_hosts_take_turns() -> None:
    """SCH-1: a client with many large schemas, or many connections, takes one turn of many."""
    scene = _Scene()
    many = [scene.start("many", f"many {number}") for number in range(4)]
    await _idle()
    others = [scene.start(host, f"{host} {number}") for host in ("b", "c") for number in range(2)]
    await _idle()
    scene.go_on()
    assert await asyncio.gather(*many) == [f"many {number}" for number in range(4)]
    await asyncio.gather(*others)
    assert scene.done == ["many 0", "many 1", "b 0", "c 0", "many 2", "b 1", "c 1", "many 3"]
    scene.work.close()


async def test_a_host_has_a_bounded_queue() -> None:
    """SCH-1: what is above it is refused, and clients retry it."""
    scene = _Scene(max_waiting_per_host=2)
    running = [scene.start("many", "m") for _ in range(3)]
    await _idle()
    with pytest.raises(BrokerError, match="2 large schemas of the host 'many'") as refused:
        await scene.start("many", "too many")
    assert refused.value.code == ErrorCode.SERVICE_NOT_READY
    other = scene.start("other", "o")
    await _idle()
    scene.go_on()
    await asyncio.gather(*running, other)
    assert await scene.start("many", "later") == "later"
    scene.work.close()


async def test_cancelled_callers_take_no_turn() -> None:
    scene = _Scene()
    first, second, third = (scene.start("h", name) for name in ("first", "second", "third"))
    last = scene.start("other", "last")
    await _idle()
    second.cancel()
    await _idle()
    first.cancel()  # which cancels its rule, so that the thread is free
    await asyncio.wait([first, second])
    assert (await third, await last) == ("third", "last")
    assert scene.done == ["first", "third", "last"]

    async def cancelled_after(turns: int) -> None:
        """At one of the steps of its turn."""
        late = scene.start("h", "late")
        for _ in range(turns):
            await asyncio.sleep(0)
        late.cancel()
        await asyncio.wait([late])
        assert await within(scene.start("h", "next"), "the next turn") == "next"

    for turns in range(5):
        await cancelled_after(turns)
    scene.work.close()


async def test_a_caller_cancelled_at_its_turn_passes_it_on() -> None:
    scene = _Scene()
    running, waiting, last = (scene.start("h", name) for name in ("running", "waiting", "last"))
    running.add_done_callback(lambda _: waiting.cancel())
    await _idle()
    scene.go_on()
    assert await within(last, "the last one") == "last"
    scene.work.close()


async def test_the_end_refuses_those_that_wait() -> None:
    scene = _Scene()
    running, waiting = scene.start("h", "running"), scene.start("h", "waiting")
    await _idle()
    scene.work.close()
    assert await code_of(waiting) == ErrorCode.SERVICE_NOT_READY
    assert await running == "running"
    assert await code_of(scene.start("h", "late")) == ErrorCode.SERVICE_NOT_READY


async def test_rules_fail_with_their_own_error() -> None:
    work = LargeWork()

    def fail() -> None:
        raise ValueError("it does not hold")

    with pytest.raises(ValueError, match="does not hold"):
        await work.run("h", fail, lambda: None)
    work.close()


def test_connections_of_a_host_are_one_client() -> None:
    for address, host in (
        ("10.0.0.1:6650", "10.0.0.1"),
        ("[::1]:6650", "::1"),
        ("::1:6650", "::1"),
        ("in-process", "in-process"),
        ("", ""),
    ):
        assert get_host(address) == host


async def test_clients_with_the_same_large_schema_wait_for_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-1: many that come again at once, after their broker has started."""
    checked: list[Schema] = []
    examine: Callable[..., bytes] = definitions.examine

    def noted(one: Schema, *arguments: Any) -> bytes:
        checked.append(one)
        return examine(one, *arguments)

    monkeypatch.setattr(definitions, "examine", noted)
    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        large = schema("x" * 20_000)
        registering = [registry.register(TOPIC, large, FULL, client=f"10.0.0.1:{port}") for port in range(200)]
        assert set(await asyncio.gather(*registering)) == {0}
        assert len(checked) == 1


async def test_small_schemas_do_not_wait_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    continues = threading.Event()
    examine: Callable[..., bytes] = definitions.examine

    def paused(one: Schema, *arguments: Any) -> bytes:
        if len(one.definition) > 1_000:
            continues.wait()
        return examine(one, *arguments)

    monkeypatch.setattr(definitions, "examine", paused)
    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        slow = asyncio.create_task(registry.register(TOPIC, schema("x" * 20_000), FULL))
        await _idle()
        assert await registry.register(TOPIC, schema("a"), FULL) == 0
        continues.set()
        assert await slow == 1


async def test_a_check_that_nobody_waits_for_any_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-1: so that it does not take the time of others."""
    began, ended = threading.Event(), threading.Event()

    def endless(_: Schema, budget: WorkBudget) -> bytes:
        began.set()
        try:
            while True:
                budget.spend(0)
        finally:
            ended.set()

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        with monkeypatch.context() as patched:
            patched.setattr(definitions, "examine", endless)
            checking = asyncio.create_task(registry.find_version(TOPIC, schema("x" * 20_000)))
            await asyncio.to_thread(began.wait)
            checking.cancel()
            await asyncio.wait([checking])
            await within(asyncio.to_thread(ended.wait), "the end of the check")
        assert await registry.register(TOPIC, schema("y" * 20_000), FULL) == 0
