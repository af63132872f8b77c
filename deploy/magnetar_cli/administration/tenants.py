"""`magnetar tenants …`: create, list and delete tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command
from magnetar_cli.options import Force

app = typer.Typer(help="Create, list and delete tenants.", no_args_is_help=True, pretty_exceptions_enable=False)

_TENANT = Argument("tenant", Annotated[str, typer.Argument(help="Tenant, e.g. public.")])

add_command(app, SimpleCommand("list", "tenants.list", "List all tenants.", lists="tenant"))
add_command(
    app, SimpleCommand("create", "tenants.create", "Create a tenant.", arguments=(_TENANT,), prints="{tenant}: created")
)
add_command(
    app,
    SimpleCommand(
        "delete",
        "tenants.delete",
        "Delete a tenant. With --force, all its namespaces and topics are deleted, too.",
        arguments=(_TENANT, Argument("force", Force, False)),
        confirms="Delete {tenant}",
        confirms_forced="Delete {tenant} with all its namespaces and topics",
        prints="{tenant}: deleted",
    ),
)
