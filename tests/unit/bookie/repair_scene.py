"""A small cluster for tests of auto-recovery: real bookies, simulated disks, a metadata server, a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Self

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auditor import Auditor
from magnetar_bookie.auto_recovery.auto_recovery import AutoRecovery
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.record import BadRecord, check_record
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer, MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Listener
from tests.registered_bookies import register_bookie
from tests.sim.disk import DiskFaults, SimulatedDisk

__all__ = ["PATIENT", "Scene", "SceneBookie"]

PATIENT = AutoRecoverySettings(
    lost_bookie_recovery_delay_seconds=3,
    open_ledger_rereplication_grace_period_seconds=4,
    auditor_scan_interval_seconds=5,
    intent_grace_period_seconds=20,
    rw_rereplicate_backoff_seconds=1,
    rw_rereplicate_backoff_max_seconds=8,
    progress_interval_seconds=0,
    metadata_retry_seconds=0.5,
)
# Writers that add nothing don't replace lost bookies here: auto-recovery does.
_CLIENT = LedgerClientSettings(
    explicit_lac_interval_ms=0,
    add_entry_timeout_seconds=2,
    read_entry_timeout_seconds=2,
    lost_bookie_replacement_delay_seconds=1e6,
)
_TURNS = 40
_TICK_S = 0.1


class SceneBookie:
    """A bookie with a cookie. `come` and `go` do what the start and the crash of its process do."""

    def __init__(self, of: Scene, bookie_id: str) -> None:
        self.of = of
        self.bookie_id = bookie_id
        # Without latency, a sync needs no advance of the clock.
        faults = DiskFaults(shortest_sync_s=0, longest_sync_s=0, longest_read_s=0)
        self.disk = SimulatedDisk(SystemClock(), SeededRandomness(bookie_id), faults)
        self.bookie: Bookie | None = None
        self.listener: Listener | None = None
        self.store: MemoryStore | None = None

    async def come(self, *, read_only: bool = False) -> None:
        self.bookie = Bookie(self.bookie_id, self.disk.open(), self.of.clock)
        self.bookie.read_only = read_only
        self.listener = await self.of.transport.listen(f"{self.bookie_id}:1", self.bookie)
        self.store = self.of.server.connect()
        await register_bookie(self.store, self.bookie_id, self.listener.address, read_only=read_only)

    async def go(self) -> None:
        """Crash the bookie, and end its session."""
        if self.listener is not None and self.bookie is not None and self.store is not None:
            self.disk.crash()
            await self.listener.close()
            await self.bookie.close()
            await self.store.close()
            self.listener = self.bookie = self.store = None

    def holds(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the undamaged record is on the disk."""
        record = self.disk.durable_record(ledger_id, entry_id)
        try:
            return isinstance(record, bytes) and check_record(record, ledger_id, entry_id) is not None
        except BadRecord:
            return False


class Scene:
    """Bookies b1, b2 …, registered while the scene is open."""

    def __init__(
        self,
        bookies: int = 4,
        settings: AutoRecoverySettings = PATIENT,
        client_settings: LedgerClientSettings = _CLIENT,
    ) -> None:
        self.clock = ManualClock()
        self.randomness = SeededRandomness("scene")
        self.server = MemoryServer(self.clock)
        self.transport = InProcessTransport(self.clock)
        self.settings = settings
        self.client_settings = client_settings
        self.bookies = {f"b{number}": SceneBookie(self, f"b{number}") for number in range(1, bookies + 1)}
        self.clients: list[LedgerClient] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.store: MemoryStore = self.server.connect()
        self.client: LedgerClient

    async def __aenter__(self) -> Self:
        for bookie in self.bookies.values():
            await bookie.come()
        self.client = await self.new_client(self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            await asyncio.wait([task])
        for client in self.clients:
            await client.close()
        for bookie in self.bookies.values():
            await bookie.go()

    async def new_client(self, store: MemoryStore | None = None) -> LedgerClient:
        store = store or self.server.connect()
        randomness = SeededRandomness(len(self.clients))
        client = LedgerClient(store, self.transport, self.clock, randomness, self.client_settings)
        self.clients.append(client)
        await client.start()
        return client

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.tasks.append(asyncio.get_running_loop().create_task(work))
        return self.tasks[-1]

    async def auto_recovery(self, bookie_id: str = "b1", settings: AutoRecoverySettings | None = None) -> LedgerClient:
        """Run auto-recovery, and return its client."""
        client = await self.new_client()
        self.spawn(AutoRecovery(bookie_id, client, settings or self.settings).run())
        return client

    def auditor(self, client: LedgerClient | None = None, settings: AutoRecoverySettings | None = None) -> Auditor:
        """Return an auditor that does nothing until the test calls `scan`."""
        client, settings = client or self.client, settings or self.settings
        return Auditor(client, BookieWatcher(client, settings), settings, lambda: True)

    async def writer(self, ensemble: int = 3, write: int = 3, ack: int = 2, *, claim: bool = True) -> LedgerWriter:
        made, writer = await self.client.create(Striping(ensemble, write, ack), "a test")
        if claim:
            await self.client.ledgers.claim_ledger(made, f"/owners/{made.ledger_id}", lambda _: b"mine")
        return writer

    async def ledger(self, entries: int, ensemble: int = 3, write: int = 3, ack: int = 2) -> int:
        """Return the id of a new closed ledger."""
        writer = await self.writer(ensemble, write, ack)
        for number in range(entries):
            await self.over(writer.add(b"entry %d" % number))
        await self.over(writer.close())
        return writer.ledger_id

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return await self.client.ledgers.read_metadata(ledger_id, fresh=True)

    async def over(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Return the result of the work, and advance the clock until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        await self.until(task.done, "the work is over")
        return await task

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], what: str, limit_s: float = 600) -> None:
        """Advance the clock until the condition holds."""
        passed = 0.0
        while True:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            assert passed < limit_s, f"{limit_s} s passed, but not until {what}"
            self.clock.advance(_TICK_S)
            passed += _TICK_S

    async def passes(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        await self.until(lambda: self.clock.monotonic() >= until, f"{seconds} s have passed")

    async def whole(self, ledger_id: int, without: Sequence[str] = ()) -> bool:
        """Return whether the ledger is closed and fully replicated, and names no bookie of `without`."""
        metadata = await self.metadata(ledger_id)
        return metadata.is_closed and all(
            bookie not in without and self.bookies[bookie].holds(ledger_id, entry_id)
            for index, fragment in enumerate(metadata.fragments)
            for slot, bookie in enumerate(fragment.bookies)
            for entry_id in range(fragment.first_entry_id, (metadata.last_entry_of_fragment(index) or 0) + 1)
            if metadata.striping.holds(slot, entry_id)
        )

    async def no_tasks(self) -> bool:
        return not await self.store.children(paths.TASKS)
