"""`magnetar ledgers …`: list, inspect, recover and delete ledgers, and write and verify sample ledgers."""

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
from magnetar_cli.cluster_folder import DEFAULT_FOLDER
from magnetar_cli.maintenance import sample_ledgers
from magnetar_cli.maintenance.ledger_target import Folder, Metadata, call_ledger_client
from magnetar_cli.maintenance.ledger_views import LedgersView, LedgerView, OrphansView
from magnetar_cli.maintenance.repair_view import RepairTracker
from magnetar_cli.maintenance.views import show, watch
from magnetar_cli.options import AsJson
from magnetar_cli.output import format_bytes

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
    # These are not states of metadata.
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

    async def take_view(client: LedgerClient) -> LedgersView:
        return LedgersView([one async for one in summarize_ledgers(client) if state is None or _has_state(one, state)])

    show(call_ledger_client(metadata, folder, take_view), as_json=as_json)


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

    async def take_view(client: LedgerClient) -> LedgerView:
        found = await client.ledgers.read_metadata(ledger_id, fresh=True)
        found_replicas = list_replicas(client, found)
        checks = (_check_replica(client, ledger_id, found, one) for one in found_replicas) if check else ()
        held_by = dict(zip(found_replicas, await asyncio.gather(*checks), strict=False))
        return LedgerView(ledger_id, found, found_replicas, held_by)

    show(call_ledger_client(metadata, folder, take_view), as_json=as_json)


@app.command()
def repairs(
    folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None, watched: Watch = False, as_json: AsJson = False
) -> None:
    """List the ledgers that lack replicas, with the repair's progress, the bookie that repairs, and problems."""

    async def act(client: LedgerClient) -> None:
        take_view = RepairTracker(client).take_view
        if watched:
            await watch(take_view, as_json=as_json)
        else:
            show(await take_view(), as_json=as_json)

    call_ledger_client(metadata, folder, act)


@app.command()
def orphans(
    folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None, watched: Watch = False, as_json: AsJson = False
) -> None:
    """List the ledgers that no owner has claimed yet, and when they are deleted."""

    async def act(client: LedgerClient) -> None:
        async def take_view() -> OrphansView:
            return OrphansView(
                await list_unclaimed_ledgers(client),
                (await read_recovery_roles(client)).auditor,
                client.clock.time_ms(),
            )

        if watched:
            await watch(take_view, as_json=as_json)
        else:
            show(await take_view(), as_json=as_json)

    call_ledger_client(metadata, folder, act)


@app.command()
def recover(ledger_id: LedgerId, folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None) -> None:
    """Recover a ledger, which closes it. Its writer, if it has one, can add nothing more."""

    async def act(client: LedgerClient) -> None:
        await client.ledgers.read_metadata(ledger_id, fresh=True)  # raises an error that names a missing ledger
        found = await client.recover(ledger_id)
        print(f"ledger {ledger_id} is closed: {found.last_entry_id + 1} entries of {found.length_bytes} bytes")

    call_ledger_client(metadata, folder, act)


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
        await sample_ledgers.delete_ledger(client, ledger_id)
        print(f"ledger {ledger_id} is deleted; its bookies free the space at their next round")

    call_ledger_client(metadata, folder, act)


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
        with _progress("written", entries) as on_progress:
            ledger_id, done = await sample_ledgers.write_ledger(
                client, striping, entries, size, on_progress, claim=not orphan
            )
        print(f"ledger {ledger_id}: {done.entries} entries of {size} bytes written{_format_rate(done)}")

    call_ledger_client(metadata, folder, act)


@app.command()
def read(ledger_id: LedgerId, folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None) -> None:
    """Read a ledger that `write` wrote, and verify every entry."""

    async def act(client: LedgerClient) -> None:
        with _progress("read", None) as on_progress:
            done = await sample_ledgers.verify_ledger(client, ledger_id, on_progress)
        print(f"ledger {ledger_id}: {done.entries} entries read, all as they were written{_format_rate(done)}")

    call_ledger_client(metadata, folder, act)


def _has_state(one: LedgerSummary, state: State) -> bool:
    if state is State.DEGRADED:
        return one.metadata.is_degraded
    if state is State.LACKING:
        return bool(one.missing)
    return one.metadata.state.name == state.name


async def _check_replica(
    client: LedgerClient, ledger_id: int, metadata: LedgerMetadata, replica: Replica
) -> tuple[int, int] | str:
    if not replica.registered:
        return ""
    try:
        return await count_held_entries(client, AutoRecoverySettings(), ledger_id, metadata, replica)
    except CannotRepair as error:
        return str(error)


def _format_rate(done: sample_ledgers.TransferTotals) -> str:
    """Return the end of a line about what was done. It is empty if there were no entries."""
    if not done.entries:
        return ""
    seconds = max(done.seconds, 1e-6)
    return f", {done.entries / seconds:,.0f} entries and {format_bytes(int(done.length_bytes / seconds))} a second"


@contextlib.contextmanager
def _progress(activity: str, total: int | None) -> Iterator[Callable[[int], object]]:
    """Show a progress bar on a terminal. Yield a function that is called with the count so far."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn(activity), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(activity, total=total)
        yield lambda count: progress.update(task, completed=count)
