"""`magnetar standalone` as a process of the operating system."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from magnetar_cli.standalone.data_folder import FolderTaken
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_cli.standalone.standalone import Standalone
from magnetar_protos.broker_pb2 import (
    ConsumeAnswer,
    ConsumeRequest,
    Flow,
    LastMessageAnswer,
    LastMessageRequest,
    LookupAnswer,
    LookupRequest,
    OpenConsumer,
    PartitionsAnswer,
    PartitionsRequest,
    StartAt,
)
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.entry import check_entry
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.transport import Connection
from tests.faults.failing_disk import fail_disk, preloaded
from tests.produce_client import ProduceClient, entry
from tests.running import run, until, within

pytestmark = pytest.mark.slow


@asynccontextmanager
async def connected(server: StandaloneProcess) -> AsyncIterator[Connection]:
    connection = GrpcTransport().connect(server.service_url.removeprefix("magnetar://"))
    try:
        yield connection
    finally:
        await connection.close()


async def consumed(connection: Connection, topic: str, last: bytes | None) -> list[bytes]:
    """Return the topic's entries up to and with this one. None: only create its subscription."""
    stream = connection.open_stream("consume")
    opened = OpenConsumer(consumer_id=1, topic=topic, subscription="keeps", durable=True, start=StartAt(earliest=True))
    await stream.send(ConsumeRequest(open=[opened]).SerializeToString())
    found: list[bytes] = []
    is_open = False
    while last not in found if last is not None else not is_open:
        message = await within(stream.receive(), f"entry {len(found)}")
        assert message is not None
        answer = ConsumeAnswer.FromString(message)
        assert not answer.ended, answer
        for one in answer.opened:
            is_open = True
            flow = Flow(consumer_id=1, epoch=one.epoch, permits=1_000_000)
            await stream.send(ConsumeRequest(flow=[flow]).SerializeToString())
        found += answer.frame.entries
    stream.cancel()
    return found


async def test_persisted_messages_survive_repeated_kill_9(tmp_path: Path) -> None:
    """PRD-1: a receipt is durable. Killed while it is being published to, nothing receipted is missing, and the order
    is that of sending."""

    async def run_server(server: StandaloneProcess, number: int, at_least: int) -> list[int]:
        """Publishes until the process is killed; returns what was receipted."""
        name = f"p{number}"
        async with connected(server) as connection:
            client = ProduceClient(connection.open_stream("produce"))
            await client.open(1, name)

            async def publish() -> None:
                sent = 0
                while not client.over:
                    await client.send((1, sent, [entry(sent + at, bytes(500), name) for at in range(50)]))
                    sent += 50

            publishing = asyncio.create_task(publish())
            await until(lambda: len(client.receipts) >= at_least, "much was receipted")
            await asyncio.to_thread(server.kill)
            await asyncio.wait([publishing])
            publishing.exception()
            await until(lambda: client.over, "the stream is over")
            return sorted(entry_number for _, entry_number in client.receipts)

    with StandaloneProcess(tmp_path / "data") as server:
        receipted = {}
        async with connected(server) as connection:
            await consumed(connection, "t", None)
        for number in range(3):
            receipted[f"p{number}"] = await run_server(server, number, 2000)
            await asyncio.to_thread(server.start)
        async with connected(server) as connection:
            found = await consumed(connection, "t", entry(receipted["p2"][-1], bytes(500), "p2"))
            for name, numbers in receipted.items():
                assert numbers == list(range(len(numbers)))
                wanted = [entry(one, bytes(500), name) for one in numbers]
                assert [one for one in found if check_entry(one)[0].producer_name == name][: len(wanted)] == wanted
        assert await asyncio.to_thread(server.stop) == ExitStatus.ENDED, server.logged
        assert "Traceback" not in server.logged


def test_killed_while_it_starts_it_starts_the_next_time(tmp_path: Path) -> None:
    """From a missing folder on: half-made files are completed, or made again."""
    chance = random.Random(5)
    server = StandaloneProcess(tmp_path / "data")
    try:
        for _ in range(5):
            server.spawn()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.2 + chance.random())
            server.kill()
        server.start()

        async def body() -> None:
            async with connected(server) as connection:
                client = ProduceClient(connection.open_stream("produce"))
                await client.open(1)
                await client.send((1, 0, [entry(0)]))
                await until(lambda: len(client.receipts) == 1, "it is stored")

        run(body(), 110)
        assert server.stop() == ExitStatus.ENDED
        assert "Traceback" not in server.logged
    finally:
        server.close()


async def test_a_topic_is_found_and_its_last_message_known(tmp_path: Path) -> None:
    """OWN-1: any broker answers a lookup; the last message's position comes with the topic's incarnation."""
    with StandaloneProcess(tmp_path / "data") as server:
        async with connected(server) as connection:

            async def ask(method: str, request: bytes) -> bytes:
                return await connection.call(method, request, timeout_s=30)

            found = LookupAnswer.FromString(await ask("lookup", LookupRequest(topic="t").SerializeToString()))
            assert f"magnetar://{found.address}" == server.service_url
            wrong = LookupAnswer.FromString(await ask("lookup", LookupRequest(topic="a/b").SerializeToString()))
            assert wrong.problem.text
            request = PartitionsRequest(topic="t", create=True).SerializeToString()
            assert PartitionsAnswer.FromString(await ask("partitions", request)).partitions == 0
            client = ProduceClient(connection.open_stream("produce"))
            opened = await client.open(1)
            last = LastMessageRequest(topic="t").SerializeToString()
            answer = LastMessageAnswer.FromString(await ask("last_message", last))
            assert not answer.HasField("last")
            assert answer.incarnation == opened.incarnation
            await client.send((1, 0, [entry(0), entry(1, bytes(18), num_messages_in_batch=3)]))
            await until(lambda: len(client.receipts) == 2, "both are stored")
            answer = LastMessageAnswer.FromString(await ask("last_message", last))
            assert (answer.last.ledger_id, answer.last.entry_id) == client.receipts[1, 1]
            assert answer.last.batch_size == 3


def test_folder_or_port_in_use_is_refused_clearly(tmp_path: Path) -> None:
    """The second start names the process that has it, exits with status 78, and does not harm the first one."""
    with StandaloneProcess(tmp_path / "data") as server:
        second = StandaloneProcess(tmp_path / "data")
        second.log = tmp_path / "second.log"
        second.spawn()
        assert second.wait() == ExitStatus.REFUSED
        lines = second.logged.splitlines()
        assert len(lines) == 1, lines
        assert f"process {server.pid}" in lines[0]
        assert server.service_url in lines[0]
        assert str(tmp_path / "data") in lines[0]
        other = StandaloneProcess(tmp_path / "other")
        other.service_url = server.service_url
        other.spawn()
        assert other.wait() == ExitStatus.REFUSED
        assert server.service_url.rpartition(":")[2] in other.logged
        assert "the port is in use" in other.logged
        other.service_url, other.http_url = "", server.http_url
        other.spawn()
        assert other.wait() == ExitStatus.REFUSED
        assert f"HTTP can't be served at 127.0.0.1:{server.http_url.rpartition(':')[2]}" in other.logged
        other.http_url, other.pulsar_url = "", server.pulsar_url
        other.spawn()
        assert other.wait() == ExitStatus.REFUSED
        taken = server.pulsar_url.removeprefix("pulsar://")
        assert f"can't listen for Pulsar's protocol at {taken}" in other.logged
        # What it had begun is closed: on other ports it starts.
        other.pulsar_url = ""
        other.start()
        other.stop()
        wrong = StandaloneProcess(tmp_path / "wrong", grpc_prot=1)
        wrong.spawn()
        assert wrong.wait() == ExitStatus.REFUSED
        assert "did you mean 'grpc_port'" in wrong.logged
        assert server.stop() == ExitStatus.ENDED
        assert "Traceback" not in server.logged


def test_an_ephemeral_one_leaves_nothing_not_even_after_kill_9(tmp_path: Path) -> None:
    def folders() -> list[Path]:
        return sorted(tmp_path.glob("magnetar-*"))

    environment = {"TMPDIR": str(tmp_path)}
    with StandaloneProcess(tmp_path / "a", environment, ("--ephemeral",)) as server:
        assert [str(one) for one in folders()] == [server.ready_report["data"]]
        server.kill()
        assert len(folders()) == 1
        with StandaloneProcess(tmp_path / "b", environment, ("--ephemeral",)) as other:
            assert [str(one) for one in folders()] == [other.ready_report["data"]]
            # A process that is alive is left alone.
            server.start()
            assert len(folders()) == 2
            assert server.stop() == ExitStatus.ENDED
            assert other.stop() == ExitStatus.ENDED
    assert not folders()


async def test_graceful_shutdown_under_load_loses_no_persisted_message(tmp_path: Path) -> None:
    """SIGTERM: clients learn of it, and all that was receipted is there."""
    with StandaloneProcess(tmp_path / "data") as server:
        async with connected(server) as connection:
            await consumed(connection, "t", None)
            client = ProduceClient(connection.open_stream("produce"))
            await client.open(1)

            async def publish() -> None:
                sent = 0
                while not client.over and not client.ended:
                    await client.send((1, sent, [entry(sent)]))
                    sent += 1

            publishing = asyncio.create_task(publish())
            await until(lambda: len(client.receipts) > 200, "much was receipted")
            server.signal(signal.SIGTERM)
            await until(lambda: client.over, "the stream ends")
            await asyncio.wait([publishing])
            publishing.exception()
            assert await asyncio.to_thread(server.wait) == ExitStatus.ENDED, server.logged
            assert client.ended, "it got the reason"
            assert "Traceback" not in server.logged
        await asyncio.to_thread(server.start)
        async with connected(server) as connection:
            found = await consumed(connection, "t", entry(len(client.receipts) - 1))
            assert found[: len(client.receipts)] == [entry(one) for one in range(len(client.receipts))]


async def test_a_disk_that_fails_ends_it_and_nothing_unsynced_was_receipted(tmp_path: Path) -> None:
    """CHK-21: with a status of its own; a restart goes on with everything that has a receipt."""
    flag = tmp_path / "flag"

    with StandaloneProcess(tmp_path / "data", preloaded(tmp_path, flag)) as server:
        async with connected(server) as connection:
            await consumed(connection, "t", None)
            client = ProduceClient(connection.open_stream("produce"))
            await client.open(1)

            async def publish() -> None:
                sent = 0
                while not client.over:
                    await client.send((1, sent, [entry(sent)]))
                    sent += 1

            publishing = asyncio.create_task(publish())
            await until(lambda: len(client.receipts) > 100, "much was receipted")
            fail_disk(flag, "failed_sync")
            assert await asyncio.to_thread(server.wait) == ExitStatus.DISK_FAILED, server.logged
            await asyncio.wait([publishing])
            publishing.exception()
            await until(lambda: client.over, "the stream is over")
        flag.unlink()
        await asyncio.to_thread(server.start)
        async with connected(server) as connection:
            found = await consumed(connection, "t", entry(len(client.receipts) - 1))
            assert found[: len(client.receipts)] == [entry(one) for one in range(len(client.receipts))]


async def test_in_one_s_own_process_it_starts_ends_and_starts_again(tmp_path: Path) -> None:
    """The class that the command runs, for tests and notebooks."""
    settings = StandaloneSettings(data_folder=tmp_path / "data", grpc_port=0, pulsar_port=0, http_port=0)
    for _ in range(2):
        async with Standalone(settings) as one:
            with pytest.raises(FolderTaken, match=f"process {os.getpid()}"):
                await Standalone(settings).start()
            connection = GrpcTransport().connect(one.grpc_url.removeprefix("magnetar://"))
            client = ProduceClient(connection.open_stream("produce"))
            await client.open(1)
            await client.send((1, 0, [entry(0)]))
            await until(lambda client=client: len(client.receipts) == 1, "it is stored")  # type: ignore[misc]
            await connection.close()
        assert not one.hanging


def test_wildcard_host_advertises_one_reachable_address(tmp_path: Path) -> None:
    """WIRE-1: one that its own machine reaches, unless it is set; for Pulsar's clients the same host."""
    server = StandaloneProcess(tmp_path / "data", flags=("--host", "0.0.0.0"))
    try:
        server.start()
        assert server.pulsar_url.startswith("pulsar://127.0.0.1:")
        assert server.service_url.startswith("magnetar://127.0.0.1:")
        assert server.stop() == ExitStatus.ENDED
        server.settings = {"advertised_address": "localhost:7"}
        server.pulsar_url = ""
        server.start()
        assert re.fullmatch(r"pulsar://localhost:[1-9]\d+", server.pulsar_url)
        assert server.stop() == ExitStatus.ENDED
        server.settings["pulsar_advertised_address"] = "example.org:8"
        server.service_url = server.pulsar_url = ""  # the advertised addresses are none to listen at
        server.start()
        assert server.pulsar_url == "pulsar://example.org:8"
        assert server.stop() == ExitStatus.ENDED
    finally:
        server.close()


def test_ready_report_is_the_only_line_on_stdout(tmp_path: Path) -> None:
    server = StandaloneProcess(tmp_path / "data")
    try:
        server.start()
        assert set(server.ready_report) >= {"grpc", "pulsar", "http"}
        assert server.process is not None
        assert server.process.stdout is not None
        stdout = server.process.stdout
        server.process.send_signal(signal.SIGTERM)
        assert stdout.read() == b""
        assert server.wait() == ExitStatus.ENDED
    finally:
        server.close()
