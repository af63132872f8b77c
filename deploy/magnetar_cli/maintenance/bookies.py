"""`magnetar bookies …`: list, make read-only and decommission bookies."""

from __future__ import annotations

import asyncio
import enum
import json
from typing import Annotated

import typer

from magnetar_bookie.auto_recovery.bookie_overview import BookieState, read_recovery_roles, summarize_bookies
from magnetar_bookie.auto_recovery.decommission import cancel_decommission, start_decommission
from magnetar_bookie.auto_recovery.decommission_check import check_decommission
from magnetar_bookie.auto_recovery.errors import CannotDecommission
from magnetar_bookie.auto_recovery.underreplicated_ledgers import list_repair_progress
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_cli.cluster.errors import ClusterError, NoSuchName
from magnetar_cli.cluster_folder import DEFAULT_FOLDER
from magnetar_cli.http_request import request_http
from magnetar_cli.maintenance.bookie_views import BookiesView, DecommissionView, request_status
from magnetar_cli.maintenance.ledger_target import Folder, Metadata, call_ledger_client
from magnetar_cli.maintenance.views import show, watch
from magnetar_cli.options import AsJson

app = typer.Typer(
    help="List, make read-only and decommission bookies.", no_args_is_help=True, pretty_exceptions_enable=False
)

Name = Annotated[str, typer.Argument(help="Bookie; `list` shows them.", show_default=False)]


class OnOff(enum.Enum):
    ON = "on"
    OFF = "off"


@app.command("list")
def list_bookies(folder: Folder = DEFAULT_FOLDER, metadata: Metadata = None, as_json: AsJson = False) -> None:
    """List all bookies with their state, and show which one is the auditor."""

    async def take_view(client: LedgerClient) -> BookiesView:
        found = await summarize_bookies(client)
        statuses = await asyncio.gather(*(asyncio.to_thread(request_status, one) for one in found))
        reported = {one.bookie_id: status for one, status in zip(found, statuses, strict=True)}
        return BookiesView(found, await read_recovery_roles(client), reported)

    show(call_ledger_client(metadata, folder, take_view), as_json=as_json)


@app.command("read-only")
def read_only(
    name: Name,
    wanted: Annotated[OnOff, typer.Argument(help="`off` only reverts `on`: a full disk stays read-only.")],
    folder: Folder = DEFAULT_FOLDER,
    metadata: Metadata = None,
) -> None:
    """Make a bookie refuse new entries, or accept them again. It applies after restarts, too."""

    async def request(client: LedgerClient) -> None:
        found = {one.bookie_id: one for one in await summarize_bookies(client)}
        if name not in found:
            raise NoSuchName(name, found)
        http = found[name].http_address
        if not http:
            raise ClusterError(f"{name} is not registered, or serves no HTTP (setting http_address)")
        body = {"read_only": wanted is OnOff.ON}
        status, answer = await asyncio.to_thread(request_http, http, "/read-only", "POST", body)
        if status != 200 or not isinstance(answer, dict):
            raise ClusterError(f"{name} refused: {json.dumps(answer)}" if status else f"{name} does not answer")
        if answer["read_only"]:
            because = ", ".join(answer["read_only_because"])
            print(f"{name} is read-only ({because})")
        else:
            print(f"{name} accepts entries")

    call_ledger_client(metadata, folder, request)


@app.command("decommission")
def decommission_bookie(
    name: Name,
    folder: Folder = DEFAULT_FOLDER,
    metadata: Metadata = None,
    watched: Annotated[bool, typer.Option("--watch", help="Show the progress until it is decommissioned.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start it even if too few other bookies are left; it waits for more.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the decommission: the bookie stays.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy all that a bookie stores to others, then remove it from the cluster. Its name can't be reused."""
    if cancel and (watched or force):
        raise typer.BadParameter("--cancel excludes --watch and --force")

    async def act(client: LedgerClient) -> None:
        found = {one.bookie_id: one for one in await summarize_bookies(client)}
        if name not in found:
            raise NoSuchName(name, found)
        if cancel:
            await cancel_decommission(client, name)
            stays = DecommissionView(name, None, None, is_decommissioned=False, is_cancelled=True)
            if as_json:
                show(stays, as_json=True)
            else:
                print("\n".join(stays.lines()))
            return
        if not force and found[name].decommission is None:
            try:
                await check_decommission(client, name)
            except CannotDecommission as error:
                raise ClusterError(f"{error}: add bookies first, or let it wait for them with --force") from None
        await start_decommission(client, name)
        first: int | None = None

        async def take_view() -> DecommissionView:
            nonlocal first
            one = next(one for one in await summarize_bookies(client) if one.bookie_id == name)
            left = one.decommission.ledgers_left if one.decommission else None
            first = max(first or 0, left) if left is not None else first
            stuck = next((task.stuck for task in await list_repair_progress(client) if task.stuck), "")
            return DecommissionView(
                name,
                left,
                first,
                is_decommissioned=one.state is BookieState.DECOMMISSIONED,
                is_cancelled=one.decommission is None,
                stuck=stuck,
            )

        if watched:
            await watch(take_view, as_json=as_json)
        else:
            show(await take_view(), as_json=as_json)

    call_ledger_client(metadata, folder, act)
