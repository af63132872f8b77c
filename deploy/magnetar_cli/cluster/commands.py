"""`magnetar cluster …`: a cluster of real processes on this machine, in a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from magnetar_cli.cluster.daemon_settings import BOOKIES, BROKERS, from_flags
from magnetar_cli.cluster.errors import how_to_cancel
from magnetar_cli.cluster.local_cluster import LocalCluster
from magnetar_cli.cluster.status import RUNNING, ClusterStatus, PartStatus
from magnetar_cli.local_folder import DEFAULT_FOLDER, runs_brokers
from magnetar_cli.plain_errors import plain_errors, plain_logs
from magnetar_cli.service import AsJson
from magnetar_cli.shown import bytes_shown, seconds_shown, wide_console

__all__ = ["Folder", "app"]

_NUMBERS = re.compile(r"\d+\.\d+")
_COLOURS = {RUNNING: "green", "stopped": "dim", "dead": "red", "unhealthy": "red"}

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Option("--folder", "-f", help="Where the cluster keeps everything.")]
Name = Annotated[
    str, typer.Argument(help="A broker, a bookie, or a ZooKeeper server; `status` names them.", show_default=False)
]
Names = Annotated[
    list[str],
    typer.Argument(help="Brokers, bookies, ZooKeeper servers, in turn; `status` names them.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="An option of bookies; several times for several."),
]

# A cluster that somebody makes by hand is to be published to.
_BROKERS = 2


@app.command()
def up(
    folder: Folder = DEFAULT_FOLDER,
    bookies: Annotated[int | None, typer.Option(min=1, help="So many there are at least; 3 at first.")] = None,
    brokers: Annotated[int | None, typer.Option(min=0, help="So many there are at least; 2 at first.")] = None,
    zookeepers: Annotated[
        int | None, typer.Option(min=1, max=9, help="Of so many servers a new cluster's ZooKeeper is made; 1 at first.")
    ] = None,
    zookeeper: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,…]", help="One from outside, instead of one of the cluster's own.")
    ] = None,
    settings: Settings = None,
    broker_settings: Annotated[
        list[str] | None,
        typer.Option("--set-broker", metavar="NAME=VALUE", help="An option of brokers; several times for several."),
    ] = None,
    session_timeout_s: Annotated[
        float | None, typer.Option(min=1, help="How long a process that was killed counts as there; 10 at first.")
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=1, help="How long it may take.")] = 60.0,
) -> None:
    """Make a cluster, or bring up what is down of it; returns when all are ready."""
    with _cluster(folder) as cluster:
        cluster.up(
            bookies,
            _BROKERS if brokers is None and not cluster.exists else brokers,
            zookeepers=zookeepers,
            zookeeper=zookeeper,
            settings=from_flags(BOOKIES, settings or []),
            broker_settings=from_flags(BROKERS, broker_settings or []),
            session_timeout_s=session_timeout_s,
            timeout_s=timeout_s,
        )
        _show(cluster.status())


@app.command()
def status(
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Show its processes. The exit status is 0 only if all are well."""
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

    They export MAGNETAR_URL, which all commands of clients read. The URL of Pulsar's clients is in a comment.

    Addresses stay the same while the cluster is down, so they are printed then too, with a hint on standard error.
    """
    with _cluster(folder) as cluster:
        print(f"export MAGNETAR_URL={shlex.quote(cluster.service_url)}")
        print(f"# Pulsar's clients: {cluster.pulsar_url}")
        if not runs_brokers(folder):
            up = "magnetar cluster up" + ("" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}")
            print(f"magnetar: no broker of this cluster runs: `{up}` starts it", file=sys.stderr)


@app.command()
def add(
    name: Annotated[
        str | None, typer.Argument(help="Default: the kind and the next free number.", show_default=False)
    ] = None,
    bookie: Annotated[bool, typer.Option("--bookie", help="Add a bookie.")] = False,
    broker: Annotated[bool, typer.Option("--broker", help="Add a broker.")] = False,
    folder: Folder = DEFAULT_FOLDER,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of it; several times for several."),
    ] = None,
) -> None:
    """Add a bookie or a broker. New ledgers use a bookie at once; stored entries stay where they are. A broker gets
    topics at once."""
    if bookie == broker:
        raise typer.BadParameter("say what to add: --bookie or --broker", param_hint="--bookie / --broker")
    with _cluster(folder) as cluster:
        chosen = from_flags(BROKERS if broker else BOOKIES, settings or [])
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
            help="End it at once, even if too few others are left: what a bookie stores is made again from other "
            "replicas, and lost where there are none.",
        ),
    ] = False,
) -> None:
    """Take a bookie or a broker out.

    A bookie's ledgers are copied to others first, then it ends and its data are deleted. A broker hands over its
    topics.
    """
    with _cluster(folder) as cluster:
        bookie = name in cluster.names()
        try:
            cluster.remove(name, force=force)
        except KeyboardInterrupt:
            if bookie:
                print(f"magnetar: {name} may be leaving still: {how_to_cancel(name)}", file=sys.stderr)
            raise
        print(f"{name} is taken out")


@app.command()
def kill(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Kill -9."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.kill(name)


@app.command()
def pause(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Have it stand still, as a machine that hangs: its connections stay, and nothing is answered."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.pause(name)


@app.command()
def resume(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Have one that stands still go on."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.resume(name)


@app.command()
def stop(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Ask it to end (SIGTERM): it answers what is under way first."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.stop(name)


@app.command()
def restart(names: Names, folder: Folder = DEFAULT_FOLDER) -> None:
    """Stop it if it runs, and start it; returns when it is ready. Each is ready before the next is stopped."""
    with _cluster(folder) as cluster:
        for name in names:
            cluster.restart(name)


@app.command("set")
def set_options(
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="Its options.", show_default=False)],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Set options of one bookie or broker; `restart` has it take them."""
    with _cluster(folder) as cluster:
        chosen = from_flags(cluster.daemon_part(name).options, settings)
        cluster.set(name, **chosen)
        print(f"{', '.join(chosen)}: {name} takes that at its next start")


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
                # How long something takes is told once, and not as it goes on.
                words = _NUMBERS.sub("", text)
                if words not in said[-1:]:
                    said.append(words)
                    print(text, file=console.file, flush=True)

        yield LocalCluster(folder, say=say)


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
        seconds_shown(part.uptime_s),
        bytes_shown(part.memory_bytes),
        part.topics,
        part.bundles,
        part.ledgers,
        bytes_shown(part.disk_bytes),
    ]
