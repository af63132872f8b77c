"""A writer process: a small managed ledger over a chain, which logs truthfully.

It takes a chain over: reads the list, finishes deletions that were begun, recovers the last ledger, creates a new one
and records it behind the others. Then it appends payloads, each of which is unique. When an add fails it does what
STO-4 says: it closes. If the close returns, what failed is resent in a new ledger. If the close is lost, its result is
unknown, so nothing is resent, and the chain is abandoned.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from magnetar_bookie.errors import (
    AddFailed,
    CloseLost,
    LedgerError,
    LedgerNotClaimed,
    NoSuchLedger,
    NotEnoughBookies,
    OutcomeNotKnown,
    TooManyPending,
)
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from tests.sim.invariants.history import CHAINS, Chain
from tests.sim.world.host import Host
from tests.sim.world.lag_watch import AddsWatch

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["ChainAbandoned", "ChainOwner", "ChainWriter"]


class ChainAbandoned(Exception):
    """The chain is somebody else's, or will be."""


class ChainWriter(Host):
    """Writes chains as long as there are entries to write: one run after another, and one session after another."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        # Of the present run.
        self.client: LedgerClient | None = None
        self.owner: ChainOwner | None = None
        self.writing: LedgerWriter | None = None
        self.made = 0

    def start(self) -> None:
        self.client = self.owner = self.writing = None
        super().start()

    async def main(self) -> None:
        while True:
            store = await self.open_metadata()
            client = LedgerClient(store, self.transport, self.clock, self.chance, self.world.plan.client)
            self.client, self.adds = client, AddsWatch(client, self.world.checker)
            try:
                await client.start()
                await self.work(client, store)
                return
            except MetadataError as error:
                self.trace(f"{type(error).__name__}: {error}")
                self.world.count(f"a client met {type(error).__name__}")
            finally:
                await client.close()
                await store.close()
            await self.clock.sleep(0.2 + self.chance.random())

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        """Takes chains over and writes them until there is nothing left to write."""
        world, chance = self.world, self.chance
        while world.entries_left > 0:
            chain = chance.choice(world.chain_names)
            try:
                await ChainOwner(self, client, store, chain).own(world.plan.entries)
            except (LedgerError, ChainAbandoned) as error:
                self.trace(f"gives {chain} up: {type(error).__name__}: {error}")
                world.count(f"gave up: {type(error).__name__}")
                await self.clock.sleep(0.1 + chance.random() * chance.choice((0.5, 3.0)))

    async def delete(self, client: LedgerClient, ledger_id: int) -> None:
        """Delete the ledger until that is done: the process that began may have died before it noted that, or have been
        slower.

        A node that the store has forgotten for a while is not deleted, and comes back: then it would have no owner.
        """
        while True:
            try:
                return await client.delete(ledger_id)
            except NoSuchLedger:
                if self.world.checker.history.ledger(ledger_id).metadata is None:
                    return None
            await self.clock.sleep(0.5)

    def payload(self, chain: str) -> bytes:
        self.made += 1
        filling = b"." * self.chance.below(self.world.plan.filling_bytes)
        return f"{chain} {self.name}.{self.runs_started} {self.made} ".encode() + filling

    def trace(self, what: str) -> None:
        self.world.trace.line(self.name, what)


class ChainOwner:
    """One take-over of one chain."""

    def __init__(self, host: ChainWriter, client: LedgerClient, store: MetadataStore, chain: str) -> None:
        self._host = host
        self._world = host.world
        self._client = client
        self._store = store
        self._chain = chain
        self._path = CHAINS + chain
        self._list = Chain()
        # What failed and is sent again, in order.
        self._again: list[bytes] = []
        # Failed, of the present ledger.
        self._failed: list[bytes] = []
        self._writer: LedgerWriter | None = None
        # Appends nothing by itself before.
        self.rests_until = 0.0

    async def own(self, entries: int) -> None:
        world, host = self._world, self._host
        await self._take_over()
        while (entries > 0 and world.entries_left > 0) or self._again:
            writer = await self._next_ledger()
            self._writer, host.owner, host.writing = writer, self, writer
            try:
                entries -= await self._write(writer, min(entries, world.plan.roll_entries))
                host.owner = None
                await self._close(writer)
            finally:
                host.owner = host.writing = None
                writer.abandon()
            if host.chance.random() < 0.1:
                raise ChainAbandoned("enough of it")

    async def _take_over(self) -> None:
        await self._store.sync()
        stored = await compare_and_set.read(self._store, self._path)
        self._list = Chain.of(stored.payload) if stored else Chain()
        self._host.trace(f"takes {self._chain} over: {self._list.ledgers}")
        for ledger_id in self._list.deleting:
            await self._host.delete(self._client, ledger_id)
        if self._list.deleting:
            await self._change_list(deleted=self._list.deleting)
        if self._list.ledgers:
            metadata = await self._client.recover(self._list.ledgers[-1])
            self._host.trace(f"recovered ledger {self._list.ledgers[-1]}: closed at {metadata.last_entry_id}")

    async def _change_list(self, deleted: list[int]) -> None:
        stored = await compare_and_set.change(
            self._store,
            self._path,
            self._update(deleted=deleted),
            clock=self._host.clock,
            randomness=self._host.chance,
        )
        assert stored is not None
        self._list = Chain.of(stored.payload)

    def _update(self, made: int | None = None, deleted: list[int] | None = None) -> compare_and_set.Update:
        """Change the list only as this owner left it; though others may have removed ledgers from the head."""
        known = self._list

        def update(payload: bytes | None) -> bytes:
            current = Chain.of(payload) if payload is not None else Chain()
            if current.ledgers[-1:] != known.ledgers[-1:]:
                raise ChainAbandoned(
                    f"{self._chain} has other ledgers by now: {current.ledgers}, and not {known.ledgers}"
                )
            deleting = [ledger_id for ledger_id in current.deleting if ledger_id not in (deleted or ())]
            return Chain(current.ledgers + ([] if made is None else [made]), deleting).encode()

        return update

    async def _next_ledger(self) -> LedgerWriter:
        host, client = self._host, self._client
        while True:
            try:
                made, writer = await client.create(self._world.plan.striping, f"{self._chain} of {host.name}")
                break
            except NotEnoughBookies as error:
                host.trace(f"waits: {error}")
                await client.wait_for_bookies(self._world.plan.striping)
        if host.chance.random() < self._world.plan.slow_claims:
            # A slow owner: the sweeper may be faster, and may come just then.
            await host.clock.sleep(self._claims_after_s())
        try:
            stored = await client.ledgers.claim_ledger(made, self._path, self._update(made=made.ledger_id))
        except LedgerNotClaimed:
            writer.abandon()
            self._world.count("an intent was swept")
            return await self._next_ledger()
        except BaseException:
            writer.abandon()
            raise
        assert stored is not None
        self._list = Chain.of(stored.payload)
        host.trace(f"made ledger {made.ledger_id} for {self._chain} on {made.metadata.fragments[-1].bookies}")
        return writer

    def _claims_after_s(self) -> float:
        options, chance = self._world.plan.auto_recovery, self._host.chance
        longest_s = options.intent_grace_period_seconds + options.auditor_scan_interval_seconds
        return longest_s * chance.random()

    async def _write(self, writer: LedgerWriter, count: int) -> int:
        """Append this many payloads, in bursts, and return when all are decided or one has failed."""
        host, world, chance = self._host, self._world, self._host.chance
        written = 0
        while ((written < count and world.entries_left > 0) or self._again) and not _failed(writer):
            for _ in range(1 + chance.below(6)):
                if self._again:
                    payload = self._again[0]
                elif written < count:
                    payload = host.payload(self._chain)
                    written += 1
                    world.entries_left -= 1
                else:
                    break
                try:
                    self._append(writer, payload)
                except TooManyPending:
                    if not self._again:
                        self._again.append(payload)
                    await writer.wait_for_capacity()
                    continue
                if self._again:
                    self._again.pop(0)
                if _failed(writer):
                    break
            await host.clock.sleep(chance.random() * chance.choice((0.002, 0.2, 1.0)))
            if self.rests_until > host.clock.monotonic():
                await host.clock.sleep(self.rests_until - host.clock.monotonic())
            if writer.should_roll:
                world.count("a degraded ledger rolled")
                break
            if chance.random() < 0.02:
                await host.clock.sleep(chance.random() * 3)
        return written

    @property
    def ledger_id(self) -> int:
        assert self._writer is not None
        return self._writer.ledger_id

    def append_one_more(self, ledger_id: int) -> None:
        """Besides what is written anyway, if it is this ledger still and nothing older waits."""
        writer, host = self._writer, self._host
        if host.owner is not self or writer is None or writer.ledger_id != ledger_id:
            return
        if not self._again and not _failed(writer):
            with contextlib.suppress(TooManyPending):
                self._append(writer, host.payload(self._chain))

    def _append(self, writer: LedgerWriter, payload: bytes) -> None:
        world, ledger_id = self._world, writer.ledger_id

        def done(result: int | AddFailed) -> None:
            if isinstance(result, AddFailed):
                world.trace.line(self._host.name, f"an add to ledger {ledger_id} failed: {result}")
                world.count(f"add failed: {type(result).__name__}")
                self._failed.append(payload)
            else:
                world.trace.line(self._host.name, f"ledger {ledger_id}: entry {result} is acknowledged")
                world.acked(ledger_id, result)

        entry_id = writer.append(payload, done)
        world.checker.appended(ledger_id, entry_id, payload)

    async def _close(self, writer: LedgerWriter) -> None:
        host = self._host
        while True:
            try:
                metadata = await writer.close()
                break
            except CloseLost:
                host.trace(f"lost the close of ledger {writer.ledger_id}")
                raise
            except OutcomeNotKnown as error:
                host.trace(f"tries to close ledger {writer.ledger_id} again: {error}")
                if host.chance.random() < 0.3:
                    raise
        host.trace(f"closed ledger {writer.ledger_id} at {metadata.last_entry_id}")
        # It returned: what failed will never be read.
        self._again, self._failed = self._failed + self._again, []


def _failed(writer: LedgerWriter) -> bool:
    return writer.failure is not None
