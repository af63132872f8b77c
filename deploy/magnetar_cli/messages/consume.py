"""`magnetar consume`: receive messages from a subscription."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar_cli.options import (
    AsHex,
    AsJson,
    AsRaw,
    Decode,
    ListenerName,
    Start,
    SubscriptionType,
    Topics,
    Url,
    choose_format,
)
from magnetar_cli.service import DEFAULT_URL, connect_client, exit_on_error

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def consume(
    topics: Topics,
    subscription: Annotated[
        str, typer.Option("--subscription", "-s", help="Subscription name; created if it does not exist.")
    ],
    subscription_type: Annotated[
        SubscriptionType, typer.Option("--type", "-t", help="Subscription type.")
    ] = SubscriptionType.EXCLUSIVE,
    is_pattern: Annotated[
        bool, typer.Option("--regex", help="TOPIC is a regular expression of topics within one namespace.")
    ] = False,
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
    decode: Decode = True,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Receive messages from a subscription, print them, and acknowledge them.

    A value is printed by the schema version that its message was written with, if it has one. With --json, each line is
    an object, with `value_base64` instead of `value` if the value is not text; `produce --json` reads them.

    Exit status 0: done; 1: some values could not be decoded, and were printed as payloads; 3: unknown whether the last
    messages are acknowledged; 4: no broker answers; 5: fewer than --count messages before --timeout.
    """
    output_format = choose_format(as_json=as_json, as_hex=as_hex, as_raw=as_raw)
    with exit_on_error():
        from magnetar import ConsumerType, InitialPosition
        from magnetar_cli.messages.message_output import MessageWriter, choose_schema
        from magnetar_cli.messages.receiver import Acknowledgement, StopCondition, receive_messages

        if nack and not ack:
            raise typer.BadParameter("--nack acknowledges nothing: leave out --no-ack", param_hint="--nack")
        if is_pattern and len(topics) > 1:
            raise typer.BadParameter("use one pattern, such as 'a|b'", param_hint="--regex")
        with (
            connect_client(url, listener_name) as client,
            client.subscribe(
                topics if len(topics) > 1 else topics[0],
                subscription,
                ConsumerType[subscription_type.consumer_type],
                schema=choose_schema(output_format, decode=decode),
                receiver_queue_size=min(count, 1000) or 1000,
                consumer_name=consumer_name,
                initial_position=InitialPosition[start.capitalize()],
                negative_ack_redelivery_delay_ms=nack_delay_s * 1000,
                is_pattern_topic=is_pattern,
            ) as consumer,
        ):
            writer = MessageWriter(output_format, with_topics=is_pattern or len(topics) > 1)
            acknowledgement = Acknowledgement.NACK if nack else Acknowledgement.ACK if ack else Acknowledgement.NOTHING
            code = receive_messages(consumer, writer, acknowledgement, StopCondition(count, quiet_s))
    raise typer.Exit(code)
