"""Who owns what, as it is seen from outside and written down."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from magnetar_broker import paths
from magnetar_metadata.store import ABSENT, Put
from magnetar_protos.ownership_pb2 import BundleOwner
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_wire.bundles import default_bundles
from magnetar_wire.clock import SystemClock
from magnetar_wire.topic_name import TopicName
from tests.faults.checker.recorder import Recorder
from tests.faults.torture import owners as owners_module
from tests.faults.torture.owners import Owner, Owners
from tests.running import within

NAMESPACE = TopicName.parse("t").namespace_name


async def put(store: MemoryStore, path: str, value: bytes = b"") -> None:
    await store.transaction([Put(path, value, ABSENT, ephemeral=True)])


async def own_all(store: MemoryStore, broker: str) -> Owner:
    await put(store, paths.broker(broker))
    for bundle in default_bundles(4):
        await put(store, paths.owner(NAMESPACE, bundle), BundleOwner(broker_id=broker).SerializeToString())
    return Owner(broker, store.session.id)


def unexpected(what: str, error: Exception) -> None:
    raise AssertionError(what) from error


async def test_owners_and_the_end_of_a_session_are_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[dict[str, Any]] = []

    server = MemoryServer(SystemClock(), session_timeout_s=60.0)

    async def connected(*_: object) -> MemoryStore:
        return server.connect()

    monkeypatch.setattr(owners_module, "open_metadata", connected)
    first, second = server.connect(), server.connect()
    before = await own_all(first, "broker-1")
    await put(second, paths.broker("broker-2"))
    with Recorder(tmp_path, "rig") as recorder:
        async with Owners("memory", recorder, lambda: ["t", "u-partition-1"], unexpected) as owners:
            assert await owners.look() == {"t": before, "u-partition-1": before}
            server.expire(first)
            await within(owners.wait_over(before), "its session is seen to be over")
            assert await owners.look() == {}
            after = await own_all(server.connect(), "broker-3")
            assert (await owners.look())["t"] == after
    recorded.extend(json.loads(line) for line in (tmp_path / "rig.jsonl").read_text().splitlines())
    over = [(one["broker"], one["session"]) for one in recorded if one["what"] == "session_over"]
    assert over == [(before.broker, before.session)]
    seen = [one["owners"].get("t") for one in recorded if one["what"] == "owners"]
    seen_owners = list(dict.fromkeys(one and tuple(one) for one in seen))
    assert seen_owners == [("broker-1", before.session), None, ("broker-3", after.session)]
    assert all(one["since"] <= one["at"] for one in recorded if one["what"] == "owners")


async def test_failure_of_owner_observation_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition whose name is none makes it fail."""
    server = MemoryServer(SystemClock(), session_timeout_s=60.0)
    failures: list[str] = []
    partition_names: list[str] = []

    async def connected(*_: object) -> MemoryStore:
        return server.connect()

    monkeypatch.setattr(owners_module, "open_metadata", connected)
    failed = asyncio.Event()

    def note(what: str, error: Exception) -> None:
        failures.append(f"{what}: {type(error).__name__}")
        failed.set()

    with Recorder(tmp_path, "rig") as recorder:
        async with Owners("memory", recorder, lambda: partition_names, note):
            partition_names.append("a://b")
            await within(failed.wait(), "the failure is reported")
    assert failures == ["owners are looked at: InvalidTopicName"]
