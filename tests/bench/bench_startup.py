"""A standalone's start, as a client sees it that runs already and tries until it is answered, and what it takes then.

`startup.ready_s` is from the exec of `magnetar standalone` on a folder that is not there to the first durable receipt
at the client, files cached, Python's compiled ones among them; `startup.rss_mb` is what the process has resident
afterwards, when all is there that it puts off until it serves. `startup.in_process_s` is the start of the broker of
`magnetar_testing` in a process that has imported nothing of Magnetar. Each is the median of several starts.
`MAGNETAR_BENCH_FOLDER` selects the disk.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.harness import Result
from tests.child_process import ChildProcess

STARTS: Final = 7
# As long as it may take to load what it puts off until it serves.
AFTERWARDS_S: Final = 3.0
_LAST_S: Final = 60.0


def benches() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as compiled:
        starts = [_start(compiled) for _ in range(STARTS + 1)][1:]  # the first one has the files cached
        in_process = [_start_in_process(compiled) for _ in range(STARTS + 1)][1:]
    seconds, megabytes = zip(*starts, strict=True)
    print(
        f"startup: {[round(each, 3) for each in seconds]} s, {[round(each) for each in megabytes]} MB", file=sys.stderr
    )
    yield Result("startup.ready_s", statistics.median(seconds), "s", ceiling=1.0)
    yield Result("startup.rss_mb", statistics.median(megabytes), "MB", ceiling=150)
    yield Result("startup.in_process_s", statistics.median(in_process), "s", ceiling=1.0)


def _start(compiled: str) -> tuple[float, float]:
    """Seconds to the first receipt, and MB afterwards."""
    grpc_port, pulsar_port, http_port = _free_ports(3)
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as folder,
        _client(grpc_port) as client,
    ):
        began = time.monotonic()
        command = [sys.executable, "-m", "magnetar_cli", "standalone", f"--data={Path(folder) / 'data'}"]
        command += [f"--grpc-port={grpc_port}", f"--pulsar-port={pulsar_port}", f"--http-port={http_port}"]
        environment = _environment(compiled)
        with ChildProcess(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as server:
            try:
                assert client.stdout is not None
                received = float(client.stdout.readline())
                time.sleep(AFTERWARDS_S)
                return received - began, _resident_mb(server.pid)
            finally:
                server.kill()
                client.kill()


def _start_in_process(compiled: str) -> float:
    """Seconds until `InProcessBroker` serves clients, its import included."""
    program = (
        "import time\n"
        "began = time.monotonic()\n"
        "from magnetar_testing.in_process_broker import InProcessBroker\n"
        "with InProcessBroker():\n"
        "    print(time.monotonic() - began, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=_environment(compiled), stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


def _environment(compiled: str) -> dict[str, str]:
    """With a folder of its own for compiled files."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPYCACHEPREFIX": compiled}


def _client(port: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.bench_startup", str(port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError("the client did not start")
    return process


def _resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("the kernel does not say how much the process has resident")


def _publish_first(host: str, port: int) -> None:
    """Print `ready`, and the time at which the first message was durable. It checks every other millisecond whether the
    broker listens: the SDK's own pauses between attempts grow, and would be measured instead of the server.
    """
    import magnetar

    def publish(timeout_s: int) -> float:
        client = magnetar.Client(f"magnetar://{host}:{port}", operation_timeout_seconds=timeout_s)
        try:
            client.create_producer("first").send(b"hello")
            return time.monotonic()
        finally:
            client.close()

    with contextlib.suppress(magnetar.MagnetarException):
        publish(1)  # nobody is there: all that publishing needs is imported by it
    print("ready", flush=True)
    while not _listens(host, port):
        time.sleep(0.002)
    print(publish(30), flush=True)


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


if __name__ == "__main__":
    _publish_first("127.0.0.1", int(sys.argv[1]))
