"""A bookie as a real process, for tests: `magnetar bookie` with its files in a folder, called over gRPC and HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from magnetar_protos.ledger_pb2 import AddAnswers, ReadAnswer, ReadRequest, Status
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.transport import Connection, TransportError
from tests.http_client import ask, ask_json
from tests.running import until, within
from tests.unit.bookie.bookie_client import KEY, add_request, record

__all__ = ["BookieServer", "Load"]

_REPOSITORY: Final = Path(__file__).resolve().parents[1]
_HTTP: Final = re.compile(r"HTTP listens at (\S+)")
_SERVES: Final = re.compile(r"serves at (\S+), and is registered")


class BookieServer:
    """One folder, on which the process is started again and again. Ports are free ones, new with each start."""

    def __init__(self, folder: Path, metadata: str = "", bookie_id: str = "b1") -> None:
        self.folder = folder
        self.bookie_id = bookie_id
        self.metadata = metadata or f"embedded://{folder}/metadata"
        self.data = folder / "data"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        # Of the present process.
        self.http = ""
        self.address = ""

    def spawn(self, environment: Mapping[str, str] | None = None, **settings: Any) -> subprocess.Popen[bytes]:
        given: dict[str, Any] = {
            "bookie_id": self.bookie_id,
            "data_folder": self.data,
            "metadata": self.metadata,
            "listen_address": "127.0.0.1:0",
            "http_address": "127.0.0.1:0",
            **settings,
        }
        flags = [f"--set={name}={value}" for name, value in given.items()]
        self.folder.mkdir(exist_ok=True)
        paths = [str(_REPOSITORY / root) for root in ("protos", "metadata", "bookie", "deploy")]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "magnetar_cli", "bookie", *flags],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.http = self.address = ""
        return self.process

    async def start(self, environment: Mapping[str, str] | None = None, **settings: Any) -> BookieServer:
        """Returns when it is ready."""
        process = self.spawn(environment, **settings)
        await until(lambda: process.poll() is not None or bool(self._find_output(_SERVES)), "the bookie serves")
        assert process.poll() is None, self.output
        self.http, self.address = self._find_output(_HTTP), self._find_output(_SERVES)
        assert (await ask(self.http, "/ready"))[0] == 200
        return self

    @property
    def output(self) -> str:
        return self.log.read_text()

    def _find_output(self, what: re.Pattern[str]) -> str:
        found = what.search(self.output)
        return found[1] if found else ""

    def serves_at(self) -> str:
        """Empty: it does not yet."""
        self.address = self._find_output(_SERVES)
        return self.address

    async def http_up(self) -> str:
        await until(lambda: bool(self._find_output(_HTTP)), "HTTP listens")
        self.http = self._find_output(_HTTP)
        return self.http

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit status, when it has ended."""
        process = self.process
        assert process is not None
        return await within(asyncio.to_thread(process.wait), "the bookie's end")

    async def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()

    def close(self) -> None:
        """Remove what the test left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> BookieServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def status(self) -> dict[str, Any]:
        code, answer = await ask_json(self.http, "/status")
        assert code == 200
        return dict(answer)

    async def add(self, ledger_id: int, *entry_ids: int) -> list[tuple[int, Status]]:
        """One frame of adds; the answers in the order of the entries."""
        connection = GrpcTransport().connect(self.address)
        try:
            stream = connection.open_stream("add")
            records = [(entry_id, record(ledger_id, entry_id)) for entry_id in entry_ids]
            await stream.send(add_request(ledger_id, records, KEY, recovery=False))
            await stream.finish()
            answers = []
            while (message := await within(stream.receive(), "the answers")) is not None:
                answers += _answers(message)
            return sorted(answers)
        finally:
            await connection.close()

    async def read(self, ledger_id: int, last: int) -> dict[int, bytes]:
        """The records that it gives of the entries from 0 on."""
        connection = GrpcTransport().connect(self.address)
        try:
            return await _read(connection, ledger_id, last)
        finally:
            await connection.close()


async def _read(connection: Connection, ledger_id: int, last: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at <= last:
        request = ReadRequest(ledger_id=ledger_id, first_entry_id=at, last_entry_id=last)
        answer = ReadAnswer.FromString(await connection.call("read", request.SerializeToString(), timeout_s=60))
        assert answer.status == Status.OK
        lacking = {*answer.absent, *answer.unknown, *answer.damaged}
        given = [entry_id for entry_id in range(at, answer.next_entry_id) if entry_id not in lacking]
        found.update(zip(given, answer.records, strict=True))
        at = answer.next_entry_id
    return found


def _answers(message: bytes) -> list[tuple[int, Status]]:
    return [
        (entry_id, answer.status)
        for answer in AddAnswers.FromString(message).answers
        for entry_id in range(answer.first_entry_id, answer.first_entry_id + answer.count)
    ]


class Load:
    """Adds on one stream, many outstanding, until the stream breaks or is refused; what was acknowledged is known."""

    def __init__(self, server: BookieServer, ledger_id: int, outstanding: int = 64) -> None:
        self._server = server
        self._ledger_id = ledger_id
        self._outstanding = asyncio.Semaphore(outstanding)
        self.acknowledged: dict[int, None] = {}
        # Other answers than OK.
        self.refusals: list[Status] = []
        self._task = asyncio.create_task(self._run())

    async def ended(self) -> None:
        await within(self._task, "the load's end")

    async def _run(self) -> None:
        connection = GrpcTransport().connect(self._server.address)
        stream = connection.open_stream("add")
        receiving = asyncio.create_task(self._receive(stream.receive))
        try:
            entry_id = 0
            while not receiving.done():
                await self._outstanding.acquire()
                one = [(entry_id, record(self._ledger_id, entry_id))]
                await stream.send(add_request(self._ledger_id, one, KEY, recovery=False))
                entry_id += 1
        except TransportError:
            pass  # the bookie has ended
        finally:
            await receiving
            await connection.close()

    async def _receive(self, receive: Any) -> None:
        try:
            while (message := await receive()) is not None:
                for entry_id, status in _answers(message):
                    self._outstanding.release()
                    if status == Status.OK:
                        self.acknowledged[entry_id] = None
                    else:
                        self.refusals.append(status)
        except TransportError:
            pass
        finally:
            self._outstanding.release()

    async def whole(self) -> None:
        """All that was acknowledged is there, with the right bytes."""
        last = max(self.acknowledged)
        found = await self._server.read(self._ledger_id, last)
        for entry_id in self.acknowledged:
            assert found.get(entry_id) == record(self._ledger_id, entry_id), f"entry {entry_id} was acknowledged"
