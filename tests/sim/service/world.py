"""The simulated world with all that there is: bookies, brokers, applications and an administrator, in production code.

All that is asserted of ledgers is asserted here, too; of each topic's list, and each cursor's, what is asserted of a
chain; and of messages and acknowledgements `history.py`.

active   applications publish and consume during faults
quiet    `ending.py`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from magnetar_broker import paths
from magnetar_broker.cursors.subscription_limits import is_internal_cursor
from magnetar_broker.managed_ledger.ledger_lifetime_settings import (
    create_retention_policy,
    create_retention_without_subscription,
)
from magnetar_protos import cursor_pb2
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.schema_pb2 import SchemaNode
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.topic_name import TopicName
from tests.sim.clock import SimulatedClock
from tests.sim.invariants.history import LEDGERS, TOPIC_GOES, Chain, Violation, stored_payload
from tests.sim.invariants.metadata import change_chain
from tests.sim.invariants.saturation import ledger_listed, topic_opened
from tests.sim.process import Process
from tests.sim.service.adds_by_call import watch_calls
from tests.sim.service.ambushes import Ambushes
from tests.sim.service.application import Application
from tests.sim.service.broker_host import BrokerHost
from tests.sim.service.bundle_owners import check_bundles, check_taken
from tests.sim.service.faults import ServiceFaults
from tests.sim.service.history import MessageHistory
from tests.sim.service.memory_watch import MemoryWatch
from tests.sim.service.operator import Operator
from tests.sim.service.plan import service_plan
from tests.sim.service.plan_leases import PlanLeases
from tests.sim.service.plan_reader import PlanReader
from tests.sim.service.retained import Retained
from tests.sim.service.schema_versions import SchemaVersions
from tests.sim.service.served_sessions import ServedSessions
from tests.sim.service.sessions import watch_session_ends
from tests.sim.service.storage_faults import StorageFaults
from tests.sim.topics.history import chain_of
from tests.sim.world.plan import fill_up
from tests.sim.world.world import World

__all__ = ["ServiceWorld"]

T = TypeVar("T")
_OFTEN_S: Final = 0.6
# Between two looks at what brokers hold.
_LOOK_S: Final = 0.05
# Of the path /schemas/<tenant>/<namespace>/<domain>/<topic>.
_SCHEMA_PARTS: Final = 6


class ServiceWorld(World):
    def __init__(self, seed: int, write: Callable[[str], object] | None = None, faults: Sequence[str] = ()) -> None:
        """`faults`: only these, and often."""
        super().__init__(seed, write)
        self.service = service_plan(self.chance, self.plan)
        if faults:
            self.plan.faults, self.plan.fault_interval_s = list(faults), _OFTEN_S
        if fill_up(self.plan, self.chance.stream("saturation")):
            self.service.fill_up()
        self.metadata.session_timeout_s = self.service.session_timeout_s
        self.metadata.on_taken = self._owner_replaced
        self.history = MessageHistory(lambda: self.loop.elapsed_s)
        self.history.published.deduplicates = self.service.options.broker_deduplication_enabled
        self.history.sessions.metadata = self.metadata
        for (topic, subscription), most in self.service.letters.items():
            self.history.letters.expect(topic, subscription, most)
        watch_session_ends(self)
        self.sessions = ServedSessions()
        self.memory = MemoryWatch(self, self.history.look)
        for tap in (self.history.wire, self.history.sessions, self.memory):
            tap.on_violation = self._violated
            self.network.stream_taps.append(tap)
        self.entries_left = self.service.messages
        # Brokers that end are not started again.
        self.over = False
        # Partitioned topics that are there.
        self.made_partitioned: dict[str, None] = {}
        # Of topics whose deletion was begun: the incarnation.
        self._dying: dict[str, str] = {}
        # Paths of topics → their full names.
        self._topics: dict[str, str] = {}
        self.brokers = [BrokerHost(self, f"broker{number}") for number in range(self.service.brokers)]
        # Those that are there until the end.
        self.staying = self.brokers
        if self.service.in_one_process:
            self.bookies[0].join(self.brokers[0])
            self.network.hand_over = partial(watch_calls, self)
        self.applications = [
            Application(self, f"app{number}", works) for number, works in enumerate(self.service.applications)
        ]
        self.operator = Operator(self, "operator")
        self.leases = PlanLeases(lambda: self.loop.now, self.history.look)
        self.schemas = SchemaVersions()
        policy = create_retention_policy(self.service.options)
        self.retained = Retained(
            (policy or create_retention_without_subscription(self.service.options)).time_ms,
            self._wall_clock_ms,
            lambda ledger_id: self.checker.history.ledger(ledger_id).metadata,
            self.history.look,
            policy is not None,
        )
        self.plan_readers = [PlanReader(self, f"planner{number}") for number in range(self.service.plan_readers)]
        self.network.keeps_alive = True
        self.admins = []
        self.clients = [*self.brokers, *self.applications]  # type: ignore[list-item]
        self.hosts = [*self.bookies, *self.brokers, *self.applications, self.operator, *self.plan_readers]
        skew = self.chance.stream("skew of the service")
        for host in self.hosts[len(self.bookies) :]:
            host.skew_ms = skew.below(120_000) - 60_000
        self.faults.add(ServiceFaults(self, self.chance.stream("faults of the service")))
        self.faults.add(Ambushes(self, self.chance.stream("ambushes")))
        self.faults.add(StorageFaults(self, self.chance.stream("faults of storage")))

    def run(self) -> None:
        with self.sessions.watch():
            super().run()

    @property
    def looked(self) -> dict[str, int]:
        return {**self.checker.history.looked, **self.history.looked}

    def judged(self, check: Callable[..., T], *arguments: Any, **named: Any) -> T | None:
        """A violation ends the run, from any check."""
        try:
            return check(*arguments, **named)
        except Violation as violation:
            self.failed(self.loop.current_process, "it must not", violation)
            return None

    def _violated(self, violation: Violation) -> None:
        self.failed(self.loop.current_process, "it must not", violation)

    def kinds_of(self, topic: str) -> dict[str, str]:
        """Return a topic's or partition's subscriptions of the plan."""
        base = TopicName.parse(topic)
        for plan in self.service.topics:
            whole = TopicName.parse(plan.name)
            if base == whole or any(base == whole.partition(index) for index in range(8)):
                return dict(plan.subscriptions)
        return {}

    # ── the metadata store ──

    def _owner_replaced(self, path: str, owner: Process, by: Process) -> None:
        if path.startswith((paths.OWNERS, paths.BROKERS)):
            self.count("an owner's node was replaced" if path.startswith(paths.OWNERS) else "a broker was unregistered")
            refused = (by.name, owner.name) in self.network.probes_refused
            if refused and not owner.dead:
                self.count("a live broker was taken for dead")
            self.judged(check_taken, path, owner, by, refused, self.history.look)

    def _metadata_changed(self, path: str, value: bytes | None, by: Process) -> None:
        super()._metadata_changed(path, value, by)
        if path.startswith(paths.OWNERS) and value and "/0x" in path:
            self.judged(check_bundles, self.metadata.names(path.rpartition("/")[0]), self.history.look)
        if path.startswith(LEDGERS):
            ledger_id = int(path.removeprefix(LEDGERS).replace("/", ""), 16)
            self.judged(self.leases.ledger_changed, ledger_id, self.checker.history.ledger(ledger_id).metadata)
        if path.startswith(paths.TOPICS):
            self.judged(self._below_topics, path.split("/"), value, by)
        elif path.startswith(paths.SCHEMAS) and len(path.split("/")) == _SCHEMA_PARTS:
            self.judged(self._schema_changed, path, value)

    def _below_topics(self, parts: list[str], value: bytes | None, by: Process) -> None:
        """Handle `/topics/<tenant>/<namespace>/<domain>/<topic>`, and nodes below."""
        if len(parts) < 6:
            return
        _, _, tenant, namespace, domain, local = parts[:6]
        topic = f"{domain}://{tenant}/{namespace}/{decode_path_component(local)}"
        if len(parts) == 6:
            node = None if value is None else pb.ManagedLedgerNode.FromString(stored_payload(value))
            self._listed(topic, Chain() if node is None else chain_of(node))
            if node is not None and node.state == pb.DELETING:
                self._dying[topic] = node.incarnation
                self._cursors_go(topic)
            self.judged(self.history.topic_changed, topic, node, by)
            self.judged(self.retained.topic_changed, topic, node, by)
        elif parts[6:] == ["cursors"]:
            if value is not None:
                topic_opened(self.checker.history, topic, by)
        elif len(parts) == 8 and parts[6] == "cursors":
            cursor = None if value is None else cursor_pb2.CursorNode.FromString(stored_payload(value))
            name = decode_path_component(parts[7])
            self._cursor_listed(f"{topic} {name}", cursor)
            if cursor is not None and cursor.incarnation == self._dying.get(topic):
                self._cursors_go(topic)
            if not is_internal_cursor(name):
                self.history.cursor_changed(topic, name, cursor, by)
                self.retained.cursor_changed(topic, cursor)

    def _wall_clock_ms(self, process: Process) -> int:
        skew_ms = next(broker.skew_ms for broker in self.brokers if broker.name == process.name)
        return SimulatedClock(self.loop, skew_ms).time_ms()

    def _listed(self, name: str, new: Chain) -> None:
        history = self.checker.history
        old = history.chains.get(name, Chain())
        # An owner takes off the end what was closed empty.
        if old.ledgers and new.ledgers and old.ledgers[-1] in new.deleting and old.ledgers[-1] not in new.ledgers:
            last = history.ledger(old.ledgers[-1])
            if last.acked >= 0:
                raise Violation("5", f"{name} lets ledger {last.ledger_id} go, in which something was acknowledged")
            old.ledgers.pop()
            last.may_go = "it was empty"
        for ledger_id in new.ledgers:
            if history.ledger(ledger_id).metadata is None:
                raise Violation("58", f"{name} lists ledger {ledger_id}, which is not there")
        added = [ledger_id for ledger_id in new.ledgers if ledger_id not in old.ledgers]
        change_chain(history, name, new)
        for ledger_id in added:
            ledger_listed(history, name, ledger_id)

    def _cursors_go(self, topic: str) -> None:
        """Allow the deletion of the cursors' ledgers, which go before their nodes."""
        history = self.checker.history
        for name, chain in history.chains.items():
            for ledger_id in chain.ledgers if name.startswith(f"{topic} ") else ():
                history.ledger(ledger_id).may_go = TOPIC_GOES

    def _cursor_listed(self, name: str, node: cursor_pb2.CursorNode | None) -> None:
        if node is None:
            new = Chain()
        elif node.deleted or not node.ledger_id:
            new = Chain([], [*node.deleting, *([node.ledger_id] if node.ledger_id else [])])
        else:
            new = Chain([node.ledger_id], list(node.deleting))
        change_chain(self.checker.history, name, new)

    def _schema_changed(self, path: str, value: bytes | None) -> None:
        node = SchemaNode() if value is None else SchemaNode.FromString(stored_payload(value))
        chain = self.schemas.schema_changed(path, node)
        change_chain(self.checker.history, path, chain)
        if len(chain.ledgers) > 1:
            self.count("a schema has several versions")

    async def _watch_memory(self) -> None:
        clock = self.bookies[0].disk.clock
        while True:
            await clock.sleep(_LOOK_S)
            for host in self.brokers:
                if host.session is not None:
                    self.judged(self.memory.check_broker, host.session)

    # ── the course of a run ──

    async def _whole(self) -> None:
        from tests.sim.service.ending import end

        clock, draw = self.bookies[0].disk.clock, self.chance.stream("start")
        self.trace.line("world", f"seed {self.seed}: {self.plan} {self.service} {self.service.options}")
        for host in self.hosts:
            if not host.runs:
                host.start()
            await clock.sleep(0.05 * draw.random())
        self.loop.outside.spawn(self._keep_metadata_connected())
        self.loop.outside.spawn(self.watch_unanswered())
        self.loop.outside.spawn(self._watch_memory())
        await clock.sleep(0.5)
        await self.faults.inject_all(self.plan.active_s)
        await end(self)
