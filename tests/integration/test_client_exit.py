"""Processes that end with clients open: nothing hangs, nobody sees a traceback that is not his own, and the exit status
is the application's."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Final

import pytest

import magnetar
from magnetar_testing.standalone_process import StandaloneProcess
from tests.running import GENEROUS_S

pytestmark = pytest.mark.slow

# What the end of a process waits for, and its interpreter's own start and end, on a busy machine.
BOUND_S: Final = 30.0

# Development mode names what is left open.
IN_DEVELOPMENT: Final = ("pending sends and an open consumer", "an error")

_HEAD: Final = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # passed over by what a shell starts in the background
import atexit, logging, sys, threading, time
logging.getLogger("asyncio").setLevel(logging.ERROR)  # in development mode it logs slow callbacks
def late():
    try:
        producer.send(b"behind the client's own end")
    except magnetar.MagnetarException as error:
        print(type(error).__name__, flush=True)
if "late" in sys.argv:
    atexit.register(late)  # what is registered first is called last
import magnetar
client = magnetar.Client(sys.argv[1])
producer = client.create_producer("exit", batching_max_publish_delay_ms=3_600_000)
producer.send(b"0")
def go():
    print("ready", flush=True)
    sys.stdin.readline()
"""

# Name → the process' code; its exit status; its output; what its standard error must have, if anything.
ENDS: Final[dict[str, tuple[str, int, str, str]]] = {
    "pending sends and an open consumer": (
        """
consumer = client.subscribe("exit", "s", initial_position=magnetar.InitialPosition.Earliest)
consumer.acknowledge(consumer.receive())
go()
producer.send_async(b"x", lambda result, _: print(result, flush=True))
""",
        0,
        "Result.Ok",
        "",
    ),
    "late": (
        """
def mine():
    producer.send(b"from atexit")
    print("sent", flush=True)
    producer.send_async(b"x", lambda result, _: print(result, flush=True))
atexit.register(mine)
go()
""",
        0,
        "sent\nResult.Ok\nAlreadyClosed",
        "",
    ),
    "daemon threads": (
        """
def keep_sending():
    while True:
        producer.send(b"x")
def keep_receiving():
    consumer = client.subscribe("exit", "daemon")
    while True:
        consumer.acknowledge(consumer.receive())
def keep_reading():
    for message in client.create_reader("exit", magnetar.MessageId.earliest):
        pass
for work in (keep_sending, keep_receiving, keep_reading):
    threading.Thread(target=work, daemon=True).start()
go()
""",
        0,
        "",
        "",
    ),
    "a thread that goes on": (
        """
def send_on():
    threading.main_thread().join()
    producer.send(b"from a thread")
    print("sent", flush=True)
threading.Thread(target=send_on).start()
go()
""",
        0,
        "sent",
        "",
    ),
    "sys.exit, also in a callback": (
        """
go()
producer.send_async(b"x", lambda *_: sys.exit(4))
producer.flush()
producer.send_async(b"x", lambda result, _: print(result, flush=True))
sys.exit(3)
""",
        3,
        "Result.Ok",
        "SystemExit: 4",
    ),
    "an error": ("go(); producer.send_async(b'x'); 1 / 0", 1, "", "ZeroDivisionError"),
    "a callback and a listener that block": (
        """
heard = threading.Event()
def listen(consumer, message):
    heard.set()
    threading.Event().wait()
client.subscribe("exit", "listener", message_listener=listen, initial_position=magnetar.InitialPosition.Earliest)
heard.wait()
go()
producer.send_async(b"x", lambda *_: threading.Event().wait())
""",
        0,
        "",
        "messages that it has not acknowledged are redelivered\n",
    ),
}


@pytest.fixture(scope="module")
def server(magnetar_standalone: StandaloneProcess) -> StandaloneProcess:
    return magnetar_standalone


def _start(server: StandaloneProcess, name: str) -> subprocess.Popen[str]:
    mode = ["-X", "dev"] if name in IN_DEVELOPMENT else []
    command = [sys.executable, *mode, "-W", "error", "-c", _HEAD + ENDS[name][0], server.service_url, name]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Has it go on, to its end."""
    try:
        return process.communicate("\n", timeout=GENEROUS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise AssertionError(f"it hangs: {output!r} {errors}") from None


def test_a_process_ends_as_its_application_wants(server: StandaloneProcess) -> None:
    processes = {name: _start(server, name) for name in ENDS}
    wrong = {}
    for name, process in processes.items():
        output, errors = _end(process)
        _, status, expected, error = ENDS[name]
        fine = error in errors and bool(errors) == bool(error) and errors.count("Traceback") == (1 if status else 0)
        if (process.returncode, output.strip()) != (status, f"ready\n{expected}".strip()) or not fine:
            wrong[name] = (process.returncode, output, errors)
    assert not wrong, "\n".join(f"{name}: {found[0]} {found[1]!r}\n{found[2]}" for name, found in wrong.items())


def test_a_closed_asyncio_client_leaves_nothing_on_its_loop(
    server: StandaloneProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC hands events to any loop of the process. One for a closed loop is reported as an error by another one."""

    async def use_client() -> list[str]:
        async with server.aio_client() as client:
            producer = await client.create_producer("exit-aio")
            consumer = await client.subscribe("exit-aio", "s", magnetar.ConsumerType.Shared)
            await producer.send(b"1")
            await consumer.acknowledge(await consumer.receive())
        return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    with server.client() as synchronous, synchronous.create_producer("exit-sync") as producer:
        for _ in range(10):
            assert asyncio.run(use_client()) == []
            producer.send(b"1")  # the other loop gets events
    assert caplog.records == []


def test_a_process_ends_though_its_broker_stands_still(server: StandaloneProcess) -> None:
    """What is pending is given a few seconds, and nobody hangs."""
    names = ("pending sends and an open consumer", "daemon threads", "sys.exit, also in a callback")
    processes = {name: _start(server, name) for name in names}
    try:
        for process in processes.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        server.signal(signal.SIGSTOP)
        began = time.monotonic()
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for name, process in processes.items():
            if "sys.exit" in name:  # it waits for a receipt in its own code, and is interrupted there
                process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=GENEROUS_S)
            if "sys.exit" in name:
                assert process.returncode in (1, -signal.SIGINT)
                assert "KeyboardInterrupt" in errors
            else:
                assert process.returncode == 0
                assert "Traceback" not in errors
        assert time.monotonic() - began < BOUND_S
    finally:
        server.signal(signal.SIGCONT)
        for process in processes.values():
            process.kill()
            process.communicate()
