"""What there is, at work: the codec against plain protobuf, a killed process' metadata, a session that ends.

Everything shown is measured or read back here and now; a step that does not come out as it must ends the tour with the
exit status 1. Goes with the first broker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final

import typer

from magnetar_cli.local_java import NoJava, find_java
from magnetar_cli.local_zookeeper import LocalZooKeeper
from magnetar_metadata.embedded import open_embedded
from magnetar_metadata.store import ABSENT
from magnetar_metadata.zookeeper import open_zookeeper
from magnetar_protos.entry_pb2 import MessageMetadata, SingleMessageMetadata
from magnetar_wire import compression
from magnetar_wire.batch import Messages, decode_messages, encode_batch
from magnetar_wire.clock import SystemClock
from magnetar_wire.entry import decode_entry

_MESSAGES: Final = 1000
_DEADLINE_S: Final = 60.0


app = typer.Typer(add_completion=False)


@app.command()
def _tour() -> None:
    raise typer.Exit(tour())


def tour() -> int:
    for number, (title, step) in enumerate(_STEPS, 1):
        print(f"{number}. {title}", flush=True)
        try:
            step()
        except _Unexpected as unexpected:
            print(f"   That is not what should have come out: {unexpected}", file=sys.stderr)
            return 1
        except NoJava as missing:
            print(f"   left out: {missing}", flush=True)
    print("There is no broker yet; README.md says what comes.")
    return 0


class _Unexpected(Exception):
    """A step did not come out as it must."""


def _say(text: str) -> None:
    print(f"   {text}", flush=True)


def _must(fact: bool, otherwise: str) -> None:
    if not fact:
        raise _Unexpected(otherwise)


# -- entries -----------------------------------------------------------------------------------------------------------


def _entries() -> None:
    messages = Messages([os.urandom(100) for _ in range(_MESSAGES)], array("Q", range(_MESSAGES, 2 * _MESSAGES)))
    shared = MessageMetadata(producer_name="tour", sequence_id=0, publish_time=SystemClock().time_ms())
    entry = encode_batch(messages, shared)
    found = decode_messages(decode_entry(entry))
    _must(found.payloads == messages.payloads, "other messages came out than went in")
    _say(f"{_MESSAGES:,} messages of 100 bytes are one entry of {len(entry):,} bytes, and come out as they went in")
    for name, ours, plain in (
        ("encode", lambda: encode_batch(messages, shared), lambda: _objects_encoded(messages)),
        ("decode", lambda: decode_messages(decode_entry(entry)), lambda: _objects_decoded(entry)),
    ):
        mine, theirs = _rate(ours), _rate(plain)
        _say(f"{name}: {mine / 1e6:.1f} million messages a second; a protobuf object for each: {theirs / 1e6:.1f}")
    for kind in (compression.LZ4, compression.ZLIB, compression.ZSTD, compression.SNAPPY):
        text = Messages([b"temperature=21.5 humidity=40 " * 4] * _MESSAGES)
        packed = encode_batch(text, shared, kind)
        _must(decode_messages(decode_entry(packed)).payloads == text.payloads, "compression changed the messages")
    _say("LZ4, ZLIB, ZSTD and SNAPPY there and back: the same")


def _objects_encoded(messages: Messages) -> bytes:
    parts = []
    for payload, number in zip(messages.payloads, messages.sequence_ids or (), strict=True):
        head = SingleMessageMetadata(payload_size=len(payload or b""), sequence_id=number or 0).SerializeToString()
        parts.append(struct.pack(">I", len(head)) + head + (payload or b""))
    return b"".join(parts)


def _objects_decoded(entry: bytes) -> list[bytes]:
    batch, payloads, at = decode_entry(entry).payload, [], 0
    while at < len(batch):
        (size,) = struct.unpack_from(">I", batch, at)
        start = at + 4 + size
        at = start + SingleMessageMetadata.FromString(batch[at + 4 : start]).payload_size
        payloads.append(batch[start:at])
    return payloads


def _rate(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return _MESSAGES / statistics.median(seconds)


# -- metadata that survives --------------------------------------------------------------------------------------------

_WRITER: Final = """
import asyncio, sys
from magnetar_metadata.embedded import open_embedded
from magnetar_metadata.store import ABSENT
from magnetar_wire.clock import SystemClock

async def main():
    store = await open_embedded(sys.argv[1], SystemClock())
    for number in range(1_000_000):
        await store.put(f"/ledgers/{number}", b"open", ABSENT)
        print(number, flush=True)  # acknowledged

asyncio.run(main())
"""


def _killed_writer() -> None:
    with tempfile.TemporaryDirectory(prefix="magnetar-tour-") as folder:
        acknowledged = -1
        with subprocess.Popen([sys.executable, "-c", _WRITER, folder], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                acknowledged = int(line)
                if acknowledged == 499:
                    writer.send_signal(signal.SIGKILL)
        _must(acknowledged >= 499, "the writer ended too early")
        found = asyncio.run(_ledgers(folder))
    _must(found >= acknowledged + 1, f"{acknowledged + 1} changes were acknowledged, and {found} are there")
    _say(f"{acknowledged + 1} changes were acknowledged before kill -9; {found} are there afterwards")


async def _ledgers(folder: str) -> int:
    async with await open_embedded(folder, SystemClock()) as store:
        return len(await store.children("/ledgers"))


# -- a session that ends -----------------------------------------------------------------------------------------------


def _ended_session() -> None:
    find_java()
    with tempfile.TemporaryDirectory(prefix="magnetar-tour-") as folder:
        started = time.monotonic()
        with LocalZooKeeper(Path(folder)) as zookeeper:
            _say(f"a ZooKeeper out of PySpark's jars serves after {time.monotonic() - started:.1f} s")
            asyncio.run(_hand_over(zookeeper.hosts))


async def _hand_over(hosts: str) -> None:
    owner = await open_zookeeper(hosts, SystemClock(), session_timeout_s=4.0)
    async with await open_zookeeper(hosts, SystemClock()) as heir:
        await owner.put("/owners/bundle-1", b"broker-a", ABSENT, ephemeral=True)
        watch = heir.watch("/owners/bundle-1")
        _say("broker-a owns bundle-1, by an ephemeral node; its session ends")
        await owner.close()
        async with asyncio.timeout(_DEADLINE_S):
            while await heir.exists("/owners/bundle-1") is not None:
                await watch.wait()
        await heir.put("/owners/bundle-1", b"broker-b", ABSENT, ephemeral=True)
        node = await heir.get("/owners/bundle-1")
        _must(node is not None and node.value == b"broker-b", "the bundle has no new owner")
        _say("the other one was told by its watch, and broker-b owns bundle-1 now")


_STEPS: Final = (
    ("Entries: a batch of messages, as it is stored", _entries),
    ("Metadata in one process: a writer is killed", _killed_writer),
    ("Metadata in a cluster: a session ends", _ended_session),
)
