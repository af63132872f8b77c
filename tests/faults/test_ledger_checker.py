"""The checker of the ledger torture: it finds nothing wrong with what is right, and every lie."""

from __future__ import annotations

import asyncio
import shutil
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_metadata.errors import MetadataError
from magnetar_testing.metadata import MemoryServer
from magnetar_testing.metadata.store import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.in_process_transport import InProcessTransport
from tests.faults.ledger_checker import Closed, LedgerChecker
from tests.faults.ledger_history import Log, ReadBack, Tail, WholeReads, WriterRun, payload, read_lines, read_logs
from tests.faults.ledger_inspection import close_chains, inspect_chains
from tests.faults.ledger_owner import ChainOwner, ChainPlan, ChainTakenOver
from tests.faults.ledger_tail import follow_chain, read_back_chain
from tests.faults.workload_processes import AckWatch
from tests.running import until
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.bookie_client import NO_LATENCY

# Three entries acknowledged, two failed and sent again; and a second run that found one entry more than was
# acknowledged.
FIRST = """\
life c w.1
made 1
append 1 0 0 100
append 1 1 1 0
acked 1 0
append 1 2 2 1000
acked 1 1
acked 1 2
append 1 3 3 50
append 1 4 4 60
failed 1 3 NotEnoughBookies
failed 1 4 NotEnoughBookies
closed 1 2
made 2
append 2 0 3 50
append 2 1 4 60
acked 2 0
acked 2 1
append 2 2 5 10
append 2 3 6 10
append 2 4 7"""
SECOND = """\
life c w.2
made 3
append 3 0 0 5
acked 3 0
closed 3 0
"""
TAIL = "tail c t.1\n"


class Story:
    """The logs and the final state, which a test alters."""

    def __init__(self) -> None:
        self.logs = [FIRST, SECOND]
        self.chain = [1, 2, 3]
        # Ledger → the entries that are in it.
        self.entries = {
            1: [payload("w.1", 0, 100), payload("w.1", 1, 0), payload("w.1", 2, 1000)],
            2: [payload("w.1", 3, 50), payload("w.1", 4, 60), payload("w.1", 5, 10)],
            3: [payload("w.2", 0, 5)],
        }
        self.replicas: dict[str, dict[int, list[bytes]]] = {
            bookie: {ledger_id: list(entries) for ledger_id, entries in self.entries.items()} for bookie in ("a", "b")
        }
        self.tail = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]
        self.read_back: list[ReadBack] = []
        self.length = {ledger_id: sum(map(len, entries)) for ledger_id, entries in self.entries.items()}
        self.last = {ledger_id: len(entries) - 1 for ledger_id, entries in self.entries.items()}

    def wrong(self) -> list[str]:
        runs: list[WriterRun] = []
        tails: list[Tail] = []
        for text in self.logs:
            read_lines(text.split("\n")[:-1], runs, tails)
        written = {one.ledger_id: (run.name, one) for run in runs for one in run.ledgers}
        tail = Tail("c", "t.1", read_back=self.read_back)
        for ledger_id, entry_id in self.tail:
            name, one = written[ledger_id]
            entry = payload(name, *one.appended[entry_id]) if entry_id < len(one.appended) else b"?"
            tail.saw.append((ledger_id, entry_id, len(entry), zlib.crc32(entry)))
        checker = LedgerChecker(runs, [tail])
        checker.chain("c", self.chain)
        for ledger_id in self.chain:
            last = self.last[ledger_id]
            checker.closed(ledger_id, Closed(last, self.length[ledger_id], 2, 2, [(0, ["a", "b"])]))
            for entry_id, entry in enumerate(self.entries[ledger_id]):
                checker.entry(ledger_id, entry_id, entry)
            for bookie, held in self.replicas.items():
                for entry_id, entry in enumerate(held[ledger_id]):
                    checker.entry(ledger_id, entry_id, entry, bookie)
        return checker.finish()

    def everywhere(self, change: Callable[[dict[int, list[bytes]]], object]) -> None:
        change(self.entries)
        for held in self.replicas.values():
            change(held)
        self.last = {ledger_id: len(entries) - 1 for ledger_id, entries in self.entries.items()}
        self.length = {ledger_id: sum(map(len, entries)) for ledger_id, entries in self.entries.items()}

    def deletes_first(self, read: list[bytes], *, whole: bool = True) -> None:
        """The chain's owner deleted ledger 1, of which somebody had read this."""
        self.edit("closed 1 2\n", "closed 1 2\ndeleting 1\n")
        self.chain.remove(1)
        numbered = [(entry_id, len(entry), zlib.crc32(entry)) for entry_id, entry in enumerate(read)]
        self.read_back.append(ReadBack(1, len(read) - 1, numbered, whole))

    def edit(self, old: str, new: str) -> None:
        assert any(old in log for log in self.logs)
        self.logs = [log.replace(old, new) for log in self.logs]


def _lost(story: Story) -> None:
    story.everywhere(lambda held: held[2].pop())
    story.everywhere(lambda held: held[2].pop())


def _swapped(story: Story) -> None:
    def swap(held: dict[int, list[bytes]]) -> None:
        held[2][0], held[2][1] = held[2][1], held[2][0]

    story.everywhere(swap)


def _failed_is_there(story: Story) -> None:
    story.everywhere(lambda held: held[1].append(payload("w.1", 3, 50)))


def _torn(story: Story) -> None:
    story.entries[1][2] = story.entries[1][2][:500]


def _flipped(story: Story) -> None:
    entry = bytearray(story.replicas["b"][1][2])
    entry[700] ^= 1
    story.replicas["b"][1][2] = bytes(entry)


def _sent_again_though_there(story: Story) -> None:
    story.edit("closed 1 2", "lost 1")
    story.everywhere(lambda held: held[1].extend([payload("w.1", 3, 50), payload("w.1", 4, 60)]))


def _deleted_unread(story: Story) -> None:
    story.deletes_first([])
    story.read_back.clear()


def _deleted_half_read(story: Story) -> None:
    story.deletes_first(story.entries[1][:2], whole=False)


def _deleted_with_an_entry_lost(story: Story) -> None:
    story.deletes_first(story.entries[1][:2])


def _deleted_with_a_wrong_entry(story: Story) -> None:
    story.deletes_first([*story.entries[1][:2], b"something else"])


def _foreign(story: Story) -> None:
    story.everywhere(lambda held: held[3].append(b"from nowhere"))


LIES: dict[str, tuple[str, Callable[[Story], object]]] = {
    "an acknowledged entry is not in its ledger": ("acknowledged", _lost),
    "an acknowledged ledger is not in its chain": ("acknowledged", lambda story: story.chain.remove(2)),
    "a failed entry is in a ledger that its writer closed": ("own close", _failed_is_there),
    "what is there already was sent again": ("once, in order", _sent_again_though_there),
    "entries were swapped": ("bytes", _swapped),
    "a replica lacks an entry": ("replica", lambda story: story.replicas["b"][2].pop()),
    "a replica is missing": ("replica", lambda story: story.replicas["a"][3].clear()),
    "a replica has its entries twice": ("order", lambda story: story.replicas["a"][2].insert(1, payload("w.1", 3, 50))),
    "an entry is torn": ("bytes", _torn),
    "a bit has flipped": ("bytes", _flipped),
    "nobody appended it": ("foreign", _foreign),
    "the reader skips an entry": ("acknowledged", lambda story: story.entries[1].pop(1)),
    "the length is wrong": ("length", lambda story: story.length.update({1: 7})),
    "adds completed out of order": ("logs", lambda story: story.edit("acked 1 1\nacked 1 2", "acked 1 2\nacked 1 1")),
    "an add completed after one had failed": (
        "logs",
        lambda story: story.edit("failed 1 4 NotEnoughBookies", "acked 1 4"),
    ),
    "a run's ledgers stand behind the next one's": ("order", lambda story: story.chain.sort(key=[1, 3, 2].index)),
    "a tail saw what is not there": ("seen", lambda story: story.tail.append((2, 3))),
    "a tail skipped an entry": ("seen", lambda story: story.tail.remove((2, 0))),
    "a tail went back": ("seen", lambda story: story.tail.append((1, 3))),
    "a ledger was deleted and never read back": ("acknowledged", _deleted_unread),
    "a ledger was deleted and read back in part": ("acknowledged", _deleted_half_read),
    "a deleted ledger had lost an entry": ("acknowledged", _deleted_with_an_entry_lost),
    "a deleted ledger had a wrong entry": ("read back", _deleted_with_a_wrong_entry),
    "a ledger is not closed": ("chain", lambda story: story.chain.append(4)),
}


def test_the_truth_is_believed() -> None:
    story = Story()
    assert story.wrong() == []


def test_entry_may_be_deleted_after_it_was_read_back() -> None:
    story = Story()
    story.deletes_first(story.entries[1])
    assert story.wrong() == []


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_found(lie: str) -> None:
    rule, apply_lie = LIES[lie]
    story = Story()
    story.last[4], story.length[4], story.entries[4] = -1, 0, []
    for held in story.replicas.values():
        held[4] = []
    apply_lie(story)
    assert rule in {found.partition(":")[0] for found in story.wrong()}


def test_payload_identifies_its_writer_and_has_given_size() -> None:
    assert [len(payload("w.1", 7, size)) for size in (0, 3, 30, 131_072, 1_048_576)] == [0, 3, 30, 131_072, 1_048_576]
    assert payload("w.1", 7, 100).startswith(b"w.1 7 100 ")
    assert len({payload("w.1", number, 100) for number in range(100)}) == 100
    assert payload("w.1", 7, 1_048_576)[-9:] != payload("w.1", 8, 1_048_576)[-9:]


# The number of ledgers of a chain: enough for the last run to have some.
RETAINED = 2


class InProcess:
    """Real bookies on simulated disks, in this process; each can be killed and started again."""

    def __init__(self, bookies: int) -> None:
        self.clock = SystemClock()
        self.server = MemoryServer(self.clock)
        self.transport = InProcessTransport(self.clock)
        self.disks = {
            f"b{number}": SimulatedDisk(self.clock, SeededRandomness(number), NO_LATENCY) for number in range(bookies)
        }
        self.running: dict[str, asyncio.Task[None]] = {}

    async def open_metadata(self) -> MemoryStore:
        return self.server.connect()

    async def start(self, bookie_id: str) -> None:
        process = BookieProcess(
            bookie_id,
            self.disks[bookie_id].open(),
            self.open_metadata,
            self.transport,
            f"{bookie_id}:1",
            self.clock,
            SeededRandomness(1),
            BookieServerSettings(metadata_retry_seconds=0.05),
        )
        self.running[bookie_id] = asyncio.create_task(process.run())
        await process.started.wait()

    async def kill(self, bookie_id: str) -> None:
        task = self.running.pop(bookie_id)
        task.cancel()
        await asyncio.wait([task])
        self.disks[bookie_id].crash()

    async def client(self) -> LedgerClient:
        options = LedgerClientSettings(
            bookie_quarantine_time_seconds=0.2, lost_bookie_replacement_delay_seconds=0.2, recovery_timeout_seconds=10
        )
        client = LedgerClient(self.server.connect(), self.transport, self.clock, SeededRandomness(1), options)
        await client.start()
        return client


async def _write_for_a_while(cluster: InProcess, folder: Path) -> None:
    """Two runs of a writer, one of them killed, with a tail, while bookies fail and return."""
    tails = await cluster.client()
    tail_log = Log(folder / "t-c-1.log")
    tail_log.say("tail", "c", "t.1")
    following = asyncio.create_task(follow_chain(tails, tails.ledgers.store, "c", tail_log, cluster.clock))
    reading = asyncio.create_task(read_back_chain(tails, tails.ledgers.store, "c", RETAINED, tail_log, cluster.clock))
    for number in range(3):
        client = await cluster.client()
        log = Log(folder / f"w-c-{number}.log")
        plan = ChainPlan(Striping(3, 3, 2), roll_entries=60, keep_ledgers=RETAINED, rest_s=0.01)
        chance = SeededRandomness(number)
        owner = ChainOwner(client, "c", f"w.{number}", plan, log, cluster.clock, chance, WholeReads(folder, "c"))
        owning = asyncio.create_task(owner.own())
        written = folder / f"w-c-{number}.log"
        await until(lambda written=written: written.read_text().count("\nclosed") > 1, "two ledgers are closed")  # type: ignore[misc]
        if number == 1:
            await until(lambda written=written: "\ndeleting" in written.read_text(), "a ledger is deleted")  # type: ignore[misc]
        victim = f"b{number}"
        await cluster.kill(victim)
        before = written.read_text().count("\nacked")
        await until(
            lambda written=written, before=before: written.read_text().count("\nacked") > before + 20,  # type: ignore[misc]
            "it goes on without one",
        )
        await cluster.start(victim)
        if number == 1:
            owner.stopping = True
            await owning
        else:
            owning.cancel()
            with pytest.raises((asyncio.CancelledError, LedgerError, MetadataError, ChainTakenOver)):
                await owning
        await client.close()
        log.close()
    await close_chains(tails, ["c"])
    watch = AckWatch(folder)
    await until(lambda: watch.latest("c", "t", "saw") >= watch.latest("c", "w", "acked"), "the tail has seen the last")
    for task in (following, reading):
        task.cancel()
        await asyncio.wait([task])
    tail_log.close()
    await tails.close()


async def test_a_real_chain_is_believed_and_a_lie_about_it_found(tmp_path: Path) -> None:
    """The owner, the tail, the logs and the inspection, over bookies in this process."""

    async def body() -> None:
        cluster = InProcess(4)
        for bookie_id in cluster.disks:
            await cluster.start(bookie_id)
        await _write_for_a_while(cluster, tmp_path)
        client = await cluster.client()

        async def checked(logs: Path) -> LedgerChecker:
            checker = LedgerChecker(*read_logs(logs))
            await inspect_chains(client, checker, ["c"])
            checker.finish()
            return checker

        async def whole() -> bool:
            # Killed bookies have lost what was not synced, and auto-recovery gives it back.
            return not (await checked(tmp_path)).violations

        await until(whole, "every replica is whole")
        assert (await checked(tmp_path)).acknowledged > 100
        lying = tmp_path / "lying"
        lying.mkdir()
        for name in ("w-c-0.log", "w-c-1.log", "w-c-2.log", "t-c-1.log"):
            shutil.copy(tmp_path / name, lying)
        log = lying / "w-c-1.log"
        lines = log.read_text().splitlines(keepends=True)
        at = max(number for number, line in enumerate(lines) if line.startswith("closed"))
        _, ledger_id, last = lines[at].split()
        entry = f"{int(last) + 1}"
        lines[at:at] = [f"append {ledger_id} {entry} 999999 10\n", f"acked {ledger_id} {entry}\n"]
        log.write_text("".join(lines))
        found = (await checked(lying)).violations
        assert any(one.startswith("acknowledged: ") for one in found), found
        await client.close()
        for bookie_id in list(cluster.running):
            await cluster.kill(bookie_id)

    await partial(body)()
