"""`magnetar cluster …`: a cluster of real processes on this machine, in a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from magnetar_cli.cluster.bookie_settings import from_flags
from magnetar_cli.cluster.errors import how_to_cancel
from magnetar_cli.cluster.local_cluster import LocalCluster
from magnetar_cli.cluster.status import RUNNING, ClusterStatus, PartStatus
from magnetar_cli.plain_errors import plain_errors, plain_logs
from magnetar_cli.shown import bytes_shown, seconds_shown, wide_console

__all__ = ["DEFAULT_FOLDER", "Folder", "app"]

DEFAULT_FOLDER = Path(".magnetar")
_COLOURS = {RUNNING: "green", "stopped": "dim", "dead": "red", "unhealthy": "red"}

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Option("--folder", "-f", help="Where the cluster keeps everything.")]
Name = Annotated[str, typer.Argument(help="A bookie, or `zookeeper`; `status` names them.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An option of bookies; several times for several."),
]


@app.command()
def up(
    folder: Folder = DEFAULT_FOLDER,
    bookies: Annotated[int | None, typer.Option(min=1, help="So many there are at least; 3 at first.")] = None,
    zookeeper: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,…]", help="One from outside, instead of one of the cluster's own.")
    ] = None,
    settings: Settings = None,
    session_timeout_s: Annotated[
        float | None, typer.Option(min=1, help="How long a bookie that was killed counts as there; 10 at first.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=1, help="How long it may take.")] = 60.0,
) -> None:
    """Make a cluster, or bring up what is down of it; returns when all are ready."""
    with _cluster(folder) as cluster:
        cluster.up(
            bookies, zookeeper, from_flags(settings or []), session_timeout_s=session_timeout_s, timeout_s=timeout_s
        )
        _show(cluster.status())


@app.command()
def status(
    folder: Folder = DEFAULT_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show its processes. The exit status is 0 only if all are well."""
    with _cluster(folder) as cluster:
        found = cluster.status()
        if as_json:
            print(json.dumps({**dataclasses.asdict(found), "well": found.well}, indent=2))
        else:
            _show(found)
    raise typer.Exit(0 if found.well else 1)


@app.command()
def add(
    name: Annotated[str | None, typer.Argument(help="One of its own, if not given.", show_default=False)] = None,
    folder: Folder = DEFAULT_FOLDER,
    settings: Settings = None,
) -> None:
    """Add a bookie. New ledgers use it at once; what is stored stays where it is."""
    with _cluster(folder) as cluster:
        bookie = cluster.add(name, **from_flags(settings or []))
        print(f"{bookie.name} is ready at {bookie.address}")


@app.command()
def remove(
    name: Name,
    folder: Folder = DEFAULT_FOLDER,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="End it at once, even if too few others are left: what it stores is made again from other replicas, "
            "and lost where there are none.",
        ),
    ] = False,
) -> None:
    """Take a bookie out: its ledgers are copied to others first, then it ends and its data are deleted."""
    with _cluster(folder) as cluster:
        try:
            cluster.remove(name, force=force)
        except KeyboardInterrupt:
            print(f"magnetar: {name} may be leaving still: {how_to_cancel(name)}", file=sys.stderr)
            raise
        print(f"{name} is taken out")


@app.command()
def kill(name: Name, folder: Folder = DEFAULT_FOLDER) -> None:
    """Kill -9."""
    with _cluster(folder) as cluster:
        cluster.kill(name)


@app.command()
def pause(name: Name, folder: Folder = DEFAULT_FOLDER) -> None:
    """Have it stand still, as a machine that hangs: its connections stay, and nothing is answered."""
    with _cluster(folder) as cluster:
        cluster.pause(name)


@app.command()
def resume(name: Name, folder: Folder = DEFAULT_FOLDER) -> None:
    """Have one that stands still go on."""
    with _cluster(folder) as cluster:
        cluster.resume(name)


@app.command()
def stop(name: Name, folder: Folder = DEFAULT_FOLDER) -> None:
    """Ask it to end (SIGTERM): it answers what is under way first."""
    with _cluster(folder) as cluster:
        cluster.stop(name)


@app.command()
def restart(name: Name, folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop it if it runs, and start it; returns when it is ready."""
    with _cluster(folder) as cluster:
        cluster.restart(name)


@app.command()
def logs(
    name: Name,
    folder: Folder = DEFAULT_FOLDER,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Go on as more is logged.")] = False,
) -> None:
    """Show the end of its log."""
    from magnetar_cli.cluster.tailing import tail

    with _cluster(folder) as cluster, contextlib.suppress(KeyboardInterrupt):
        for line in tail(cluster.log(name), lines, follow=follow):
            print(line, flush=True)


@app.command()
def down(
    folder: Folder = DEFAULT_FOLDER,
    wipe: Annotated[bool, typer.Option("--wipe", help="Delete everything that it stored, too.")] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="With --wipe: even if a ZooKeeper from outside keeps what is there, as it does not answer."
        ),
    ] = False,
) -> None:
    """End all its processes."""
    with _cluster(folder) as cluster:
        cluster.down(wipe=wipe, force=force)
        print("the cluster is down" + (", and everything of it is deleted" if wipe else ""))


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[LocalCluster]:
    """What is waited for is shown on standard error, in place on a terminal."""
    plain_logs()
    console = Console(stderr=True)
    with plain_errors(), contextlib.ExitStack() as stack:
        say: Callable[[str], None]
        if console.is_terminal:
            shown = stack.enter_context(console.status("…"))
            say = shown.update
        else:
            said: list[str] = []

            def say(text: str) -> None:
                if text not in said[-1:]:
                    said.append(text)
                    print(text, file=console.file, flush=True)

        yield LocalCluster(folder, say=say)


def _show(found: ClusterStatus) -> None:
    table = Table(box=None)
    for column in ("name", "state", "pid", "address", "http", "up", "memory", "ledgers", "disk"):
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


def _cells(part: PartStatus) -> list[object]:
    return [
        part.pid,
        part.address,
        part.http,
        seconds_shown(part.uptime_s),
        bytes_shown(part.memory_bytes),
        part.ledgers,
        bytes_shown(part.disk_bytes),
    ]
