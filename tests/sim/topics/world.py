"""The simulated world with brokers instead of writers of chains.

All checks of ledgers apply here, too; each topic's list is checked like a chain; and `history.py` checks the results of
topics' owners.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from magnetar_broker import paths
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_wire.topic_name import TopicName
from tests.sim.invariants.ending import unrest
from tests.sim.invariants.history import LEDGERS, Chain, Violation, stored_payload
from tests.sim.invariants.metadata import change_chain
from tests.sim.invariants.saturation import ledger_listed
from tests.sim.process import Process
from tests.sim.topics.history import TopicHistory, chain_of
from tests.sim.topics.leased import Leased
from tests.sim.topics.owner import LastOwner, TopicOwner
from tests.sim.topics.planned import Planned
from tests.sim.topics.reader import LeasedReader
from tests.sim.world.plan import FAULTS, NOT_OF_TOPICS, fill_up
from tests.sim.world.world import World

__all__ = ["TopicWorld"]

_LIVENESS_S = 240.0
# The share of seeds in which records rot.
_ROTTEN = 0.25
_REST_S = 240.0


class TopicWorld(World):
    def __init__(self, seed: int, write: Callable[[str], object] | None = None, *, plans: float | None = None) -> None:
        super().__init__(seed, write)
        draw = self.chance.stream("topics")
        self.plan.faults = [fault for fault in self.plan.faults if fault not in NOT_OF_TOPICS]
        while len(self.plan.faults) < 3:
            fault = draw.choice(list(FAULTS))
            if fault not in NOT_OF_TOPICS and (self.plan.losers or fault not in ("bit flip", "lossy restart")):
                self.plan.faults.append(fault)
        fill_up(self.plan, self.chance.stream("saturation"))
        self.plan.fault_interval_s = 0.5 + 2 * draw.random()
        self.plan.entries = self.entries_left = draw.choice((100, 300, 600))
        self.deletes = draw.choice((0.0, 0.0, 0.2))
        self.topics = [TopicName.parse(f"t{number}") for number in range(draw.choice((1, 1, 2)))]
        self._of_path = {paths.topic(name): str(name) for name in self.topics}
        striping = self.plan.striping
        self.options = ManagedLedgerSettings(
            managed_ledger_default_ensemble_size=striping.ensemble_size,
            managed_ledger_default_write_quorum=striping.write_quorum,
            managed_ledger_default_ack_quorum=striping.ack_quorum,
            managed_ledger_max_entries_per_ledger=draw.choice((3, 8, 30)),
            managed_ledger_min_ledger_rollover_time_minutes=0,
            managed_ledger_max_ledger_rollover_time_minutes=draw.choice((0.02, 0.2, 10.0)),
            managed_ledger_max_pending_bytes=draw.choice((500, 30_000, 600_000)),
        )
        self.histories: dict[str, TopicHistory] = {}
        self.leased = Leased(lambda: self.loop.now, self.checker.history)
        self.leases = draw.choice((0.0, 0.1, 0.3))
        # How often somebody plans who follows the logs.
        self.plans = self.chance.stream("plans").choice((0.0, 0.0, 0.3)) if plans is None else plans
        self.planned = Planned()
        # Records at the ends of topics' last ledgers rot, in one replica or in all. Of a stream of its own: no seed
        # without it is another one for it.
        rot = self.chance.stream("rot")
        self.rots = rot.random() < _ROTTEN
        self._rot = rot
        self.lease_readers = range(3)
        self.hosts = [host for host in self.hosts if host not in self.clients]
        self.clients = [TopicOwner(self, f"broker{number}") for number in range(draw.choice((1, 2, 3)))]
        if self.leases:
            self.clients.append(LeasedReader(self, "reader"))
        self.admins = []
        for host in self.clients:
            host.skew_ms = draw.below(120_000) - 60_000
        self.hosts += self.clients

    def history(self, incarnation: str) -> TopicHistory:
        return self.histories.setdefault(incarnation, TopicHistory())

    def guarded(self, check: Callable[..., None], *arguments: object) -> None:
        """A violation ends the run, from any check."""
        try:
            check(*arguments)
        except Violation as violation:
            self.failed(self.loop.current_process, "it must not", violation)

    def _metadata_changed(self, path: str, value: bytes | None, by: Process) -> None:
        super()._metadata_changed(path, value, by)
        if path.startswith(LEDGERS):
            ledger_id = int(path.removeprefix(LEDGERS).replace("/", ""), 16)
            self.guarded(self.leased.ledger_changed, ledger_id, self.checker.history.ledger(ledger_id).metadata)
        name = self._of_path.get(path)
        if name is not None:
            self.guarded(self._topic_changed, name, value)

    def was_lost(self, position: Position) -> None:
        """A broker reports that no bookie has an entry."""
        self.count("lost entries read")
        self.checker.history.look("67")
        if tuple(position) not in self.checker.history.destroyed:
            raise Violation("67", f"entry {position} is reported as lost, and was never destroyed on all bookies")

    def _topic_changed(self, name: str, value: bytes | None) -> None:
        history = self.checker.history
        new = Chain() if value is None else chain_of(pb.ManagedLedgerNode.FromString(stored_payload(value)))
        old = history.chains.get(name, Chain())
        # An owner takes off the end what was closed empty.
        if old.ledgers and new.ledgers and old.ledgers[-1] in new.deleting and old.ledgers[-1] not in new.ledgers:
            last = history.ledger(old.ledgers[-1])
            if last.acked >= 0:
                raise Violation("5", f"{name} lets ledger {last.ledger_id} go, in which something was acknowledged")
            old.ledgers.pop()
            last.may_go = "it was empty"
        for ledger_id in new.ledgers:
            state = history.ledger(ledger_id).metadata
            if state is None:
                raise Violation("58", f"{name} lists ledger {ledger_id}, which is not there")
        added = [ledger_id for ledger_id in new.ledgers if ledger_id not in old.ledgers]
        change_chain(history, name, new)
        for ledger_id in added:
            ledger_listed(history, name, ledger_id)

    async def _whole(self) -> None:
        clock, draw = self.bookies[0].disk.clock, self.chance.stream("start")
        self.trace.line("world", f"seed {self.seed}: {self.plan} {self.options}")
        for host in self.hosts:
            host.start()
            await clock.sleep(0.05 * draw.random())
        self.loop.outside.spawn(self._keep_metadata_connected())
        self.loop.outside.spawn(self.watch_unanswered())
        await clock.sleep(0.5)
        if self.rots:
            self.loop.outside.spawn(self._let_rot())
        await self.faults.inject_all(self.plan.active_s)
        self.quiet = True
        self.entries_left = 0
        self.trace.line("world", "all heals")
        self.faults.heal()
        for client in self.clients:
            client.kill()
        last = LastOwner(self, "last")
        self.hosts.append(last)
        last.start()
        await self._until(lambda: last.done, lambda: ("20", f"the last owner {last.doing}"), _LIVENESS_S)
        names = [bookie.name for bookie in self.bookies]
        await self._until(
            lambda: unrest(self.checker.history, self.metadata, names) is None,
            lambda: unrest(self.checker.history, self.metadata, names) or ("58", "it rests"),
            _REST_S,
        )
        self.trace.line("world", "all is well")

    async def _let_rot(self) -> None:
        clock, draw = self.bookies[0].disk.clock, self._rot
        while True:
            await clock.sleep(0.5 + 4 * draw.random())
            if self.quiet:
                return
            chain = self.checker.history.chains.get(str(draw.choice(self.topics)))
            ledger = self.checker.history.ledger(chain.ledgers[-1]) if chain is not None and chain.ledgers else None
            if ledger is None or ledger.acked < 0:
                continue
            entry = ledger.ledger_id, draw.choice((0, ledger.acked))
            losers = [self.bookies[number] for number in self.plan.losers]
            if not losers or draw.random() < 0.5:
                if self.checker.entry_destroyed(*entry):
                    self.trace.line("world", f"entry {entry} rots everywhere")
                    self.count("rotten everywhere")
            else:
                bookie = draw.choice(losers)
                self.checker.disk_loses(bookie.name, partial(bookie.disk.damage, *entry))
                self.count("rotten on one bookie")

    async def _until(
        self, condition: Callable[[], bool], describe: Callable[[], tuple[str, str]], longest_s: float
    ) -> None:
        clock, waited_s = self.bookies[0].disk.clock, 0.0
        while not condition():
            await clock.sleep(0.25)
            waited_s += 0.25
            for bookie in self.bookies:
                if not bookie.runs and not bookie.refused:
                    bookie.start()
            if waited_s > longest_s:
                item, words = describe()
                raise Violation(item, f"{waited_s:.0f} s after all has healed: {words}")
