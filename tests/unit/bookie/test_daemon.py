"""A bookie's process without the operating system: its HTTP responses, its shutdown, and its exit status."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError

from magnetar_bookie import paths
from magnetar_bookie.daemon.run import BookieDaemon, BookieParts
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.process import BookieSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import LedgerStorage, StorageFailed
from magnetar_bookie.storage.rocksdb import StorageSettings, open_rocksdb
from magnetar_metadata.store import MetadataStore
from magnetar_protos.ledger_pb2 import AddAnswers, BookieRegistration, Status
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.configuration import InvalidConfiguration, load, select_settings
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.process.logs import log_to_stderr
from magnetar_wire.process.loop_delay import LoopDelayMonitor
from magnetar_wire.transport import Disconnected, Stream
from tests.http_client import ask, ask_json
from tests.running import until, within
from tests.sim.disk import DiskFaults, SimulatedDisk
from tests.unit.bookie.bookie_client import KEY, NO_LATENCY, add_request, record


class Machine:
    """A disk, a metadata server, and a bookie's process on them, again and again."""

    def __init__(self, folder: Path) -> None:
        self.clock = SystemClock()
        self.server = MemoryServer(self.clock)
        self.transport = InProcessTransport(self.clock)
        self.disk = SimulatedDisk(self.clock, SeededRandomness(1), NO_LATENCY)
        self.folder = folder
        self.store = self.server.connect()
        self.sessions: list[MemoryStore] = []
        self.ended: ExitStatus | None = None

    def settings(self, **changed: Any) -> BookieSettings:
        given = {
            "bookie_id": "b1",
            "data_folder": self.folder,
            "metadata": "embedded:///nowhere",
            "listen_address": "b1:0",
            "http_address": "127.0.0.1:0",
            "garbage_interval_seconds": 0.01,
            "metadata_retry_seconds": 0.01,
            "drain_timeout_seconds": 30,
            "close_timeout_seconds": 30,
        }
        return BookieSettings.model_validate({**given, **changed})

    async def open_metadata(self) -> MetadataStore:
        self.sessions.append(self.server.connect())
        return self.sessions[-1]

    async def open_storage(self) -> LedgerStorage:
        return self.disk.open()

    def daemon(self, **changed: Any) -> BookieDaemon:
        parts = BookieParts(self.open_storage, self.transport, self.open_metadata, self.clock)
        return BookieDaemon(self.settings(**changed), parts)

    @asynccontextmanager
    async def running(self, **changed: Any) -> AsyncIterator[BookieDaemon]:
        """Run it until the block ends, then shut it down. Its exit status is in `ended`."""
        daemon = self.daemon(**changed)
        self.ended = None
        task = asyncio.create_task(daemon.run())
        try:
            await until(lambda: task.done() or _started(daemon), "it has started")
            yield daemon
        finally:
            daemon.shut_down()
            self.ended = await within(task, "its end")

    async def registration(self) -> BookieRegistration | None:
        node = await self.store.get(paths.available("b1"))
        return None if node is None else BookieRegistration.FromString(node.value)


def _started(daemon: BookieDaemon) -> bool:
    return daemon.process is not None and daemon.process.started.is_set()


async def answers_of(stream: Stream) -> list[tuple[int, Status]]:
    """Of one message: entry id and status, of each entry."""
    message = await within(stream.receive(), "an answer")
    assert message is not None
    return [
        (entry_id, answer.status)
        for answer in AddAnswers.FromString(message).answers
        for entry_id in range(answer.first_entry_id, answer.first_entry_id + answer.count)
    ]


async def test_daemon_serves_reports_health_and_stops_gracefully(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        assert await machine.registration() is not None
        status, health = await ask_json(daemon.http_address, "/health")
        assert (status, health["healthy"], health["reasons"]) == (200, True, [])
        assert (await ask(daemon.http_address, "/ready"))[0] == 200
        assert daemon.process is not None
        state = (await ask_json(daemon.http_address, "/status"))[1]
        assert state["bookie_id"] == "b1"
        assert state["advertised_address"] == state["listen_address"] == daemon.process.address
        assert state["instance_id"] == daemon.process.bookie.record.cookie.instance_id.hex()
    assert machine.ended is ExitStatus.ENDED
    assert await machine.registration() is None
    # Not a crash: nothing was lost, so the next one is not in limbo.
    async with machine.running() as daemon:
        assert daemon.process is not None
        assert daemon.process.bookie.record.limbo_below == 0


async def test_advertised_address_is_registered(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running(advertised_address="proxy.example:4000"):
        registered = await machine.registration()
        assert registered is not None
        assert registered.address == "proxy.example:4000"
    async with machine.running(advertised_address="proxy.example:0") as daemon:
        registered = await machine.registration()
        assert daemon.process is not None
        assert registered is not None
        port = daemon.process.address.rpartition(":")[2]
        assert registered.address == f"proxy.example:{port}"
        assert registered.http_address == daemon.http_address
        # All addresses of a machine are none that another could ask.
        daemon.process.http_address = "0.0.0.0:8081"
        assert daemon.process.advertised_http_address == "proxy.example:8081"


async def test_clients_resolve_bookie_addresses_by_listener_name(tmp_path: Path) -> None:
    """SPK-5: a bookie has several addresses, and clients that name no listener use the one of the brokers."""

    machine = Machine(tmp_path)
    listeners = "external:magnetar://example.org:0, internal:magnetar://b1.local:4000"
    async with machine.running(advertised_listeners=listeners, internal_listener_name="internal") as daemon:
        assert daemon.process is not None
        port = daemon.process.address.rpartition(":")[2]
        client = LedgerClient(machine.server.connect(), machine.transport, machine.clock, SeededRandomness(1))
        await client.start()
        try:
            assert client.bookies.find_address("b1") == "b1.local:4000"
            assert client.bookies.find_address("b1", "internal") == "b1.local:4000"
            assert client.bookies.find_address("b1", "external") == f"example.org:{port}"
            assert client.bookies.find_address("b1", "elsewhere") == "b1.local:4000"
            assert client.bookies.find_address("b2", "external") == ""
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"listen_address": "0.0.0.0:3181"}, "set advertised_address"),
        ({"advertised_address": "h:1", "advertised_listeners": "a:magnetar://h:1"}, "set only one of them"),
        ({"advertised_listeners": "a:magnetar://0.0.0.0:1"}, "can't be advertised"),
        ({"advertised_listeners": "a:b:c"}, "use name:magnetar://host:port"),
        ({"advertised_listeners": "a:magnetar://h:1", "internal_listener_name": "b"}, "use one of a"),
    ],
)
def test_addresses_that_nobody_could_use_are_refused(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(why)):
        Machine(tmp_path).settings(**changed)


async def test_shutdown_answers_pending_adds_and_refuses_new_ones(tmp_path: Path) -> None:
    """CHK-21: adds in flight at the shutdown are synced and answered; later adds are READ_ONLY."""

    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        machine.disk.faults = DiskFaults(shortest_sync_s=0.3, longest_sync_s=0.4)
        await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))
        process = daemon.process
        await until(lambda: process.bookie.pending_entries == 1, "the add is in flight")
        daemon.shut_down()
        await until(lambda: process.bookie.read_only, "it refuses what is new")
        await stream.send(add_request(1, [(1, record(1, 1))], KEY, recovery=False))
        first = await answers_of(stream)
        second = await answers_of(stream)
        assert sorted(first + second) == [(0, Status.OK), (1, Status.READ_ONLY)]
    assert machine.ended is ExitStatus.ENDED
    assert machine.disk.open().has_entry(1, 0)


async def test_shutdown_does_not_wait_for_continuous_senders(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running(drain_timeout_seconds=3600) as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")

        async def send() -> None:
            while True:
                await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))

        async def receive() -> None:
            while await stream.receive() is not None:
                pass

        flood = [asyncio.create_task(send()), asyncio.create_task(receive())]
        process = daemon.process
        await until(lambda: process.bookie.counters.adds > 100, "there is a flood")
        daemon.shut_down()
        done = await within(asyncio.wait(flood, return_when=asyncio.FIRST_EXCEPTION), "the end of the flood")
        for task in flood:
            task.cancel()
        await asyncio.wait(flood)
        assert any(isinstance(task.exception(), Disconnected) for task in done[0])
    assert machine.ended is ExitStatus.ENDED


async def test_a_disk_that_fails_ends_it_with_a_status_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CHK-21: a failed fsync ends the process, and is never tried again."""

    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        machine.disk.faults = DiskFaults(failed_sync_probability=1.0)
        await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))
        await within(daemon.process.bookie.wait_for_failure(), "the disk's failure")
    assert machine.ended is ExitStatus.DISK_FAILED
    last = [one for one in caplog.records if one.levelno == logging.CRITICAL][-1].getMessage()
    assert "the disk of bookie b1 failed" in last


async def test_a_wiped_disk_is_refused_with_a_way_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """CHK-23: a wiped bookie does not come back under its old identity."""

    machine = Machine(tmp_path)
    async with machine.running():
        pass
    machine.disk = SimulatedDisk(machine.clock, SeededRandomness(1), NO_LATENCY)
    async with machine.running():
        pass
    assert machine.ended is ExitStatus.REFUSED
    assert "Decommission it, and start the empty disk with another bookie_id" in caplog.text


async def test_a_disk_that_does_not_answer_when_it_is_closed_is_not_waited_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running(drain_timeout_seconds=0.1, close_timeout_seconds=0.2) as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        machine.disk.faults = DiskFaults(stall_probability=1.0, stall_s=3600)
        await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))
        process = daemon.process
        await until(lambda: process.bookie.pending_entries == 1, "the add is in flight")
    assert machine.ended is ExitStatus.DISK_FAILED


async def test_a_sync_that_hangs_is_not_healthy(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    bounds = {
        "drain_timeout_seconds": 0.1,
        "close_timeout_seconds": 0.2,
        "health_max_sync_seconds": 0.2,
        "health_max_answer_seconds": 0.2,
    }
    async with machine.running(**bounds) as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        machine.disk.faults = DiskFaults(stall_probability=1.0, stall_s=3600)
        await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))

        async def sick() -> bool:
            status, health = await ask_json(daemon.http_address, "/health")
            return status == 503 and "being written to the disk" in " ".join(health["reasons"])

        await until(sick, "the health check reports that a sync hangs")


async def test_storage_that_gives_no_answer_is_not_healthy(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running(
        health_max_answer_seconds=0.1, drain_timeout_seconds=0.2, close_timeout_seconds=0.2
    ) as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))
        assert await answers_of(stream) == [(0, Status.OK)]
        machine.disk.faults = DiskFaults(longest_read_s=0, stall_probability=1.0, stall_s=3600)
        status, health = await ask_json(daemon.http_address, "/health")
        assert (status, health["storage_answers"]) == (503, False)
        assert "has not answered" in health["reasons"][0]


async def test_storage_that_fails_when_ledgers_are_looked_up_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        assert daemon.process is not None
        storage = daemon.process.bookie.storage

        def fails(*_: object) -> list[int]:
            raise StorageFailed("a block of keys can't be read")

        monkeypatch.setattr(storage, "list_ledger_ids", fails)
        await within(daemon.process.bookie.wait_for_failure(), "the disk's failure")
    assert machine.ended is ExitStatus.DISK_FAILED


async def test_without_a_session_it_is_healthy_and_not_ready(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        session = machine.sessions[-1]
        machine.server.suspend(session)
        ready, response = await ask_json(daemon.http_address, "/ready")
        assert (ready, response["reasons"]) == (503, ["it has no session with the metadata store embedded:///nowhere"])
        assert (await ask(daemon.http_address, "/health"))[0] == 200
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))
        assert await answers_of(stream) == [(0, Status.OK)]
        machine.server.expire(session)
        machine.server.resume(session)

        async def ready_again() -> bool:
            return (await ask(daemon.http_address, "/ready"))[0] == 200

        await until(ready_again, "it is registered with another session")


async def test_manual_read_only_mode_survives_restart(tmp_path: Path) -> None:
    """STO-2: a bookie can be set read-only; it stays so after a restart, until it is taken back."""

    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        answer = await ask_json(daemon.http_address, "/read-only", "POST", {"read_only": True})
        assert answer == (200, {"read_only": True, "read_only_because": ["an operator requested it"]})

        async def is_reported() -> bool:
            registered = await machine.registration()
            return registered is not None and registered.read_only

        await until(is_reported, "its registration shows it")
        assert (await ask_json(daemon.http_address, "/health"))[1]["read_only"] is True
    async with machine.running() as daemon:
        assert daemon.process is not None
        assert daemon.process.bookie.read_only
        answer = await ask_json(daemon.http_address, "/read-only", "POST", {"read_only": False})
        assert answer == (200, {"read_only": False, "read_only_because": []})
    async with machine.running(read_only=True) as daemon:
        answer = await ask_json(daemon.http_address, "/read-only", "POST", {"read_only": False})
        assert answer == (200, {"read_only": True, "read_only_because": ["its configuration requires it"]})


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"read_only": true}', "text/plain", 415),
        (b'{"read_only": 1}', "application/json", 400),
        (b'{"read_only": true, "more": 1}', "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 60_000, "application/json", 400),
        (b"\xff", "application/json", 400),
        (b" " * 100_000, "application/json", 413),
    ],
)
async def test_invalid_read_only_request_changes_nothing(
    tmp_path: Path, body: bytes, content_type: str, status: int
) -> None:
    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        assert (await ask(daemon.http_address, "/read-only", "POST", body, content_type))[0] == status
        assert (await ask(daemon.http_address, "/read-only"))[0] == 405
        assert daemon.process is not None
        assert not daemon.process.bookie.read_only


async def test_metrics_count_adds_and_syncs(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running() as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        await stream.send(add_request(1, [(n, record(1, n)) for n in range(10)], KEY, recovery=False))
        assert len(await answers_of(stream)) == 10
        await stream.send(add_request(1, [(0, record(1, 0, b"other"))], KEY, recovery=False))
        assert await answers_of(stream) == [(0, Status.CONFLICT)]
        metrics = await _metrics(daemon)
        assert metrics["magnetar_bookie_adds_total"] == 11
        assert metrics["magnetar_bookie_add_answers_total{status=OK}"] == 10
        assert metrics["magnetar_bookie_add_answers_total{status=CONFLICT}"] == 1
        groups = metrics["magnetar_bookie_group_entries_count"]
        assert metrics["magnetar_bookie_group_entries_sum"] == 10
        assert metrics["magnetar_bookie_sync_seconds_count"] == groups >= 1
        assert metrics["magnetar_bookie_group_entries_bucket{le=+Inf}"] == groups
        assert metrics["magnetar_bookie_group_bytes_sum"] == sum(len(record(1, n)) for n in range(10))
        assert metrics["magnetar_bookie_add_streams"] == 1
        assert metrics["magnetar_bookie_disk_free_bytes"] > 0
        assert metrics["process_resident_memory_bytes"] > 0


async def test_metrics_and_status_report_disk_use_and_reclaimed_segments(tmp_path: Path) -> None:
    class RealDisk(Machine):
        async def open_storage(self) -> LedgerStorage:
            settings = StorageSettings(segment_bytes=16 << 10, reserve_disk_bytes=1 << 20, resume_disk_bytes=1 << 20)
            return await open_rocksdb(tmp_path / "storage", settings)

    machine = RealDisk(tmp_path)
    async with machine.running() as daemon:
        assert daemon.process is not None
        stream = machine.transport.connect(daemon.process.address).open_stream("add")
        size = 0
        for ledger in (1, 2):
            for n in range(20):
                payload = record(ledger, n, bytes(2_000))
                size += len(payload)
                await stream.send(add_request(ledger, [(n, payload)], KEY, recovery=False))
                assert len(await answers_of(stream)) == 1
        before = await _metrics(daemon)
        assert before["magnetar_bookie_segments"] > 3
        assert before["magnetar_bookie_segments_held_bytes"] > before["magnetar_bookie_segments_used_bytes"] == size
        assert before["magnetar_bookie_reclaimed_segments_total"] == 0
        await daemon.process.bookie.delete_ledger(1)

        async def freed() -> bool:
            return (await _metrics(daemon))["magnetar_bookie_reclaimed_segments_total"] > 0

        await until(freed, "the deleted ledger's files are freed")
        after = await _metrics(daemon)
        assert after["magnetar_bookie_segments_used_bytes"] == size / 2
        assert after["magnetar_bookie_reclaimed_bytes_total"] > 0
        assert after["magnetar_bookie_index_bytes"] > 0
        assert after["magnetar_bookie_unreadable_segments"] == 0
        status, response = await ask(daemon.http_address, "/status")
        storage = json.loads(response)["storage"]
        assert (status, storage["used_bytes"], storage["unreadable_segments"]) == (200, size // 2, 0)
        assert storage["reclaimed_segments"] > 0


async def _metrics(daemon: BookieDaemon) -> dict[str, float]:
    status, text = await ask(daemon.http_address, "/metrics")
    assert status == 200
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_all_errors_of_a_configuration_are_reported_together() -> None:
    flags = [
        "metadata=zookeper://h:1",
        "listen_address=nowhere",
        "http_address=h:70000",
        "data_folder=/x",
        "drain_timeout=1",
    ]
    with pytest.raises(InvalidConfiguration) as wrong:
        load(BookieSettings, flags=flags)
    text = str(wrong.value)
    for part in (
        "there is no setting 'drain_timeout': did you mean 'drain_timeout_seconds'?",
        "bookie_id is required: set it",
        "the scheme 'zookeper' is unknown",
        "listen_address = 'nowhere'",
        "http_address = 'h:70000'",
    ):
        assert part in text


def test_parts_get_the_settings_of_the_process(tmp_path: Path) -> None:
    settings = BookieSettings(
        bookie_id="b1", data_folder=tmp_path, metadata="embedded:///m", max_pending_bytes=4711, read_only=True
    )
    assert select_settings(BookieServerSettings, settings) == BookieServerSettings(
        max_pending_bytes=4711, read_only=True
    )


def test_a_log_line_can_not_be_forged(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    try:
        log_to_stderr("INFO")
        logging.getLogger("a.b").warning("from outside: %s", "x\n2026-01-01T00:00:00.000Z INFO forged\x1b[2J")
        logging.getLogger("a.b").debug("not logged")
    finally:
        logging.getLogger().handlers[:] = before
        logging.getLogger().setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    assert " WARNING a.b from outside: x\\n2026" in line
    assert "\x1b" not in line


def test_a_loop_that_stands_still_is_late() -> None:
    """A delay of the event loop is seen when it runs again, also by a check before the due callbacks have run."""
    clock = ManualClock()
    watch = LoopDelayMonitor(clock)
    clock.advance(2.0)
    assert watch.delay_s == 0.0
    # As the loop would, had something held it up for 7 s: what was due runs late.
    held_up = HeldUpClock()
    late = LoopDelayMonitor(held_up)
    held_up.now += 7.5
    assert late.delay_s == pytest.approx(7.0)
    held_up.due()
    assert late.delay_s == pytest.approx(7.0)
    held_up.now += 0.5
    held_up.due()
    assert late.delay_s == 0.0
    watch.close()
    late.close()


class HeldUpClock(ManualClock):
    """Due callbacks run when `due` is called, not by time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.due: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], object]) -> ManualTimer:
        self.due = callback
        return ManualTimer()


class ManualTimer:
    def cancel(self) -> None: ...


async def test_a_late_loop_is_not_healthy(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    async with machine.running(health_max_lateness_seconds=1e-9) as daemon:

        async def is_reported() -> bool:
            status, health = await ask_json(daemon.http_address, "/health")
            return status == 503 and "the event loop was" in health["reasons"][0]

        await until(is_reported, "the delay of a loop that is always a little late is logged")


def test_log_respects_the_configured_level(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:]
    level = logging.getLogger().level
    try:
        log_to_stderr("DEBUG")
        logging.getLogger("a.b").debug("logged")
        log_to_stderr("ERROR")
        logging.getLogger("a.b").warning("not logged")
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logging.getLogger("a.b").exception("broke off")
    finally:
        logging.getLogger().handlers[:] = before
        logging.getLogger().setLevel(level)
    first, second, *trace = capsys.readouterr().err.splitlines()
    assert first.endswith("DEBUG a.b logged")
    assert second.endswith("ERROR a.b broke off")
    assert all(line.startswith("    ") for line in trace)
