"""`magnetar namespaces …`: create, list and delete namespaces, and set their policies."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command
from magnetar_cli.options import AdminUrl, AsJson, Force
from magnetar_cli.output import format_json, print_rows
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


@app.command("policies")
def policies(
    namespace: Namespace,
    persistence: Annotated[
        str | None,
        typer.Option(
            metavar="E,Qw,Qa", help="Ensemble size, write quorum and ack quorum, e.g. 3,3,2.", show_default=False
        ),
    ] = None,
    auto_topic_creation: Annotated[
        bool | None, typer.Option(help="Create topics on first use.", show_default=False)
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=0, help="Partitions of topics created on first use; 0: not partitioned.", show_default=False),
    ] = None,
    auto_subscription_creation: Annotated[
        bool | None, typer.Option(help="Create subscriptions on first use.", show_default=False)
    ] = None,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Set and show a namespace's policies. Policies that are not given stay unchanged."""
    quorums = None if persistence is None else _parse_quorums(persistence)
    if partitions is not None and auto_topic_creation is not True:
        raise typer.BadParameter("it needs --auto-topic-creation: give both", param_hint="--partitions")

    def act(admin: Admin) -> tuple[NamespacePolicies, tuple[str, ...]]:
        from magnetar.admin import AutoSubscriptionCreation, AutoTopicCreation, Persistence

        found = admin.namespaces.policies(namespace)
        wanted = found
        if quorums is not None:
            wanted = dataclasses.replace(wanted, persistence=Persistence(*quorums))
        if auto_topic_creation is not None:
            creation = AutoTopicCreation(auto_topic_creation, partitions or 0)
            wanted = dataclasses.replace(wanted, auto_topic_creation=creation)
        if auto_subscription_creation is not None:
            wanted = dataclasses.replace(
                wanted, auto_subscription_creation=AutoSubscriptionCreation(auto_subscription_creation)
            )
        return wanted, admin.namespaces.set_policies(namespace, wanted) if wanted != found else ()

    changes = not (quorums is None and auto_topic_creation is None and auto_subscription_creation is None)
    found, warnings = call_admin(url, act, changes=changes)
    for warning in warnings:
        print(f"magnetar: warning: {warning}", file=sys.stderr)
    if as_json:
        print(format_json({"namespace": namespace, **dataclasses.asdict(found)}))
        return
    rows = []
    for policy in dataclasses.fields(found):
        value = getattr(found, policy.name)
        shown = "as in the brokers' settings" if value is None else _format_policy(dataclasses.asdict(value))
        rows.append((policy.name.replace("_", " "), shown))
    print_rows(("policy", "value"), rows, as_json=False)


def _format_policy(value: dict[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {one}" for name, one in value.items())


def _parse_quorums(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        raise typer.BadParameter(
            f"{text!r} is not three numbers: use ensemble size, write quorum and ack quorum, e.g. 3,3,2",
            param_hint="--persistence",
        )
    ensemble, write, ack = map(int, parts)
    return ensemble, write, ack
