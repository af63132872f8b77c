"""`magnetar ledgers …`: what is stored, where it lies, what is being made whole or swept; and small tools to try it."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from magnetar_bookie.auto_recovery.bookie_overview import read_recovery_roles
from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.ledger_overview import (
    LedgerSummary,
    Replica,
    count_held_entries,
    list_replicas,
    summarize_ledgers,
)
from magnetar_bookie.auto_recovery.unclaimed_ledgers import list_unclaimed_ledgers
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_cli.local_folder import DEFAULT_FOLDER
from magnetar_cli.maintenance import by_hand
from magnetar_cli.maintenance.ledger_views import LedgersView, LedgerView, OrphansView
from magnetar_cli.maintenance.repairs import Repairs
from magnetar_cli.maintenance.showing import show, watch
from magnetar_cli.maintenance.target import Folder, Metadata, at_target
from magnetar_cli.service import AsJson
from magnetar_cli.shown import bytes_shown

app = typer.Typer(
    help="List, inspect, recover and delete ledgers.", no_args_is_help=True, pretty_exceptions_enable=False
)

LedgerId = Annotated[int, typer.Argument(min=1, help="Ledger id; `list` shows them.", show_default=False)]
Watch = Annotated[bool, typer.Option("--watch", help="Show updates until there is nothing left to wait for.")]


class State(enum.Enum):
    OPEN = "open"
    IN_RECOVERY = "in-recovery"
    CLOSED = "closed"
    TOMBSTONE = "tombstone"
    # Not states of theirs, but what one looks for.
    DEGRADED = "degraded"
    LACKING = "lacking"


@app.command("list")
def list_ledgers(
    folder: Folder = DEFAULT_FOLDER,
    metadata: Metadata = None,
    state: Annotated[
        State | None, typer.Option(help="Ledgers in this state; `lacking`: with an unregistered bookie.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all ledgers, or those in one state."""

    async def look(client: LedgerClient) -> LedgersView:
        return LedgersView([one async for one in summarize_ledgers(client) if state is None or _is(one, state)])

    show(at_target(metadata, folder, look), as_json=as_json)


@app.command("show")
def show_ledger(
    ledger_id: LedgerId,
    folder: Folder = DEFAULT_FOLDER,
    metadata: Metadata = None,
    check: Annotated[
        bool, typer.Option("--check", help="Count the undamaged entries at each bookie, which reads all of them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one ledger and the bookies of its replicas; with --check, also how many entries they have."""

    async def look(client: LedgerClient) -> LedgerView:
        found = await client.ledgers.read_metadata(ledger_id, fresh=True)
        places = list_replicas(client, found)
        answers = await asyncio.gather(*(_held(client, ledger_id, found, one) for one in places)) if check else []
        return LedgerView(ledger_id, found, places, dict(zip(places, answers, strict=False)))

    show(at_target(metadata, folder, look), as_json=as_json)


@app.command()
def repairs(
    folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None, watched: Watch = False, as_json: AsJson = False
) -> None:
    """List the ledgers that lack replicas, with the repair's progress, the bookie that repairs, and problems."""

    async def act(client: LedgerClient) -> None:
        look = Repairs(client).look
        if watched:
            await watch(look, as_json=as_json)
        else:
            show(await look(), as_json=as_json)

    at_target(metadata, folder, act)


@app.command()
def orphans(
    folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None, watched: Watch = False, as_json: AsJson = False
) -> None:
    """List the ledgers that no owner has claimed yet, and when they are deleted."""

    async def act(client: LedgerClient) -> None:
        async def look() -> OrphansView:
            return OrphansView(
                await list_unclaimed_ledgers(client),
                (await read_recovery_roles(client)).auditor,
                client.clock.time_ms(),
            )

        if watched:
            await watch(look, as_json=as_json)
        else:
            show(await look(), as_json=as_json)

    at_target(metadata, folder, act)


@app.command()
def recover(ledger_id: LedgerId, folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None) -> None:
    """Recover a ledger, which closes it. Its writer, if it has one, can add nothing more."""

    async def act(client: LedgerClient) -> None:
        await client.ledgers.read_metadata(ledger_id, fresh=True)  # says which there is not
        found = await client.recover(ledger_id)
        print(f"ledger {ledger_id} is closed: {found.last_entry_id + 1} entries of {found.length_bytes} bytes")

    at_target(metadata, folder, act)


@app.command()
def delete(
    ledger_id: LedgerId,
    folder: Folder = DEFAULT_FOLDER,
    metadata: Metadata = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a ledger, even if a topic needs it."""
    if not yes:
        typer.confirm(f"Delete ledger {ledger_id} with all its entries?", abort=True)

    async def act(client: LedgerClient) -> None:
        await by_hand.delete(client, ledger_id)
        print(f"ledger {ledger_id} is deleted; its bookies free the space at their next round")

    at_target(metadata, folder, act)


@app.command()
def write(
    folder: Folder = DEFAULT_FOLDER,
    metadata: Metadata = None,
    entries: Annotated[int, typer.Option(min=0, help="Number of entries.")] = 1000,
    size: Annotated[int, typer.Option(min=0, max=4_000_000, help="Size of each entry, in bytes.")] = 1024,
    ensemble: Annotated[int, typer.Option(min=1, help="Bookies that the ledger is striped over.")] = 3,
    write_quorum: Annotated[int, typer.Option(min=1, help="Copies of each entry.")] = 3,
    ack_quorum: Annotated[int, typer.Option(min=1, help="Copies on disk before an add completes.")] = 2,
    orphan: Annotated[bool, typer.Option("--orphan", help="Leave it unclaimed: the auditor deletes it.")] = False,
) -> None:
    """Create a ledger, and write entries that `read` can verify."""
    if not ensemble >= write_quorum >= ack_quorum:
        raise typer.BadParameter(
            f"ensemble {ensemble}, write quorum {write_quorum}, ack quorum {ack_quorum}: none can be larger than the "
            "one before it"
        )
    striping = Striping(ensemble, write_quorum, ack_quorum)

    async def act(client: LedgerClient) -> None:
        with _progress("written", entries) as tell:
            ledger_id, done = await by_hand.write(client, striping, entries, size, tell, claim=not orphan)
        print(f"ledger {ledger_id}: {done.entries} entries of {size} bytes written{_rate(done)}")

    at_target(metadata, folder, act)


@app.command()
def read(ledger_id: LedgerId, folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None) -> None:
    """Read a ledger that `write` wrote, and verify every entry."""

    async def act(client: LedgerClient) -> None:
        with _progress("read", None) as tell:
            done = await by_hand.read_back(client, ledger_id, tell)
        print(f"ledger {ledger_id}: {done.entries} entries read, all as they were written{_rate(done)}")

    at_target(metadata, folder, act)


def _is(one: LedgerSummary, state: State) -> bool:
    if state is State.DEGRADED:
        return one.metadata.degraded
    if state is State.LACKING:
        return bool(one.missing)
    return one.metadata.state.name == state.name


async def _held(
    client: LedgerClient, ledger_id: int, metadata: LedgerMetadata, replica: Replica
) -> tuple[int, int] | str:
    if not replica.registered:
        return ""
    try:
        return await count_held_entries(client, AutoRecoverySettings(), ledger_id, metadata, replica)
    except CannotRepair as error:
        return str(error)


def _rate(done: by_hand.Read) -> str:
    """To be put behind what was done; of nothing there is none."""
    if not done.entries:
        return ""
    seconds = max(done.seconds, 1e-6)
    return f", {done.entries / seconds:,.0f} entries and {bytes_shown(int(done.length_bytes / seconds))} a second"


@contextlib.contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """A bar, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.update(task, completed=count)
