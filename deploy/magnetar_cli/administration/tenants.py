"""`magnetar tenants …`: create, list and delete tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar_cli.administration.confirming import Force, Yes, confirm
from magnetar_cli.administration.telling import tell_rows
from magnetar_cli.service import DEFAULT_URL, AsJson, Url, administered

app = typer.Typer(help="Create, list and delete tenants.", no_args_is_help=True, pretty_exceptions_enable=False)

Tenant = Annotated[str, typer.Argument(help="Tenant, e.g. public.")]


@app.command("list")
def list_tenants(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List all tenants."""
    names = administered(url, lambda admin: admin.tenants.list())
    tell_rows(("tenant",), [(name,) for name in names], as_json=as_json)


@app.command("create")
def create(tenant: Tenant, url: Url = DEFAULT_URL) -> None:
    """Create a tenant."""
    administered(url, lambda admin: admin.tenants.create(tenant), changes=True)
    print(f"{tenant}: created")


@app.command("delete")
def delete(tenant: Tenant, force: Force = False, yes: Yes = False, url: Url = DEFAULT_URL) -> None:
    """Delete a tenant. With --force, all its namespaces and topics are deleted, too."""
    confirm(f"Delete {tenant}" + (" with all its namespaces and topics" if force else ""), yes)
    administered(url, lambda admin: admin.tenants.delete(tenant, force), changes=True)
    print(f"{tenant}: deleted")
