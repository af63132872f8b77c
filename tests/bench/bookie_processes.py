"""Bookies in processes of their own and the production client in this one, for the benchmarks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_testing.metadata import MemoryServer
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.process.memory_tuning import keep_freed_memory
from magnetar_wire.randomness import SystemRandomness
from tests.registered_bookies import register_bookie

__all__ = ["BookieChild", "bookie_child", "client_of"]


@dataclass(frozen=True)
class BookieChild:
    name: str
    address: str
    process: subprocess.Popen[str]

    def ask(self, command: str) -> dict[str, int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer: dict[str, int] = json.loads(self.process.stdout.readline())
        return answer


@contextlib.contextmanager
def bookie_child(folder: Path) -> Iterator[BookieChild]:
    command = [sys.executable, "-m", "tests.bench.bookie_child", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            if not address:
                raise RuntimeError(f"the bookie in {folder} did not start")
            yield BookieChild(folder.name, address, process)
            process.communicate("", timeout=60)
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def client_of(bookies: list[BookieChild], options: LedgerClientSettings) -> AsyncIterator[LedgerClient]:
    """The metadata are in memory: no benchmark here is of them."""
    keep_freed_memory()
    server = MemoryServer(SystemClock(), session_timeout_s=3600)
    store = server.connect()
    for bookie in bookies:
        await register_bookie(store, bookie.name, bookie.address, instance_id=bookie.name.encode())
    client = LedgerClient(store, GrpcTransport(), SystemClock(), SystemRandomness(), options)
    await client.start()
    try:
        yield client
    finally:
        await client.close()
        await store.close()
        await asyncio.sleep(0)
