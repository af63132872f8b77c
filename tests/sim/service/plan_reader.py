"""A reader past the brokers, like Spark's source: it asks for plans with leases, through any broker, and reads what
they name from the bookies later, with plain reads. It renews its leases or lets them lapse. Some of what it follows are
reads that share one lease with those of all other readers, as batches of a driver do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.admin import AsyncAdmin
from magnetar.admin.reading import MessagePosition, Piece, Plan
from magnetar.exceptions import MagnetarException
from magnetar_bookie.read.entry_reader import EntriesNotRead, EntryReader
from magnetar_bookie.read.record import extract_entry
from magnetar_bookie.read.striping import Fragment, Striping
from magnetar_protos.ledger_pb2 import ReadAnswer, ReadRequest
from magnetar_wire.topic_name import TopicName
from tests.sim.service.operator import admin_of
from tests.sim.service.plan_leases import PlanGrant
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["PlanReader"]

_LEASE_ID_BYTES: Final = 16
_SHARED_LEASE: Final = b"shared by reads!"


class PlanReader(Host):
    world: ServiceWorld

    async def main(self) -> None:
        admin = admin_of(self, self.chance)
        while not self.world.quiet:
            try:
                await self._follow(admin)
            except MagnetarException as error:
                self.world.trace.line(self.name, f"{type(error).__name__}: {error}")
                self.world.count(f"planning failed: {type(error).__name__}")
            await self.clock.sleep(self.chance.random() * self.chance.choice((0.1, 1.0)))

    async def _follow(self, admin: AsyncAdmin) -> None:
        """Follows a log for some plans, under one lease."""
        chance, leases = self.chance, self.world.leases
        topic = chance.choice(self.world.service.topics)
        name = str(TopicName.parse(topic.name))
        if topic.partitions:
            name = str(TopicName.parse(topic.name).partition(chance.below(topic.partitions)))
        lease_id, read_id = bytes(chance.below(256) for _ in range(_LEASE_ID_BYTES)), b""
        if chance.random() < 0.5:
            lease_id, read_id = _SHARED_LEASE, lease_id
        lease_ms = chance.choice((1_000, 4_000, 20_000))
        start, incarnation = MessagePosition(0, 0), ""
        grant: PlanGrant | None = None
        for _ in range(1 + chance.below(4)):
            if grant is not None:
                leases.release(grant)  # the lease moves on, whether that is answered or not
            requested_at = self.clock.monotonic()
            plan = await admin.reading.plan(
                name,
                incarnation=incarnation,
                start=start,
                max_messages=chance.choice((0, 3, 20)),
                lease_ms=lease_ms,
                lease_id=lease_id,
                holder=self.name,
                read_id=read_id,
            )
            if plan.other_incarnation:
                return
            self.world.count("plans with leases")
            grant = leases.granted(name, (piece.ledger_id for piece in plan.pieces), requested_at, lease_ms)
            await self._use(admin, plan, grant, name, lease_id, read_id, lease_ms)
            start, incarnation = plan.stop, plan.incarnation
            if read_id and chance.random() < 0.3:
                grant.until = min(grant.until, self.clock.monotonic() + lease_ms / 4000)
                await admin.reading.finish_part(name, lease_id, read_id, 0, 1)
                self.world.count("reads of a shared lease finished")
        if chance.random() < 0.3:
            leases.release(grant) if grant is not None else None
            await admin.reading.end_lease(name, lease_id, read_id=read_id)

    async def _use(
        self, admin: AsyncAdmin, plan: Plan, grant: PlanGrant, name: str, lease_id: bytes, read_id: bytes, lease_ms: int
    ) -> None:
        """Reads the plan's ranges, some of them several times, until it has enough of it or its lease has lapsed."""
        chance, leases = self.chance, self.world.leases
        for _ in range(1 + chance.below(5)):
            await self.clock.sleep(chance.random() * chance.choice((0.05, 0.5, 1.5)))
            if chance.random() < 0.5:
                requested_at = self.clock.monotonic()
                await admin.reading.renew_lease(name, plan.incarnation, lease_id, lease_ms, read_id=read_id)
                grant.until = max(grant.until, requested_at + lease_ms / 2000)
                self.world.count("leases of plans renewed")
            if not plan.pieces or not leases.holds(grant):
                continue
            await self._read(plan, chance.choice(plan.pieces), grant)

    async def _read(self, plan: Plan, piece: Piece, grant: PlanGrant) -> None:
        async def ask(bookie_id: str, request: ReadRequest, timeout_s: float) -> ReadAnswer:
            connection = self.transport.connect(plan.bookies[bookie_id])
            try:
                return ReadAnswer.FromString(
                    await connection.call("read", request.SerializeToString(), timeout_s=timeout_s)
                )
            finally:
                await connection.close()

        reader = EntryReader(
            piece.ledger_id,
            Striping(piece.ensemble_size, piece.write_quorum, piece.ack_quorum),
            [Fragment(one.first_entry_id, one.bookies) for one in piece.fragments],
            ask,
            self.clock,
            timeout_s=1.0,
            speculative_timeout_s=0.2,
        )
        at = piece.first_entry_id
        while at <= piece.last_entry_id:
            try:
                found = await reader.read(at, piece.last_entry_id)
            except EntriesNotRead as error:
                held = "held" if self.world.leases.holds(grant) else "lapsed"
                self.world.trace.line(self.name, f"could not read (its lease {held}): {error}")
                self.world.count(
                    f"planned, {held}, and could not be read" + (" by anybody" if error.all_answered else "")
                )
                return
            for record in found.records:
                self.world.judged(self.world.checker.was_read, piece.ledger_id, at, extract_entry(record))
                at += 1
            self.world.count("planned entries read", len(found.records))
