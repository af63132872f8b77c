"""`magnetar namespaces …`: create, list and delete namespaces, and set their policies."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar_cli.administration.policy_options import (
    find_without_effect,
    policy_options,
    print_policies,
    read_policies,
)
from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command, add_function
from magnetar_cli.options import AdminUrl, AsJson, Force
from magnetar_cli.output import format_json
from magnetar_cli.service import DEFAULT_URL, call_admin

if TYPE_CHECKING:
    from magnetar.admin import Admin, NamespacePolicies

app = typer.Typer(
    help="Create, list and delete namespaces, and set their policies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Namespace = Annotated[str, typer.Argument(help="Namespace, e.g. public/default.")]
_NAMESPACE = Argument("namespace", Namespace)

add_command(
    app,
    SimpleCommand(
        "list",
        "namespaces.list",
        "List a tenant's namespaces.",
        arguments=(Argument("tenant", Annotated[str, typer.Argument(help="Tenant.")], "public"),),
        lists="namespace",
    ),
)
add_command(
    app,
    SimpleCommand(
        "create",
        "namespaces.create",
        "Create a namespace.",
        arguments=(
            _NAMESPACE,
            Argument(
                "bundles",
                Annotated[int | None, typer.Option(min=1, help="Number of bundles.", show_default=False)],
                None,
            ),
        ),
        prints="{namespace}: created",
    ),
)
add_command(
    app,
    SimpleCommand(
        "delete",
        "namespaces.delete",
        "Delete a namespace. With --force, all its topics are deleted, too.",
        arguments=(_NAMESPACE, Argument("force", Force, False)),
        confirms="Delete {namespace}",
        confirms_forced="Delete {namespace} with all its topics",
        prints="{namespace}: deleted",
    ),
)


def _run_policies(**given: Any) -> None:
    from magnetar.admin import NamespacePolicies

    namespace = given["namespace"]
    wanted, removed = read_policies(NamespacePolicies, given)
    changes = wanted != NamespacePolicies() or bool(removed)

    def act(admin: Admin) -> tuple[NamespacePolicies, Sequence[str], Sequence[str]]:
        warnings = admin.namespaces.change_policies(namespace, wanted, removed) if changes else ()
        return admin.namespaces.policies(namespace), admin.namespaces.policy_warnings(namespace), warnings

    found, remarks, warnings = call_admin(given["url"], act, changes=changes)
    for warning in warnings:
        print(f"magnetar: warning: {warning}", file=sys.stderr)
    if given["as_json"]:
        not_in_effect = list(find_without_effect(remarks))
        print(format_json({"namespace": namespace, **dataclasses.asdict(found), "not_in_effect": not_in_effect}))
        return
    print_policies(found, remarks, "as in the brokers' settings", removed, every=given["every"])


add_function(
    app,
    "policies",
    "Set and show a namespace's policies. Policies that are not given stay unchanged.",
    [
        _NAMESPACE,
        *policy_options(),
        Argument("url", AdminUrl, DEFAULT_URL),
        Argument("as_json", AsJson, False),
    ],
    _run_policies,
    has_long_options=True,
)
