"""The quiet end: all faults heal, every send is decided, a last application reads every topic and drains every durable
subscription, the brokers end gracefully, and the cluster comes to rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from magnetar import InitialPosition, MessageId, aio
from magnetar.admin import AsyncAdmin
from magnetar.exceptions import ChecksumError, MagnetarException, Timeout, TopicNotFound
from magnetar_broker import paths
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.system_topics import is_system_topic
from magnetar_protos.managed_ledger_pb2 import ManagedLedgerNode
from tests.sim.invariants.ending import unrest
from tests.sim.invariants.history import Violation, stored_payload
from tests.sim.service.application import Application, client_of
from tests.sim.service.consuming import TYPES
from tests.sim.service.history import ConsumerSeen, Found
from tests.sim.service.operator import admin_of, mend
from tests.sim.service.topic_incarnations import of_application

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["end"]

T = TypeVar("T")
_LIVENESS_S: Final = 90.0
_REST_S: Final = 240.0
_LOOK_S: Final = 0.25
# By then all late messages have come.
_NOTHING_MORE_MS: Final = 1_000


class LastApplication(Application):
    def __init__(self, world: ServiceWorld, name: str) -> None:
        super().__init__(world, name, [])
        self.doing = "starts"
        self.done = False

    async def main(self) -> None:
        admin = admin_of(self, self.chance)
        client = client_of(self)
        topics = await self._until_done("lists topics", lambda: admin.topics.list("public/default"))
        for topic in topics or []:
            await self._until_done(f"reads {topic}", partial(self._read, client, topic))
            what = f"lists the subscriptions of {topic}"
            subscriptions = await self._until_done(what, partial(admin.subscriptions.list, topic))
            for subscription in subscriptions or []:
                what = f"drains {subscription} of {topic}"
                await self._until_done(what, partial(self._mend_and_drain, client, admin, topic, subscription))
        self.doing = "closes"
        await client.close()
        await admin.close()
        self.done = True

    async def _until_done(self, what: str, work: Callable[[], Awaitable[T]]) -> T | None:
        self.doing = what
        while True:
            try:
                return await work()
            except TopicNotFound as error:
                self.trace(f"{what}: {error}")
                return None
            except MagnetarException as error:
                self.doing = f"{what}, and meets {type(error).__name__}: {error}"
                self.trace(self.doing)
                await self.clock.sleep(0.5)

    async def _read(self, client: aio.Client, topic: str) -> None:
        """Read the whole topic: a ledger that was trimmed during the read would be missing in the middle."""
        incarnations = self.world.history.incarnations
        ledgers = None
        while ledgers is None or ledgers != incarnations.listed(topic):
            ledgers = incarnations.listed(topic)
            found = await self._found(client, topic)
        self.trace(f"found {len(found)} messages in {topic}")
        self.world.count("found at the end", len(found))
        destroyed = self.world.checker.history.destroyed_in(topic)
        self.world.judged(self.world.history.found, topic, found, destroyed)

    async def _found(self, client: aio.Client, topic: str) -> list[Found]:
        reader = await client.create_reader(topic, MessageId.earliest, start_message_id_inclusive=True)
        found: list[Found] = []
        try:
            while await reader.has_message_available():
                message = await reader.read_next(10_000)
                found.append(Found(message.message_id(), message.data(), message.index()))
        finally:
            await reader.close()
        return found

    async def _mend_and_drain(self, client: aio.Client, admin: AsyncAdmin, topic: str, subscription: str) -> None:
        try:
            await self._drain(client, topic, subscription)
        except ChecksumError:
            # All partitions, as the judge knows moves.
            await mend(self.world, admin, of_application(topic), subscription)
            # Until then the subscription held nothing that it had acknowledged.
            await self._read(client, topic)
            await self._drain(client, topic, subscription)

    async def _drain(self, client: aio.Client, topic: str, subscription: str) -> None:
        kinds = self.world.kinds_of(topic)
        kind = kinds.get(subscription, "EXCLUSIVE")
        seen = ConsumerSeen(self.new_name(), topic, subscription, kind)
        consumer = await client.subscribe(
            topic, subscription, TYPES[kind], consumer_name=seen.name, initial_position=InitialPosition.Earliest
        )
        self.consumers[seen] = None
        history, judged = self.world.history, self.world.judged
        judged(history.consumer_opened, seen)
        given: list[MessageId] = []
        try:
            while True:
                try:
                    message = await consumer.receive(_NOTHING_MORE_MS)
                except Timeout:
                    break
                given.append(message.message_id())
                if self.world.trace.on:
                    self.trace(f"{seen.name} is given {message.data()!r} at {given[-1]}")
                judged(
                    history.delivered,
                    seen,
                    message.data(),
                    given[-1],
                    message.properties(),
                    message.partition_key(),
                )
            judged(history.drained, seen, topic)
            self.world.count("drained at the end", len(given))
            if given:
                judged(history.acknowledging, seen, given, cumulative=False, receipt=True)
                await consumer.acknowledge(given, receipt=True)
                judged(history.acknowledged, seen, given, cumulative=False)
        finally:
            await consumer.close()
            self.consumers.pop(seen)
            judged(history.consumer_ended, seen)


async def end(world: ServiceWorld) -> None:
    world.quiet = True
    world.entries_left = 0
    world.trace.line("world", "all heals")
    world.faults.heal()
    for host in [*world.brokers, *world.applications]:
        host.resume()
    await _until(world, lambda: all(broker.serves for broker in world.brokers), lambda: ("OWN-2", "a broker is away"))
    await _until(world, lambda: not _pending(world), lambda: ("20, 66", f"{_pending(world)} messages are not decided"))
    for host in [*world.applications, world.operator, *world.plan_readers, *world.brokers]:
        host.kill()
    # Who drains a subscription acknowledges nothing before it has everything.
    unbounded = {"max_unacked_messages_per_consumer": 0, "max_unacked_messages_per_subscription": 0}
    world.service.options = type(world.service.options)(**{**world.service.options.model_dump(), **unbounded})
    # A broker that does not know that it has lost a topic goes on with it. Where nothing notifies it, it is left out.
    world.staying = world.brokers[:1] if world.service.everybody_owns else world.brokers
    await _until(world, lambda: all(broker.serves for broker in world.staying), lambda: ("OWN-2", "a broker is away"))
    last = LastApplication(world, "last")
    world.hosts.append(last)
    last.start()
    await _until(world, lambda: last.done, lambda: ("20", f"the last application {last.doing}"))
    world.judged(world.history.check_end)
    await _until(
        world,
        lambda: not world.metadata.names(paths.LEASED_LEDGERS),
        lambda: (
            "SPK-5",
            f"leased ledgers of deleted topics are left: {world.metadata.names(paths.LEASED_LEDGERS)}",
        ),
    )
    await _until(
        world,
        lambda: not _lapsed(world),
        lambda: ("SPK-5", f"nobody removes the leases of {_lapsed(world)}, whose readers have ended"),
    )
    await _until(
        world,
        lambda: not _overdue(world),
        lambda: ("RET-3", f"nobody deletes ledgers that nothing needs or retains: {_overdue(world)}"),
    )
    world.over = True
    for broker in world.brokers:
        broker.stop()
    await _until(world, lambda: not any(broker.runs for broker in world.brokers), lambda: ("20", "a broker goes on"))
    names = [bookie.name for bookie in world.bookies]
    await _until(
        world,
        lambda: unrest(world.checker.history, world.metadata, names) is None,
        lambda: unrest(world.checker.history, world.metadata, names) or ("58", "it rests"),
        _REST_S,
    )
    world.trace.line("world", "all is well")


def _lapsed(world: ServiceWorld) -> list[str]:
    """Return the served topics whose nodes name leases: no reader renews them any more."""
    served = [
        topic.name
        for broker in world.staying
        if broker.broker is not None and broker.broker.session is not None
        for topic in broker.broker.session.topics.loaded()
    ]
    nodes = ((str(name), world.metadata.value(paths.topic(name))) for name in served)
    return [name for name, value in nodes if value and ManagedLedgerNode.FromString(stored_payload(value)).leases]


def _overdue(world: ServiceWorld) -> list[str]:
    """Return the ledgers of served topics that should have been deleted."""
    found = []
    for broker in world.staying:
        for topic in broker.session.topics.loaded() if broker.session is not None else ():
            if isinstance(topic.log, ManagedLedger) and not is_system_topic(topic.name):
                slowest, now_ms = topic.cursors.find_slowest_position(), broker.clock.time_ms()
                ledger_id = world.retained.find_overdue(topic.log, slowest, now_ms)
                found += [] if ledger_id is None else [f"{ledger_id} of {topic.name}"]
    return found


def _pending(world: ServiceWorld) -> int:
    return sum(host.pending for host in world.applications if host.runs)


async def _until(
    world: ServiceWorld,
    condition: Callable[[], bool],
    describe: Callable[[], tuple[str, str]],
    longest_s: float = _LIVENESS_S,
) -> None:
    clock, waited_s = world.bookies[0].disk.clock, 0.0
    while not condition():
        await clock.sleep(_LOOK_S)
        waited_s += _LOOK_S
        for host in world.bookies:
            if not host.runs and not host.refused:
                host.start()
        for broker in world.staying:
            if not (broker.runs or world.over):
                broker.start()
        if waited_s > longest_s:
            item, words = describe()
            raise Violation(item, f"{waited_s:.0f} s after all has healed: {words}")
