"""The quiet end: all heals, a last writer shows that the cluster works (20), the system comes to rest (28, 29, 58), and
everything that was ever acknowledged is read (2, 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_bookie.errors import LedgerError, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from tests.sim.invariants.ending import unrest
from tests.sim.invariants.history import Violation
from tests.sim.world.chain_writer import ChainAbandoned, ChainOwner, ChainWriter

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["end"]

_LIVENESS_S = 120.0
_REST_S = 240.0
# A tail that is not woken would ask again by itself after so long.
_LONG_POLL_MS = 60_000
# Between two looks whether something has come about: a run that waits longer than it must runs idle.
_LOOK_S = 0.125


class _LastWriter(ChainWriter):
    """Takes each chain over, writes a little, closes; then reads everything."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.doing = "starts"
        self.left = list(world.chain_names)
        self.written = False
        self.may_read = False
        self.was_read = False

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        world = self.world
        options = world.plan.client.model_copy(update={"long_poll_timeout_ms": _LONG_POLL_MS})
        tails = LedgerClient(store, self.transport, self.clock, self.chance, options)
        await tails.start()
        while self.left:
            self.doing = f"writes {self.left[0]}"
            await self._once(client, tails, store, self.left[0])
        await tails.close()
        self.written = True
        while not self.may_read:
            await self.clock.sleep(_LOOK_S)
        for chain in world.chain_names:
            self.doing = f"reads {chain}"
            payloads = []
            for ledger_id in world.checker.history.chains[chain].ledgers:
                payloads += await self._read(client, ledger_id)
            world.checker.chain_was_read(chain, payloads)
        self.was_read = True

    async def _read(self, client: LedgerClient, ledger_id: int) -> list[bytes]:
        """A bookie with a small limit of reads refuses one while it has not heard yet that others were cancelled."""
        while True:
            payloads = []
            try:
                reader = await client.open(ledger_id)
                async for entry_id, payload in reader.entries():
                    self.world.checker.was_read(ledger_id, entry_id, payload)
                    payloads.append(payload)
                return payloads
            except Unreadable as error:
                self.doing = f"reads ledger {ledger_id}, and: {error}"
                self.trace(self.doing)
            await self.clock.sleep(0.5)

    async def _once(self, client: LedgerClient, tails: LedgerClient, store: MetadataStore, chain: str) -> None:
        world = self.world
        world.entries_left = 3
        try:
            before = world.counts.get("entries acknowledged", 0)
            await _LastOwner(self, client, tails, store, chain).own(3)
            if world.counts.get("entries acknowledged", 0) > before:
                self.left.pop(0)
        except (LedgerError, ChainAbandoned) as error:
            self.doing = f"writes {chain}, gave up: {type(error).__name__}: {error}"
            self.trace(self.doing)
            await self.clock.sleep(0.5)


class _LastOwner(ChainOwner):
    """Have a process tail its writes: confirmed entries must be readable soon, though nothing follows them (6)."""

    def __init__(
        self, host: _LastWriter, client: LedgerClient, tails: LedgerClient, store: MetadataStore, chain: str
    ) -> None:
        super().__init__(host, client, store, chain)
        self._tails = tails
        # The highest entry that the tail of this ledger gave.
        self._seen: dict[int, int] = {}

    async def _write(self, writer: LedgerWriter, count: int) -> int:
        host, process = self._host, self._host.process
        assert process is not None
        process.spawn(self._tail(writer.ledger_id))
        await host.clock.sleep(0.25)
        written = await super()._write(writer, count)
        while writer.pending_entries and writer.failure is None:
            await host.clock.sleep(_LOOK_S)
        waited_s = 0.0
        while (seen := self._seen.get(writer.ledger_id, -1)) < writer.last_add_confirmed and writer.failure is None:
            self._world.checker.tail_waits(writer.ledger_id, seen, writer.last_add_confirmed, waited_s)
            await host.clock.sleep(_LOOK_S)
            waited_s += _LOOK_S
        return written

    async def _tail(self, ledger_id: int) -> None:
        while True:
            try:
                reader = await self._tails.open(ledger_id)
                async for entry_id, payload in reader.tail(self._seen.get(ledger_id, -1) + 1):
                    self._world.checker.was_read(ledger_id, entry_id, payload)
                    self._seen[ledger_id] = entry_id
                return
            except LedgerError as error:
                self._host.trace(f"could not tail ledger {ledger_id}: {type(error).__name__}: {error}")
            except MetadataError:
                return
            await self._host.clock.sleep(0.5)


async def end(world: World) -> None:
    clock = world.bookies[0].disk.clock
    world.quiet = True
    world.entries_left = 0
    world.trace.line("world", "all heals")
    world.faults.heal()
    _restart(world)
    await _adds_are_decided(world)
    for client in world.clients:
        client.kill()
    last = _LastWriter(world, "last")
    world.hosts.append(last)
    last.start()
    waited_s = 0.0
    world.checker.history.look("20")
    while not last.written:
        await clock.sleep(_LOOK_S)
        waited_s += _LOOK_S
        _restart(world)
        if waited_s > _LIVENESS_S:
            raise Violation("20", f"{waited_s:.0f} s after all has healed the last writer {last.doing}")
    history, waited_s = world.checker.history, 0.0
    while rest := unrest(history, world.metadata, [b.name for b in world.bookies if b.serves]):
        # This look goes through everything.
        await clock.sleep(0.5)
        waited_s += 0.5
        _restart(world)
        if waited_s > _REST_S:
            raise Violation(*rest)
    last.may_read = True
    waited_s = 0.0
    while not last.was_read:
        await clock.sleep(_LOOK_S)
        waited_s += _LOOK_S
        if waited_s > _LIVENESS_S:
            raise Violation("2", f"what was acknowledged can't be read: the last writer {last.doing}")
    world.trace.line("world", "all is well")


async def _adds_are_decided(world: World) -> None:
    """With everybody back, no add stays undecided."""
    clock, waited_s = world.bookies[0].disk.clock, 0.0
    while waiting := [one for one in world.clients if one.runs and one.writing and one.writing.pending_entries]:
        await clock.sleep(_LOOK_S)
        waited_s += _LOOK_S
        _restart(world)
        if waited_s > _LIVENESS_S:
            writing = waiting[0].writing
            assert writing is not None
            raise Violation("20", f"{waited_s:.0f} s after all has healed ledger {writing.ledger_id} has adds pending")


def _restart(world: World) -> None:
    for bookie in world.bookies:
        if not bookie.runs and not bookie.refused:
            bookie.start()
