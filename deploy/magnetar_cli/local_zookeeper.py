"""ZooKeeper servers on this machine, out of PySpark's own jars: one, or a quorum on loopback.

    with LocalZooKeeper(folder, servers=3) as zookeeper:
        zookeeper.wait_ready()
        zookeeper.hosts                      # "127.0.0.1:40001,127.0.0.1:40002,127.0.0.1:40003"
        zookeeper.leader().kill()

Each server has a folder with its configuration, its data and `server.log`. Ports are free ones of the moment; somebody
may take one before the server does, so a server that ends while it is waited for is the sign to take others and start
all anew. Data survives `kill` and `restart`.

The servers are ended by `close`, each by its own process id, and by the kernel if the process that started them dies
(bound_process.py).
"""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from magnetar_cli.bound_process import start_bound
from magnetar_cli.local_java import find_java

_LOOPBACK: Final = "127.0.0.1"
_STARTS: Final = 5

_CONFIGURATION: Final = """\
dataDir={data}
clientPort={client_port}
clientPortAddress=127.0.0.1
tickTime={tick_ms}
initLimit=20
syncLimit=10
minSessionTimeout={shortest_ms}
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""
_LOGGING: Final = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class LocalZooKeeperError(Exception):
    """The servers do not start; the message shows what they logged last."""


class Server:
    """One server of the ensemble."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self.client_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{_LOOPBACK}:{self.client_port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts it on the data that it has; returns without waiting for it."""
        assert not self.running, f"ZooKeeper server {self.number} is running already"
        with (self.folder / "server.log").open("ab") as log:
            self._process = start_bound(
                server_command(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """Stops it, as a machine that hangs: its connections stay, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def mode(self) -> str | None:
        """ "standalone", "leader" or "follower" when it serves, else None."""
        return mode_at(self.client_port)

    def last_words(self) -> str:
        log = self.folder / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "(no log)"

    def _signal(self, number: int) -> None:
        if self.running and self._process is not None:
            self._process.send_signal(number)


class LocalZooKeeper:
    """An ensemble of one server or more."""

    def __init__(self, folder: Path, servers: int = 1, tick_ms: int = 500) -> None:
        self._tick_ms = tick_ms
        self.servers = [Server(folder / f"server-{number}", number) for number in range(1, servers + 1)]

    @property
    def hosts(self) -> str:
        """What a client is told."""
        return ",".join(server.address for server in self.servers)

    def start(self, timeout_s: float = 60.0) -> Self:
        """Starts all, and returns when they serve."""
        for attempt in range(1, _STARTS + 1):
            self._configure()
            for server in self.servers:
                server.start()
            try:
                self.wait_ready(timeout_s, all_of_them=True)
                return self
            except LocalZooKeeperError:
                ended = any(not server.running for server in self.servers)
                self.close()
                # One that ended by itself has probably lost its port to somebody; all else would fail again.
                if not ended or attempt == _STARTS:
                    raise
            except BaseException:
                self.close()
                raise
        raise AssertionError("the last attempt returns or raises")

    def wait_ready(self, timeout_s: float = 60.0, *, all_of_them: bool = False) -> None:
        """Returns when every running server serves and one of them leads. With `all_of_them`, all must be running."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = [server for server in self.servers if server.running]
            modes = [server.mode() for server in running]
            if running and None not in modes and ("leader" in modes or "standalone" in modes):
                return
            too_few = not running or (all_of_them and len(running) < len(self.servers))
            if too_few or time.monotonic() >= deadline:
                ended = next((server for server in self.servers if not server.running), self.servers[0])
                raise LocalZooKeeperError(f"ZooKeeper is not ready; it logged last:\n{ended.last_words()}")
            time.sleep(0.05)

    def leader(self) -> Server | None:
        """The server that leads, or the only one; None while there is none."""
        return next((server for server in self.servers if server.mode() in ("leader", "standalone")), None)

    def close(self) -> None:
        """Ends the servers that were started here."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _configure(self) -> None:
        ports = _free_ports(3 * len(self.servers))
        ensemble = []
        for server in self.servers:
            server.client_port, peer_port, election_port = ports.pop(), ports.pop(), ports.pop()
            ensemble.append(f"server.{server.number}={_LOOPBACK}:{peer_port}:{election_port}\n")
        for server in self.servers:
            others = "".join(ensemble) if len(self.servers) > 1 else ""
            configure_server(server.folder, server.client_port, self._tick_ms, number=server.number, ensemble=others)


def configure_server(
    folder: Path, client_port: int, tick_ms: int = 500, *, number: int = 1, ensemble: str = ""
) -> None:
    """Writes what `server_command(folder)` reads. The data stay as they are."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "myid").write_text(str(number))
    configuration = _CONFIGURATION.format(data=data, client_port=client_port, tick_ms=tick_ms, shortest_ms=2 * tick_ms)
    (folder / "zoo.cfg").write_text(configuration + ensemble)
    (folder / "log4j2.properties").write_text(_LOGGING)


def server_command(folder: Path) -> list[str]:
    """What starts the server that is configured in the folder. Raises `NoJava`."""
    return [
        str(find_java()),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Dzookeeper.admin.enableServer=false",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        class_path(),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(folder / "zoo.cfg"),
    ]


def mode_at(port: int) -> str | None:
    """How the server at this port serves: "standalone", "leader" or "follower"; None if it does not."""
    try:
        with socket.create_connection((_LOOPBACK, port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while received := connection.recv(4096):
                answer += received
    except OSError:
        return None
    for line in answer.decode(errors="replace").splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ").strip()
    return None


def class_path() -> str:
    """PySpark's jars, without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise LocalZooKeeperError("a local ZooKeeper needs the jars of PySpark: `pip install pyspark`")
    return str(Path(found.origin).parent / "jars" / "*")


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
