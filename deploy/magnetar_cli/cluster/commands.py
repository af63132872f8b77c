"""`magnetar cluster …`: a cluster of processes on this machine, with all files in one folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from magnetar_cli.cluster.daemon_settings import BOOKIES, BROKERS, parse_settings
from magnetar_cli.cluster.errors import how_to_cancel
from magnetar_cli.cluster.local_cluster import LocalCluster
from magnetar_cli.cluster.status import RUNNING, ClusterStatus, PartStatus
from magnetar_cli.cluster_folder import DEFAULT_FOLDER, has_running_broker
from magnetar_cli.options import AsJson
from magnetar_cli.output import format_bytes, format_duration, wide_console
from magnetar_cli.user_errors import configure_logs, print_user_errors

__all__ = ["Folder", "app"]

_POLL_S = 0.2
_NUMBERS = re.compile(r"\d+\.\d+")
_COLOURS = {RUNNING: "green", "stopped": "dim", "dead": "red", "unhealthy": "red"}

app = typer.Typer(
    help="Run a cluster of processes on this machine.", no_args_is_help=True, pretty_exceptions_enable=False
)

Folder = Annotated[Path, typer.Option("--folder", "-f", help="Folder of the cluster.")]
Name = Annotated[
    str, typer.Argument(help="Broker, bookie or ZooKeeper server; `status` lists them.", show_default=False)
]
Names = Annotated[
    list[str],
    typer.Argument(
        help="Brokers, bookies or ZooKeeper servers, in this order; `status` lists them.", show_default=False
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting of all bookies. Repeatable."),
]

# A new cluster has brokers, unlike one of `LocalCluster.up`.
_NEW_CLUSTER_BROKERS = 2


@app.command()
def up(
    folder: Folder = DEFAULT_FOLDER,
    bookies: Annotated[int | None, typer.Option(min=1, help="Minimum number of bookies; 3 for a new cluster.")] = None,
    brokers: Annotated[int | None, typer.Option(min=0, help="Minimum number of brokers; 2 for a new cluster.")] = None,
    zookeepers: Annotated[
        int | None, typer.Option(min=1, max=9, help="ZooKeeper servers of a new cluster; default: 1.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[,…]", help="Use an external ZooKeeper, not one of the cluster's own."),
    ] = None,
    settings: Settings = None,
    broker_settings: Annotated[
        list[str] | None,
        typer.Option("--set-broker", metavar="NAME=VALUE", help="Setting of all brokers. Repeatable."),
    ] = None,
    session_timeout_s: Annotated[
        float | None, typer.Option(min=1, help="Seconds until a killed process loses its session; default: 10.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=1, help="Seconds that the start may take.")] = 60.0,
) -> None:
    """Create a cluster, or start those of its processes that are down; returns when all are ready."""
    with _cluster(folder) as cluster:
        cluster.up(
            bookies,
            _NEW_CLUSTER_BROKERS if brokers is None and not cluster.exists else brokers,
            zookeepers=zookeepers,
            zookeeper=zookeeper,
            settings=parse_settings(BOOKIES, settings or []),
            broker_settings=parse_settings(BROKERS, broker_settings or []),
            session_timeout_s=session_timeout_s,
            timeout_s=timeout_s,
        )
        _show(cluster.status())


@app.command()
def status(
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Show the cluster's processes. The exit status is 0 only if all are healthy."""
    with _cluster(folder) as cluster:
        found = cluster.status()
        if as_json:
            print(json.dumps({**dataclasses.asdict(found), "well": found.well}, ensure_ascii=False))
        else:
            _show(found)
    raise typer.Exit(0 if found.well else 1)


@app.command()
def env(folder: Folder = DEFAULT_FOLDER) -> None:
    """Print the shell commands that point clients at this cluster: eval "$(magnetar cluster env)".

    They export MAGNETAR_URL, which all client commands read. The URL of Pulsar's clients is in a comment.

    Addresses stay the same while the cluster is down: they are printed then, too, with a hint on standard error.
    """
    with _cluster(folder) as cluster:
        print(f"export MAGNETAR_URL={shlex.quote(cluster.service_url)}")
        print(f"# Pulsar's clients: {cluster.pulsar_url}")
        if not has_running_broker(folder):
            up = "magnetar cluster up" + ("" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}")
            print(f"magnetar: no broker of this cluster runs: `{up}` starts it", file=sys.stderr)


@app.command()
def add(
    name: Annotated[
        str | None, typer.Argument(help="Name. Default: the kind and the next free number.", show_default=False)
    ] = None,
    bookie: Annotated[bool, typer.Option("--bookie", help="Add a bookie.")] = False,
    broker: Annotated[bool, typer.Option("--broker", help="Add a broker.")] = False,
    folder: Folder = DEFAULT_FOLDER,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Setting of the new process. Repeatable."),
    ] = None,
) -> None:
    """Add a bookie or a broker. A bookie stores entries of new ledgers at once; stored entries are not moved. A broker
    serves topics at once."""
    if bookie == broker:
        raise typer.BadParameter("use either --bookie or --broker", param_hint="--bookie / --broker")
    with _cluster(folder) as cluster:
        chosen = parse_settings(BROKERS if broker else BOOKIES, settings or [])
        added = cluster.add_broker(name, **chosen) if broker else cluster.add(name, **chosen)
        print(f"{added.name} is ready at {added.address}")


@app.command()
def remove(
    name: Name,
    folder: Folder = DEFAULT_FOLDER,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="End it at once, even if too few others are left. A bookie's entries are copied from other replicas, "
            "and lost if there are none.",
        ),
    ] = False,
) -> None:
    """Remove a bookie or a broker.

    A bookie's ledgers are copied to others first; then it ends, and its data is deleted. A broker hands over its
    topics.
    """
    with _cluster(folder) as cluster:
        bookie = name in cluster.names()
        try:
            cluster.remove(name, force=force)
        except KeyboardInterrupt:
            if bookie:
                print(f"magnetar: {name} may still be leaving: {how_to_cancel(name)}", file=sys.stderr)
            raise
        print(f"{name} is removed")


@app.command()
def kill(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Kill processes (SIGKILL)."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.kill(name)


@app.command()
def pause(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Pause processes (SIGSTOP), as if their machine hung: connections stay open, and nothing is answered."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.pause(name)


@app.command()
def resume(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Resume paused processes (SIGCONT)."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.resume(name)


@app.command()
def stop(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop processes gracefully (SIGTERM): they answer requests in flight first."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.stop(name)


@app.command()
def restart(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop processes gracefully if they run, and start them. Each is ready before the next one is stopped."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.restart(name)


@app.command("set")
def change_settings(
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Settings.", show_default=False)],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Change settings of one bookie or broker. They take effect after `restart`."""
    with _cluster(folder) as cluster:
        chosen = parse_settings(cluster.daemon_part(name).kind, settings)
        cluster.set(name, **chosen)
        print(f"{', '.join(chosen)}: set; `magnetar cluster restart {name}` makes it effective")


@app.command()
def logs(
    name: Name,
    folder: Folder = DEFAULT_FOLDER,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Number of lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Wait for further lines.")] = False,
) -> None:
    """Show the end of a process's log."""
    with _cluster(folder) as cluster, contextlib.suppress(KeyboardInterrupt):
        for line in _read_lines(cluster.log(name), lines, follow=follow):
            print(line, flush=True)


@app.command()
def down(
    folder: Folder = DEFAULT_FOLDER,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete all data, too.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="With --wipe: delete the local data even if an external ZooKeeper does not answer."
        ),
    ] = False,
) -> None:
    """Stop all processes of the cluster."""
    with _cluster(folder) as cluster:
        cluster.down(wipe=wipe, force=force)
        print("the cluster is down" + (", and all its data is deleted" if wipe else ""))


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[LocalCluster]:
    """Yield the cluster, and show progress on standard error: on a terminal in one line, which is replaced."""
    configure_logs()
    console = Console(stderr=True)
    with print_user_errors(), contextlib.ExitStack() as stack:
        on_progress: Callable[[str], None]
        if console.is_terminal:
            shown = stack.enter_context(console.status("…"))
            on_progress = shown.update
        else:
            last = ""

            def on_progress(text: str) -> None:
                # A text that differs only in its seconds is not repeated.
                nonlocal last
                words = _NUMBERS.sub("", text)
                if words != last:
                    last = words
                    print(text, file=console.file, flush=True)

        yield LocalCluster(folder, on_progress=on_progress)


def _read_lines(log: Path, lines: int, *, follow: bool) -> Iterator[str]:
    """Yield the last lines of a log, and with `follow` those that are appended."""
    if not log.exists() and not follow:
        return
    while not log.exists():
        time.sleep(_POLL_S)
    with log.open(errors="replace") as file:
        yield from (line.rstrip("\n") for line in deque(file, maxlen=lines))
        line = ""
        while follow:
            line += file.readline()
            if line.endswith("\n"):
                yield line.rstrip("\n")
                line = ""
            else:
                time.sleep(_POLL_S)


def _show(found: ClusterStatus) -> None:
    table = Table(box=None)
    for column in (
        "name",
        "state",
        "pid",
        "address",
        "pulsar",
        "http",
        "up",
        "memory",
        "topics",
        "bundles",
        "ledgers",
        "disk",
    ):
        table.add_column(column, overflow="fold")
    for part in found.parts:
        colour = _COLOURS.get(part.state, "yellow")
        table.add_row(
            part.name,
            f"[{colour}]{part.state}[/]",
            *("" if cell is None else str(cell) for cell in _cells(part)),
        )
    console = wide_console()
    console.print(table)
    for part in found.parts:
        if part.reason:
            console.print(f"{part.name}: {part.reason}", style="yellow", highlight=False, soft_wrap=True, markup=False)
    console.print(f"metadata: {found.metadata}", highlight=False, soft_wrap=True)
    if found.service_url:
        console.print(f"for Pulsar's clients: {found.pulsar_url}", highlight=False, soft_wrap=True)
        console.print(f"service URL: {found.service_url}", highlight=False, soft_wrap=True)


def _cells(part: PartStatus) -> list[object]:
    return [
        part.pid,
        part.address,
        part.pulsar,
        part.http,
        format_duration(part.uptime_s),
        format_bytes(part.memory_bytes),
        part.topics,
        part.bundles,
        part.ledgers,
        format_bytes(part.disk_bytes),
    ]
