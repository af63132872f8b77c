"""`magnetar consume`: receive messages from a subscription."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar_cli.messages.choices import Kind, Start
from magnetar_cli.messages.options import AsHex, AsRaw, format_of
from magnetar_cli.service import DEFAULT_URL, AsJson, ListenerName, Topics, Url, connected_client, end_as_told

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def consume(
    topics: Topics,
    subscription: Annotated[
        str, typer.Option("--subscription", "-s", help="Subscription name; created if it does not exist.")
    ],
    kind: Annotated[Kind, typer.Option("--type", "-t", help="Subscription type.")] = Kind.EXCLUSIVE,
    start: Annotated[Start, typer.Option(help="Start position of a new subscription.")] = Start.LATEST,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Maximum number of messages; 0: no limit.")] = 0,
    quiet_s: Annotated[
        float | None,
        typer.Option("--timeout", min=0, help="End after this many seconds without a message.", show_default=False),
    ] = None,
    ack: Annotated[bool, typer.Option(help="Acknowledge printed messages, so that they are not redelivered.")] = True,
    nack: Annotated[bool, typer.Option("--nack", help="Nack printed messages, so that they are redelivered.")] = False,
    nack_delay_s: Annotated[float, typer.Option(min=0, help="Seconds until --nack redelivers.")] = 60,
    consumer_name: Annotated[
        str | None, typer.Option(help="Consumer name, shown in statistics.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_raw: AsRaw = False,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Receive messages from a subscription, print them, and acknowledge them.

    With --json, each line is an object, with `value_base64` instead of `value` if the value is not text;
    `produce --json` reads them. Exit status 0: done; 3: unknown whether the last messages are acknowledged; 4: no
    broker answers; 5: fewer than --count messages before --timeout.
    """
    how = format_of(as_json=as_json, as_hex=as_hex, as_raw=as_raw)
    with end_as_told():
        from magnetar import ConsumerType, InitialPosition
        from magnetar_cli.messages.consuming import After, Until
        from magnetar_cli.messages.consuming import consume as receive
        from magnetar_cli.messages.showing import MessageWriter

        if nack and not ack:
            raise typer.BadParameter("--nack acknowledges nothing: leave out --no-ack", param_hint="--nack")
        with (
            connected_client(url, listener_name) as client,
            client.subscribe(
                topics if len(topics) > 1 else topics[0],
                subscription,
                ConsumerType[kind.capitalize()],
                receiver_queue_size=min(count, 1000) or 1000,
                consumer_name=consumer_name,
                initial_position=InitialPosition[start.capitalize()],
                negative_ack_redelivery_delay_ms=nack_delay_s * 1000,
            ) as consumer,
        ):
            writer = MessageWriter(how, with_topics=len(topics) > 1)
            after = After.NACK if nack else After.ACK if ack else After.NOTHING
            code = receive(consumer, writer, after, Until(count, quiet_s))
    raise typer.Exit(code)
