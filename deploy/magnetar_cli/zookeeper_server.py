"""Configure and run ZooKeeper servers on this machine, from PySpark's jars."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Final

from magnetar_cli.local_java import find_java

__all__ = ["NoZooKeeperJars", "configure_server", "read_server_mode", "server_command"]

_LOOPBACK: Final = "127.0.0.1"

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


class NoZooKeeperJars(Exception):
    """PySpark is not installed."""


def configure_server(
    folder: Path, client_port: int, tick_ms: int = 500, *, number: int = 1, ensemble: str = ""
) -> None:
    """Write the files that `server_command(folder)` needs. Data in the folder is not changed."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    (data / "myid").write_text(str(number))
    configuration = _CONFIGURATION.format(data=data, client_port=client_port, tick_ms=tick_ms, shortest_ms=2 * tick_ms)
    (folder / "zoo.cfg").write_text(configuration + ensemble)
    (folder / "log4j2.properties").write_text(_LOGGING)


def server_command(folder: Path) -> list[str]:
    """Return the command that runs the server configured in the folder. Raise `NoJava` or `NoZooKeeperJars`."""
    return [
        str(find_java()),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xshare:auto",
        "-Dzookeeper.admin.enableServer=false",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        _find_class_path(),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(folder / "zoo.cfg"),
    ]


def read_server_mode(port: int) -> str | None:
    """Return "standalone", "leader" or "follower", or None if the server at this port does not serve."""
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


def _find_class_path() -> str:
    """Return the class path of PySpark's jars, without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise NoZooKeeperJars("a local ZooKeeper needs the jars of PySpark: `pip install pyspark`")
    return str(Path(found.origin).parent / "jars" / "*")
