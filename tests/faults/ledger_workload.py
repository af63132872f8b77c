"""The processes that use ledgers while bookies fail: writers, each of its own chain, and readers that tail them.

    python -m tests.faults.ledger_workload write|tail --metadata LOCATION --chain NAME --name NAME --logs FOLDER …

A process has one run after another: when its session with the metadata store is lost, or another owner has its chain,
it closes its ledger client and begins again with another, as a broker does. SIGTERM ends it after it has finished its
current operation. Its logs (ledger_history.py) have what it did; its standard error has failures of the process itself,
such as a task that dies or a blocked loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import resource
import signal
import sys
from pathlib import Path
from typing import Any, Final

from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_metadata.errors import MetadataError, SessionLost
from magnetar_metadata.location import open_metadata
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.transport import Transport
from tests.faults.ledger_history import Log, WholeReads
from tests.faults.ledger_owner import ChainOwner, ChainPlan, ChainTakenOver
from tests.faults.ledger_tail import follow_chain, read_back_chain

__all__ = ["QUICK", "main"]

log = logging.getLogger("workload")

# A production client but for its patience: faults last seconds here, not minutes.
QUICK: Final = LedgerClientSettings(
    add_entry_timeout_seconds=3.0,
    read_entry_timeout_seconds=3.0,
    speculative_read_timeout_ms=500,
    bookie_quarantine_time_seconds=3.0,
    lost_bookie_replacement_delay_seconds=3.0,
    recovery_timeout_seconds=20.0,
    long_poll_timeout_ms=3000,
)
_REST_S: Final = 0.3
# A loop that stood still for so long is worth a line.
_STALL_S: Final = 1.0


class Workload:
    """The runs of a writer or a tail."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.clock = SystemClock()
        self.chance = SeededRandomness(f"{arguments.name} {arguments.seed}")
        self.logs = Path(arguments.logs)
        self.stopping = asyncio.Event()
        self.options = LedgerClientSettings(**{**QUICK.model_dump(), **json.loads(arguments.options)})

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop)
        watching = loop.create_task(_watch_the_loop())
        transport = GrpcTransport()
        runs = 0
        try:
            while not self.stopping.is_set():
                runs += 1
                try:
                    await self._run_once(f"{self.arguments.name}.{runs}", transport)
                except (ChainTakenOver, LedgerError, MetadataError, ConnectionError) as error:
                    log.info("run %d ends: %s: %s", runs, type(error).__name__, error)
                await self.clock.sleep(_REST_S * self.chance.random())
        finally:
            watching.cancel()
            await transport.close()

    async def _run_once(self, name: str, transport: Transport) -> None:
        store = await open_metadata(self.arguments.metadata, self.clock)
        client = LedgerClient(store, transport, self.clock, SystemRandomness(), self.options)
        history = Log(self.logs / f"{name}.log")
        try:
            await client.start()
            losing = asyncio.ensure_future(store.session.wait_lost())
            living = asyncio.ensure_future(self.live(name, client, history))
            try:
                await asyncio.wait([losing, living], return_when=asyncio.FIRST_COMPLETED)
                if not living.done():
                    raise SessionLost("the session was lost")
                await living
            finally:
                for task in (losing, living):
                    task.cancel()
                await asyncio.gather(losing, living, return_exceptions=True)
        finally:
            await client.close()
            await store.close()
            history.close()

    def stop(self) -> None:
        self.stopping.set()

    def plan(self) -> ChainPlan:
        arguments = self.arguments
        return ChainPlan(Striping(*map(int, arguments.striping.split("/"))), **json.loads(arguments.plan))

    async def live(self, name: str, client: LedgerClient, history: Log) -> None:
        raise NotImplementedError


class Writer(Workload):
    owner: ChainOwner | None = None

    async def live(self, name: str, client: LedgerClient, history: Log) -> None:
        chain, plan = self.arguments.chain, self.plan()
        read_back = WholeReads(self.logs, chain)
        self.owner = ChainOwner(client, chain, name, plan, history, self.clock, self.chance, read_back)
        self.owner.stopping = self.stopping.is_set()
        await self.owner.own()

    def stop(self) -> None:
        super().stop()
        if self.owner is not None:
            self.owner.stopping = True


class Tailer(Workload):
    async def live(self, name: str, client: LedgerClient, history: Log) -> None:
        chain, store, keep = self.arguments.chain, client.ledgers.store, self.plan().keep_ledgers
        history.say("tail", chain, name)
        readers = [follow_chain(client, store, chain, history, self.clock)]
        if keep:
            readers.append(read_back_chain(client, store, chain, keep, history, self.clock))
        reading = [asyncio.ensure_future(reader) for reader in readers]
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            done, _ = await asyncio.wait([*reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in reading:
                if task in done:
                    task.result()
        finally:
            for ending in (*reading, stopping):
                ending.cancel()
            await asyncio.gather(*reading, stopping, return_exceptions=True)


async def _watch_the_loop() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: log.error("a fault of the loop: %s", what))
    while True:
        before = loop.time()
        await asyncio.sleep(0.1)
        if (late_s := loop.time() - before - 0.1) > _STALL_S:
            log.warning("the loop stood still for %.1f s", late_s)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tests.faults.ledger_workload", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=["write", "tail"])
    for name in ("metadata", "chain", "name", "logs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--striping", default="3/3/2")
    parser.add_argument("--plan", default="{}", help="of ChainPlan, as JSON")
    parser.add_argument("--options", default="{}", help="of LedgerClientSettings, as JSON, on top of QUICK")
    arguments = parser.parse_args(words)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {arguments.name} %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    kinds: dict[str, type[Workload]] = {"write": Writer, "tail": Tailer}
    asyncio.run(_run(kinds[arguments.what], arguments))
    log.info("ends; at most %d MB were resident", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


async def _run(kind: type[Any], arguments: argparse.Namespace) -> None:
    await kind(arguments).run()


if __name__ == "__main__":
    main(sys.argv[1:])
