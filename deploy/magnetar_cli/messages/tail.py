"""`magnetar tail`: look at topics as they grow."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar_cli.messages.options import AsHex, AsRaw, format_of
from magnetar_cli.service import (
    DEFAULT_URL,
    PATIENCE_S,
    AsJson,
    ListenerName,
    Topics,
    Url,
    connected_client,
    end_as_told,
)

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def tail(
    topics: Topics,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, max=100_000, help="Show this many stored messages first.")
    ] = 0,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Start position: earliest, a message id, a time, or an age, e.g. 10m.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Wait for further messages.")] = True,
    count: Annotated[int, typer.Option("--count", "-c", min=0, help="Maximum number of messages; 0: no limit.")] = 0,
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_raw: AsRaw = False,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Show messages as they are published, without a subscription: nothing is acknowledged.

    Only messages that the topic still stores are shown: those that all its subscriptions have acknowledged may be
    deleted. Exit status 130 when Ctrl-C ends it.
    """
    how = format_of(as_json=as_json, as_hex=as_hex, as_raw=as_raw)
    if last and start is not None:
        raise typer.BadParameter("--last and --from exclude each other: use one of them", param_hint="--from")
    with end_as_told():
        from magnetar.admin import Admin
        from magnetar_cli.messages.places import parse_place
        from magnetar_cli.messages.showing import MessageWriter
        from magnetar_cli.messages.tailing import Look
        from magnetar_cli.messages.tailing import tail as look_at

        look = Look(last, None if start is None else parse_place(start), follow, count)
        writer = MessageWriter(how, with_topics=len(topics) > 1)
        with Admin(url, PATIENCE_S) as admin, connected_client(url, listener_name) as client:
            code = look_at(client, admin, topics, look, writer)
    raise typer.Exit(code)
