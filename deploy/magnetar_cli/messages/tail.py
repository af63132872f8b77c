"""`magnetar tail`: show messages of topics without a subscription, also as they are published."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar_cli.messages.positions import parse_position
from magnetar_cli.options import AsHex, AsJson, AsRaw, Decode, ListenerName, Topics, Url, choose_format
from magnetar_cli.service import (
    DEFAULT_URL,
    OPERATION_TIMEOUT_S,
    connect_client,
    exit_on_error,
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
    decode: Decode = True,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Show messages as they are published, without a subscription: nothing is acknowledged.

    Only messages that the topic still stores are shown: those that all its subscriptions have acknowledged may be
    deleted. A value is printed by the schema version that its message was written with, if it has one. Exit status 1:
    some values could not be decoded, and were printed as payloads; 130: Ctrl-C has ended it.
    """
    output_format = choose_format(as_json=as_json, as_hex=as_hex, as_raw=as_raw)
    if last and start is not None:
        raise typer.BadParameter("--last and --from exclude each other: use one of them", param_hint="--from")
    with exit_on_error():
        from magnetar.admin import Admin
        from magnetar_cli.messages.message_output import MessageWriter, choose_schema
        from magnetar_cli.messages.topic_tail import Tail, show_messages

        chosen = Tail(
            last,
            None if start is None else parse_position(start),
            follow,
            count,
            choose_schema(output_format, decode=decode),
        )
        writer = MessageWriter(output_format, with_topics=len(topics) > 1)
        with Admin(url, OPERATION_TIMEOUT_S) as admin, connect_client(url, listener_name) as client:
            code = show_messages(client, admin, topics, chosen, writer)
    raise typer.Exit(code)
