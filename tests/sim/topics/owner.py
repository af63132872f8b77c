"""A broker's process, as far as topics' logs go: it opens one, appends, reads, trims, and lets it go or loses it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from magnetar_bookie.errors import AddFailed
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import NewLedger
from magnetar_bookie.ledger.ledger_writer import AppendCallback, LedgerWriter
from magnetar_bookie.read.striping import Striping
from magnetar_broker import paths
from magnetar_broker.admin.ledger_locations import LedgerLocations
from magnetar_broker.admin.read_planner import ReadPlanner
from magnetar_broker.errors import BrokerError, LostEntry
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.log_entry import NewEntry, get_chunk
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.orphaned_ledgers import OrphanedLedgerDeleter
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.position import EARLIEST, Position
from magnetar_broker.topics.topic_deletion import delete_topic, finish_deletion
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_protos.reading_pb2 import PlanRequest
from magnetar_wire.entry import decode_entry, encode_entry
from magnetar_wire.topic_name import TopicName
from tests.sim.invariants import Checker
from tests.sim.topics.planned import BEFORE_LEDGERS
from tests.sim.world.chain_writer import ChainWriter
from tests.sim.world.lag_watch import AddsWatch

if TYPE_CHECKING:
    from tests.sim.topics.world import TopicWorld

__all__ = ["TopicOwner"]

_METADATA = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)


class _WatchedClient(LedgerClient):
    """Reports to the checker which ledger is appended to, and what was acknowledged."""

    checker: Checker

    async def create(
        self,
        striping: Striping,
        purpose: str,
        properties: Mapping[str, bytes] | None = None,
        *,
        explicit_lac: bool = True,
    ) -> tuple[NewLedger, LedgerWriter]:
        made, writer = await super().create(striping, purpose, properties, explicit_lac=explicit_lac)
        append, checker = writer.append_entries, self.checker

        @lru_cache(maxsize=4)  # the writer joins consecutive adds with the same callback
        def watch(done: AppendCallback) -> AppendCallback:
            def report(result: int | AddFailed, count: int) -> None:
                if isinstance(result, int):
                    for entry_id in range(result, result + count):
                        checker.acked(made.ledger_id, entry_id)
                done(result, count)

            return report

        def watched(entries: Sequence[bytes], done: AppendCallback) -> int:
            first = append(entries, watch(done))
            for entry_id, entry in enumerate(entries, first):
                checker.appended(made.ledger_id, entry_id, entry)
            return first

        writer.append_entries = watched  # type: ignore[assignment]
        return made, writer


class TopicOwner(ChainWriter):
    world: TopicWorld

    def __init__(self, world: TopicWorld, name: str) -> None:
        super().__init__(world, name)
        # By log: the message whose next chunk is to come, that chunk's number, and how many it has.
        self._begun: dict[ManagedLedger, tuple[str, int, int]] = {}

    async def main(self) -> None:
        while True:
            store = await self.open_metadata()
            client = _WatchedClient(store, self.transport, self.clock, self.chance, self.world.plan.client)
            client.checker = self.world.checker
            self.client, self.adds = client, AddsWatch(client, self.world.checker)
            sweeper = OrphanedLedgerDeleter(client, self.clock, self.chance, 2.0)
            sweeping = asyncio.get_running_loop().create_task(sweeper.run())
            try:
                await client.start()
                await self.work(client, store)
                return
            except MetadataError as error:
                self.trace(f"{type(error).__name__}: {error}")
            finally:
                sweeping.cancel()
                await client.close()
                await store.close()
            await self.clock.sleep(0.2 + self.chance.random())

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        world, chance = self.world, self.chance
        while world.entries_left > 0 and store.session.state.name != "LOST":
            name = chance.choice(world.topics)
            if chance.random() < world.deletes:
                await self._delete(client, name)
            log = await self.opened(client, name)
            if log is not None:
                await self._own(log)
            await self.clock.sleep(0.1 + chance.random() * chance.choice((0.5, 3.0)))

    async def opened(self, client: LedgerClient, name: TopicName) -> ManagedLedger | None:
        options = self.world.options
        cache = EntryCache(self.chance.choice((0, 2_000, 1_000_000)), 2)
        finish = partial(finish_deletion, name, client=client, clock=self.clock, randomness=self.chance)
        try:
            log = await ManagedLedger.open(
                name, client, cache, options, self.clock, self.chance, finish_deletion=finish, if_absent=NewTopic()
            )
        except BrokerError as error:
            self.trace(f"could not open {name}: {error}")
            self.world.count("could not open a topic")
            return None
        self.trace(f"has {name}, from {log.before_first} to {log.last}")
        self.world.count("opened")
        return log

    async def _delete(self, client: LedgerClient, name: TopicName) -> None:
        try:
            await delete_topic(name, client, self.clock, self.chance)
            self.world.count("topics deleted")
        except (BrokerError, MetadataError) as error:
            self.trace(f"could not delete {name}: {error}")

    async def _own(self, log: ManagedLedger) -> None:
        world, chance = self.world, self.chance
        lost: list[object] = []
        log.on_lost = lost.append
        ends = self.clock.monotonic() + chance.random() * chance.choice((1.0, 5.0, 15.0))
        while not lost and world.entries_left > 0 and self.clock.monotonic() < ends:
            for _ in range(1 + chance.below(8)):
                self.append(log)
            await self.clock.sleep(chance.random() * chance.choice((0.002, 0.1, 0.5)))
            log.tick()
            try:
                if chance.random() < 0.15:
                    await self.read(log, most=1 + chance.below(20))
                if chance.random() < 0.05:
                    await self._trim(log)
                if world.plans and chance.random() < world.plans:
                    await self._plan(log)
                if chance.random() < world.leases:
                    await self._lease(log)
                if chance.random() < world.leases / 2:
                    await self._lease_and_trim(log)
            except BrokerError as error:
                self.trace(f"{type(error).__name__}: {error}")
        if lost:
            self.trace(f"lost it: {lost[0]}")
            world.count("lost")
        elif chance.random() < 0.5:
            await log.close()
        else:
            log.abandon()

    async def _trim(self, log: ManagedLedger) -> None:
        acknowledged = list(self.world.history(log.incarnation).acknowledged.values())
        if not acknowledged:
            return
        up_to = self.chance.choice(acknowledged)
        if self.world.plans:
            # The follower keeps what it needs.
            needed = self.world.planned.needed.get(log.incarnation)
            up_to = EARLIEST if needed is None else min(up_to, needed.position.previous)
        if await log.trim(lambda: up_to):
            self.world.count("trimmed")

    async def _lease_and_trim(self, log: ManagedLedger) -> None:
        """Lease and trim at the same time."""
        for error in await asyncio.gather(self._lease(log), self._trim(log), return_exceptions=True):
            if error is not None:
                raise error

    async def _lease(self, log: ManagedLedger) -> None:
        """Do what a reader requests: a lease, which goes forward only, a renewal, or its end."""
        world, chance, leased = self.world, self.chance, self.world.leased
        reader, incarnation = chance.choice(world.lease_readers), log.incarnation
        lease_id = leased.lease_id(incarnation, reader)
        known, drawn = leased.get(incarnation, lease_id), chance.random()
        if known is not None and drawn < 0.3:
            await log.leases.renew_lease(lease_id, known.lease_ms)
            entries: Mapping[int, int] = known.entries
            world.count("leases renewed")
        elif known is not None and drawn < 0.4:
            leased.ending(incarnation, reader)
            await log.leases.end_lease(lease_id)
            return
        else:
            first = chance.choice([one.ledger_id for one in log.stats().ledgers] or [log.before_first.ledger_id + 1])
            first = max(first, leased.requested_from(incarnation, lease_id))
            lease_ms = chance.choice((1_000, 6_000, 30_000))
            if known is not None:
                lease_ms = max(lease_ms, known.lease_ms)
            leased.asking(incarnation, lease_id, first)
            await log.leases.take_lease(lease_id, first, lease_ms, self.name)
            entries = {one.ledger_id: one.entries for one in log.stats().ledgers if one.ledger_id >= first}
            entries = {ledger_id: count for ledger_id, count in entries.items() if count}
            world.count("leases taken")
            if entries:
                leased.granted(incarnation, lease_id, first, lease_ms, entries)
            return
        leased.granted(incarnation, lease_id, known.from_ledger_id, known.lease_ms, entries)

    async def _plan(self, log: ManagedLedger) -> None:
        """Plan as a reader does that follows the log: from the end of the last plan, of any broker."""
        world, chance = self.world, self.chance
        client = self.client
        assert client is not None
        begin = world.planned.position(log.incarnation)
        request = PlanRequest(
            max_messages=chance.choice((0, 1, 5, 30)),
            max_bytes=chance.choice((0, 0, 50, 1_000)),
            before_ledgers=BEFORE_LEDGERS,
            before_bytes=2**40,
        )
        request.start.ledger_id, request.start.entry_id, request.start.skip_messages = begin
        acknowledged = list(world.history(log.incarnation).acknowledged.values())
        plans = ReadPlanner(LedgerLocations(client), lambda ids, _: dict.fromkeys(ids, ""))
        plan = await plans.plan(log, request)
        world.count("plans")
        if world.planned.position(log.incarnation) == begin and not world.checker.history.destroyed_in(str(log.name)):
            world.guarded(world.planned.answered, plan, begin, acknowledged)
            world.guarded(world.planned.answered_before, plan, begin)
            world.count("entries planned", plan.messages)
            if chance.random() < 0.7:
                # As a subscription does that is moved to there.
                up_to = Position(plan.needed_from.ledger_id, plan.needed_from.entry_id).previous
                if await log.trim(lambda: up_to):
                    world.count("trimmed up to what is needed")

    def append(self, log: ManagedLedger) -> None:
        world = self.world
        world.entries_left -= 1
        self.made += 1
        owner = f"{self.name}.{self.runs_started}".encode()
        payload = b"%s %d %s" % (owner, self.made, b"." * self.chance.below(world.plan.filling_bytes))
        history = world.history(log.incarnation)
        history.appended[payload] = None
        metadata = self._chunk(log) if world.plans and self.chance.random() < 0.3 else _METADATA
        new = NewEntry(encode_entry(metadata, payload), 1, 0, get_chunk(metadata))
        log.append([new], partial(self._on_appended, log.incarnation, owner, payload, metadata))

    def _chunk(self, log: ManagedLedger) -> MessageMetadata:
        """Return the next chunk of a message that was begun, or the first one of another."""
        message, number, chunks = self._begun.pop(log, ("", 0, 0))
        if not message:
            message, number, chunks = f"{self.name}.{self.runs_started}.{self.made}", 0, 2 + self.chance.below(3)
        if number + 1 < chunks:
            self._begun[log] = message, number + 1, chunks
        return MessageMetadata(
            producer_name="p",
            sequence_id=0,
            publish_time=1,
            uuid=message,
            chunk_id=number,
            num_chunks_from_msg=chunks,
            total_chunk_msg_size=1,
        )

    def _on_appended(
        self,
        incarnation: str,
        owner: bytes,
        payload: bytes,
        metadata: MessageMetadata,
        result: Sequence[Position] | BrokerError,
    ) -> None:
        if isinstance(result, BrokerError):
            self.world.count(f"refused: {type(result).__name__}")
            return
        self.world.count("entries acknowledged")
        self.world.guarded(self.world.history(incarnation).was_acknowledged, owner, payload, result[0])
        if metadata.uuid:
            self.world.planned.chunk_stored(
                incarnation, metadata.uuid, metadata.chunk_id, metadata.num_chunks_from_msg, result[0]
            )

    async def read(self, log: ManagedLedger, most: int) -> list[tuple[Position, bytes, int]]:
        found: list[tuple[Position, bytes, int]] = []
        start = EARLIEST
        while len(found) < most:
            try:
                entries = await log.read(start, 1 + self.chance.below(5), 1_000_000)
            except LostEntry as error:
                self.world.guarded(self.world.was_lost, error.position)
                start = error.position.next
                continue
            if not entries:
                break
            for entry in entries:
                self.world.checker.was_read(*entry.position, entry.stored)
                found.append((entry.position, decode_entry(entry.stored).payload, entry.index))
            start = Position(found[-1][0].ledger_id, found[-1][0].entry_id + 1)
        self.world.count("read", len(found))
        return found


class LastOwner(TopicOwner):
    """The last owner, after all has healed: it opens each topic, appends, and reads it whole."""

    def __init__(self, world: TopicWorld, name: str) -> None:
        super().__init__(world, name)
        self.doing = "starts"
        self.done = False

    async def work(self, client: LedgerClient, store: MetadataStore) -> None:
        for name in self.world.topics:
            while not await self._whole(client, name):
                await self.clock.sleep(0.5)
        self.doing = "sweeps what deleted topics left"
        while await store.children(paths.LEASED_LEDGERS):
            await self.clock.sleep(0.5)
        self.done = True

    async def _whole(self, client: LedgerClient, name: TopicName) -> bool:
        self.doing = f"opens {name}"
        log = await self.opened(client, name)
        if log is None:
            return False
        try:
            self.doing = f"writes {name}"
            self.append(log)
            while log.pending_bytes:
                await self.clock.sleep(0.05)
            self.doing = f"reads {name}"
            found = await self.read(log, most=10**9)
            await log.trim(lambda: EARLIEST)  # finishes what deletions there are
            await log.close()
        except BrokerError as error:
            self.doing += f": {error}"
            self.trace(self.doing)
            log.abandon()
            return False
        destroyed = self.world.checker.history.destroyed_in(str(log.name))
        self.world.guarded(self.world.history(log.incarnation).check, log.before_first, found, destroyed)
        there = [*(one[0] for one in found), *(Position(*one) for one in destroyed)]
        self.world.guarded(self.world.planned.check, log.incarnation, log.before_first, there)
        self.world.count("found at the end", len(found))
        return True
