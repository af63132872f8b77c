"""A producer of an application: it sends in bursts, gets the result of each message, and reopens now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar import ProducerAccessMode, aio
from magnetar.exceptions import MagnetarException
from magnetar_testing.randomness import SeededRandomness
from tests.sim.service.errors import check_error
from tests.sim.service.history import ProducerSeen
from tests.sim.service.opaque_schema import OpaqueSchema
from tests.sim.service.plan import ProducerPlan

if TYPE_CHECKING:
    from tests.sim.service.application import Application

__all__ = ["produce"]

_MOST_PENDING = 40
_LONGEST_BURST = 8
_SCHEMA_VERSIONS = 3
_EXCLUSIVE_MODES = (
    ProducerAccessMode.Exclusive,
    ProducerAccessMode.WaitForExclusive,
    ProducerAccessMode.WaitForExclusive,
    ProducerAccessMode.ExclusiveWithFencing,
)


async def produce(host: Application, client: aio.Client, plan: ProducerPlan, chance: SeededRandomness) -> None:
    world = host.world
    await host.topic_is_there(plan.topic)
    openings = 0
    while not world.quiet and world.entries_left > 0:
        try:
            options = _options(plan, openings)
            if plan.is_exclusive:
                options["access_mode"] = chance.choice(_EXCLUSIVE_MODES)
            openings += 1
            producer = await client.create_producer(plan.topic.name, **options)
        except MagnetarException as error:
            host.trace(f"no producer on {plan.topic.name}: {type(error).__name__}: {error}")
            check_error(world, "no producer", error)
            await host.clock.sleep(0.2 + chance.random())
            continue
        await _Producing(host, producer, plan, chance).run()


def _options(plan: ProducerPlan, openings: int) -> dict[str, Any]:
    """Two of three openings have a schema, of another version each time, and producers begin with different ones."""
    options = {**plan.options, "producer_name": plan.name} if plan.name else dict(plan.options)
    if openings % 3 < 2:
        options["schema"] = OpaqueSchema((openings + plan.keyed) % _SCHEMA_VERSIONS)
    return options


class _Producing:
    def __init__(self, host: Application, producer: aio.Producer, plan: ProducerPlan, chance: SeededRandomness) -> None:
        self._host = host
        self._world = host.world
        self._producer = producer
        self._plan = plan
        self._chance = chance
        self._seen = ProducerSeen(
            host.new_name(),
            plan.topic.name,
            plan.topic.partitions > 0,
            may_wait=plan.options["max_pending_messages"] <= _MOST_PENDING,
            is_exclusive=plan.is_exclusive,
        )
        self._number = 0
        self._pending = 0
        # It has reported its end.
        self._over = False

    async def run(self) -> None:
        host, world, chance = self._host, self._world, self._chance
        world.judged(world.history.producer_opened, self._seen)
        host.trace(f"has producer {self._seen.name} on {self._seen.topic}: {self._producer.producer_name()}")
        ends = host.clock.monotonic() + chance.random() * chance.choice((1.0, 5.0, 20.0))
        while not (self._over or world.quiet or world.entries_left <= 0 or host.clock.monotonic() > ends):
            for _ in range(1 + chance.below(_LONGEST_BURST)):
                if self._pending < _MOST_PENDING and world.entries_left > 0:
                    host.spawn(self._send())
            await host.clock.sleep(2 * chance.random() * world.service.pause_s * self._plan.pause_share)
        if chance.random() < 0.2 and not self._over:
            await self._flush()
        await self._producer.close()

    async def _send(self) -> None:
        """Send one message. Tasks begin in the order in which they are created."""
        host, world, seen = self._host, self._world, self._seen
        world.entries_left -= 1
        self._number += 1
        filling = b"." * self._chance.below(self._plan.longest_filling)
        payload = f"{seen.topic}|{seen.name}|{self._number}|".encode() + filling
        key = f"k{self._chance.below(5)}" if self._plan.keyed else None
        host.trace(f"sends {payload!r}")
        world.judged(world.history.sending, seen, payload, key or "")
        self._pending += 1
        host.pending += 1
        try:
            message_id = await self._producer.send(payload, partition_key=key)
        except MagnetarException as error:
            host.trace(f"{payload!r} failed: {type(error).__name__}: {error}")
            check_error(world, "send failed", error)
            self._over = not self._producer.is_connected()
            world.judged(world.history.send_failed, seen, payload, error)
        else:
            host.trace(f"{payload!r} is stored at {message_id}")
            world.count("messages stored")
            world.judged(world.history.stored, seen, payload, message_id)
        finally:
            self._pending -= 1
            host.pending -= 1

    async def _flush(self) -> None:
        try:
            await self._producer.flush()
        except MagnetarException as error:
            check_error(self._world, "flush failed", error)
