"""Hostile clients of Pulsar's protocol on a broker in memory, and beside them an honest one that must not notice.

    python -m tests.property.pulsar_fuzz --frames 1000000 --seed 7

Each part of the run has a broker of its own, and a seed of its own that the line of its failure names: `--seed N
--frames 5000` is that part again. What must hold: the broker logs no error of its own; the honest client's messages
are stored and delivered in their order, once, whole, and nothing else is told to it; and when all connections are gone
nothing of them is left (`running_pulsar_broker`).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from magnetar_protos.entry_pb2 import MessageIdData
from magnetar_protos.pulsar_pb2 import BaseCommand
from magnetar_wire.entry import decode_entry
from tests.property.pulsar_input import PulsarInput
from tests.running import run
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

__all__ = ["Seen", "fuzz_part"]

FRAMES_OF_A_PART: Final = 5_000
_ATTACKERS: Final = 5
_FRAMES_AT_ONCE: Final = 30
# How many of an attacker's turns one look at the honest client goes with.
_TURNS: Final = 25


@dataclass
class Seen:
    frames: int = 0
    connections: int = 0
    # Closed by the broker.
    refused: int = 0
    honest_messages: int = 0
    # What attackers were told, by kind of command.
    told: Counter[int] = field(default_factory=Counter)


def fuzz_part(seed: int, frames: int) -> Seen:
    """Raises `AssertionError` where anything was not as it must be."""
    seen = Seen()

    options: dict[str, Any] = {
        "max_queued_bytes_per_stream": 65_536,
        "max_unfinished_frames_bytes": 4_000_000,
        "max_waiting_requests_per_connection": 20,
        "max_message_ids_at_once": 50,
        "max_pending_publish_bytes_per_topic": 10_000,
        "max_pending_publish_bytes_per_connection": 10_000,
        "connection_liveness_check_timeout_millis": 100,
        "keep_alive_interval_seconds": 0.5,
    }

    async def play() -> None:
        async with running_pulsar_broker(**options) as scene:
            await _Part(scene, Random(seed), frames, seen).run()

    run(play())
    return seen


class _Part:
    def __init__(self, scene: PulsarScene, random: Random, frames: int, seen: Seen) -> None:
        self._scene = scene
        self._random = random
        self._frames = frames
        self._seen = seen
        # Where there are messages; shared by what attackers send.
        self._places = [(0, 0)]
        self._attackers: dict[PulsarClient, PulsarInput] = {}

    async def run(self) -> None:
        honest = _Honest(await self._scene.pulsar_client(), self._seen)
        await honest.begin()
        while self._seen.frames < self._frames:
            for _ in range(_TURNS):
                await self._attack()
            await honest.go_on()
        assert not honest.client.is_disconnected

    async def _attack(self) -> None:
        random = self._random
        while len(self._attackers) < _ATTACKERS:
            await self._begin_another()
        attacker = random.choice(list(self._attackers))
        frames = [self._attackers[attacker].frame() for _ in range(random.randrange(1, _FRAMES_AT_ONCE))]
        self._seen.frames += len(frames)
        await self._send(attacker, b"".join(frames))
        chance = random.random()
        if chance < 0.01:
            attacker.cut()
        elif chance < 0.03:
            attacker.stop_reading()
        elif chance < 0.1:
            attacker.read_on()
        await asyncio.sleep(0)
        self._learn(attacker)
        if attacker.is_disconnected:
            del self._attackers[attacker]
            self._seen.refused += chance >= 0.01
            attacker.read_on()

    async def _begin_another(self) -> None:
        # Those that are gone are looked at once more, by `running_pulsar_broker`: a few of them will do.
        self._scene.clients[1:] = [one for one in self._scene.clients[1:] if not one.transport.lost][-100:]
        attacker = self._scene.raw_client()
        comes = self._attackers[attacker] = PulsarInput(self._random, f"n{self._seen.connections}", self._places)
        self._seen.connections += 1
        if self._random.random() < 0.95:
            attacker.send_bytes(comes.beginning())
            await asyncio.sleep(0.001)

    async def _send(self, attacker: PulsarClient, data: bytes) -> None:
        at = 0
        while at < len(data):
            size = len(data) if self._random.random() < 0.7 else self._random.randrange(1, 100)
            attacker.send_bytes(data[at : at + size])
            at += size
            if self._random.random() < 0.1:
                await asyncio.sleep(0)

    def _learn(self, attacker: PulsarClient) -> None:
        """Where there are messages."""
        for one in attacker.answers:
            self._seen.told[one.type] += 1
            if one.type == BaseCommand.SEND_RECEIPT:
                place = one.send_receipt.message_id
                self._places[:] = [*self._places[-20:], (place.ledgerId, place.entryId)]
        attacker.answers.clear()
        attacker.delivered.clear()


class _Honest:
    def __init__(self, client: PulsarClient, seen: Seen) -> None:
        self.client = client
        client.answers_pings = True
        self._seen = seen
        self._sent = 0
        self._name = ""

    async def begin(self) -> None:
        self._name = (await self.client.open_producer(1, "honest")).producer_name
        await self.client.subscribe(1, "honest", "mine", permits=1_000_000)

    async def go_on(self) -> None:
        client, first = self.client, self._sent
        self._sent += 3
        numbers = range(first, self._sent)
        client.answers.clear()
        client.delivered.clear()
        for number in numbers:
            client.publish(1, number, name=self._name, payload=b"honest %d" % number)
        receipts = await client.receipts(1, 3)
        delivered = await client.wait_delivered(3)
        assert [one.sequence_id for one in receipts] == list(numbers)
        assert [decode_entry(one.entry).payload for one in delivered] == [b"honest %d" % number for number in numbers]
        assert not any(one.redelivery_count or one.open_messages for one in delivered)
        ids = [MessageIdData(ledgerId=one.ledger_id, entryId=one.entry_id) for one in delivered]
        answer = await client.acknowledge(1, ids)
        assert not answer.HasField("error"), answer
        kinds = Counter(one.type for one in client.answers if one.type != BaseCommand.PING)
        assert kinds == {BaseCommand.SEND_RECEIPT: 3, BaseCommand.MESSAGE: 3, BaseCommand.ACK_RESPONSE: 1}, kinds
        self._seen.honest_messages = self._sent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first part; the next ones follow it")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    begun, done, seed = time.monotonic(), Seen(), asked.seed
    while done.frames < asked.frames:
        try:
            seen = fuzz_part(seed, min(FRAMES_OF_A_PART, asked.frames - done.frames))
        except BaseException:
            print(f"seed {seed} failed", file=sys.stderr)  # noqa: T201
            raise
        done.frames += seen.frames
        done.connections += seen.connections
        done.refused += seen.refused
        done.honest_messages += seen.honest_messages
        done.told += seen.told
        seed += 1
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(  # noqa: T201
            f"{done.frames} frames, {done.connections} connections, {done.refused} refused, {done.honest_messages} "
            f"honest messages, {time.monotonic() - begun:.0f} s, {peak} MB at most",
            flush=True,
        )
    print({BaseCommand.Type.Name(kind): count for kind, count in done.told.most_common()})  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
