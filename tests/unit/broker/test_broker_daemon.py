"""A broker's process without the operating system: its readiness, its reports and its exit status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar import aio
from magnetar_broker.daemon.run import BrokerDaemon, Parts
from magnetar_broker.settings.process import BrokerSettings
from magnetar_broker.system_topics import heartbeat_topic
from magnetar_metadata.errors import NotSent
from magnetar_metadata.store import MetadataStore
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.randomness import SystemRandomness
from tests.http_client import ask_json
from tests.registered_bookies import register_bookie
from tests.running import until, within
from tests.unit.bookie.honest_bookie import HonestBookie


class Machine:
    """Where one broker's process runs, and what it needs."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.metadata = MemoryServer(self.clock, session_timeout_s=60.0)
        self.transport = InProcessTransport(self.clock)
        self.bookie = HonestBookie("b1", self.clock)
        self.sessions: list[MemoryStore] = []
        # The metadata store can't be reached.
        self.away = False
        self.ended: ExitStatus | None = None

    async def add_bookie(self) -> None:
        await self.transport.listen("b1:1", self.bookie)
        await register_bookie(self.metadata.connect(), "b1", "b1:1")

    async def open_metadata(self) -> MetadataStore:
        if self.away:
            raise NotSent("nobody is there")
        self.sessions.append(self.metadata.connect())
        return self.sessions[-1]

    def daemon(self, **changed: Any) -> BrokerDaemon:
        given = {
            "broker_id": "one",
            "metadata": "zookeeper://nowhere",
            "listen_addresses": ["one:6652"],
            "pulsar_listen_addresses": ["127.0.0.1:0"],
            "http_address": "127.0.0.1:0",
            "metadata_retry_seconds": 0.01,
            "health_check_timeout_seconds": 0.2,
            "health_check_max_age_seconds": 0,
            "broker_shutdown_timeout_seconds": 30,
            "close_timeout_seconds": 30,
            "managed_ledger_default_ensemble_size": 1,
            "managed_ledger_default_write_quorum": 1,
            "managed_ledger_default_ack_quorum": 1,
        }
        parts = Parts(self.transport, self.open_metadata, self.clock, SystemRandomness())
        return BrokerDaemon(BrokerSettings.model_validate({**given, **changed}), parts)

    @asynccontextmanager
    async def running(self, **changed: Any) -> AsyncIterator[BrokerDaemon]:
        """Run the broker until the block ends, at the latest. Its exit status is in `ended` then."""
        daemon = self.daemon(**changed)
        self.ended = None
        task = asyncio.create_task(daemon.run())
        try:
            await until(lambda: task.done() or bool(daemon.http_address), "HTTP listens")
            yield daemon
        finally:
            daemon.request_shutdown()
            self.ended = await within(task, "its end")


async def ready(daemon: BrokerDaemon) -> tuple[bool, str]:
    status, response = await ask_json(daemon.http_address, "/ready")
    assert response["ready"] == (status == 200)
    return response["ready"], "; ".join(response["reasons"])


async def becomes_ready(daemon: BrokerDaemon) -> None:
    async def is_ready() -> bool:
        return (await ready(daemon))[0]

    await until(is_ready, "it is ready")


async def reports(daemon: BrokerDaemon, reason: str) -> None:
    async def is_reported() -> bool:
        is_ready, why = await ready(daemon)
        return not is_ready and reason in why

    await until(is_reported, f"it reports: {reason}")


async def test_broker_reports_missing_dependencies_until_it_is_ready() -> None:
    """ADM-2: ready and healthy mean that a message passes through. Otherwise the reasons are reported."""

    machine = Machine()
    machine.away = True
    async with machine.running() as daemon:
        await reports(daemon, "the metadata store can't be reached: nobody is there")
        assert (await ask_json(daemon.http_address, "/status"))[1]["serves"] is False
        machine.away = False
        await reports(daemon, "but 0 of 0 registered ones accept entries")
        await machine.add_bookie()
        await becomes_ready(daemon)
        status, response = await ask_json(daemon.http_address, "/status")
        assert (status, response["broker_id"], response["session"]) == (200, "one", "connected")
        assert response["advertised_listeners"] == {"internal": "one:6652"}
        assert response["bundles"] == 0, "it serves its heartbeat topic without owning the bundle"
        assert response["http_address"] == daemon.http_address
        async with aio.Client("magnetar://one:6652", _transport=machine.transport) as client:
            producer = await client.create_producer("t")
            await within(producer.send(b"x"), "a receipt")
            assert (await ask_json(daemon.http_address, "/status"))[1]["bundles"] == 1
    assert machine.ended is ExitStatus.ENDED


async def test_broker_registers_a_reachable_http_address() -> None:
    machine = Machine()
    machine.away = True
    async with machine.running(http_address="0.0.0.0:0", listen_addresses=["one:1"]) as daemon:
        port = daemon.http_address.rpartition(":")[2]
        assert daemon.broker.http_address == f"one:{port}"
    async with machine.running(http_address="0.0.0.0:0", advertised_address="two:7") as daemon:
        assert daemon.broker.http_address.startswith("two:")
    async with machine.running() as daemon:
        assert daemon.broker.http_address == daemon.http_address


async def test_without_a_session_it_is_not_ready_until_it_has_another() -> None:
    """OWN-2: while its session is suspended it reports that; after a loss it starts another session."""

    machine = Machine()
    await machine.add_bookie()
    async with machine.running() as daemon:
        await becomes_ready(daemon)
        machine.metadata.suspend(machine.sessions[-1])
        await reports(daemon, "suspended")
        machine.away = True
        machine.metadata.expire(machine.sessions[-1])
        machine.metadata.resume(machine.sessions[-1])
        await reports(daemon, "the metadata store can't be reached")
        machine.away = False
        await becomes_ready(daemon)
        assert len(machine.sessions) == 2
    assert machine.ended is ExitStatus.ENDED


async def test_two_processes_under_one_name_do_not_fight() -> None:
    """The second one is not ready, and takes nothing from the first, until that one has ended."""

    machine = Machine()
    await machine.add_bookie()
    first = machine.daemon()
    ending = asyncio.create_task(first.run())
    await until(lambda: bool(first.http_address), "HTTP listens")
    await becomes_ready(first)
    async with machine.running(listen_addresses=["two:1"], load_balancer_report_update_min_interval_millis=20) as late:
        await reports(late, "another process is registered as broker one")
        assert first.broker.session is not None
        heartbeat = first.broker.session.topics.get_loaded(heartbeat_topic("one"))
        assert heartbeat is not None
        for _ in range(3):
            assert not (await ready(late))[0]
            assert (await ready(first))[0]
        assert first.broker.session.topics.get_loaded(heartbeat_topic("one")) is heartbeat
        first.request_shutdown()
        assert await within(ending, "its end") is ExitStatus.ENDED
        await becomes_ready(late)
    assert machine.ended is ExitStatus.ENDED


@pytest.mark.parametrize("away", [True, False])
async def test_broker_that_is_not_ready_ends_gracefully(away: bool) -> None:
    machine = Machine()
    machine.away = away
    async with machine.running() as daemon:
        assert not (await ready(daemon))[0]
    assert machine.ended is ExitStatus.ENDED


async def test_an_address_in_use_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    async with machine.running() as daemon:
        other = machine.daemon(listen_addresses=["two:1"], http_address=daemon.http_address)
        assert await within(other.run(), "its end") is ExitStatus.REFUSED
        assert "set http_address" in caplog.text
        same = machine.daemon()
        assert await within(same.run(), "its end") is ExitStatus.REFUSED
    assert machine.ended is ExitStatus.ENDED


async def test_a_bug_ends_it_with_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()

    async def broken() -> MetadataStore:
        raise AssertionError("a bug")

    monkeypatch.setattr(machine, "open_metadata", broken)
    assert await within(machine.daemon().run(), "its end") is ExitStatus.BROKEN


async def test_hanging_shutdown_is_reported_by_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    await machine.add_bookie()
    async with machine.running(broker_shutdown_timeout_seconds=0.1, close_timeout_seconds=0.1) as daemon:
        await becomes_ready(daemon)
        monkeypatch.setattr("magnetar_broker.daemon.run._END_SESSION_S", 0.1)

        async def hangs() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(machine.sessions[-1], "close", hangs)
    assert machine.ended is ExitStatus.DID_NOT_END
