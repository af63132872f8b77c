"""`magnetar produce`: publish messages from arguments, files or standard input."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Annotated, Final

import typer

from magnetar_cli.messages.choices import Compression, compression_type
from magnetar_cli.messages.reading import Given, InputFormat, Parse, json_message, keyed_line
from magnetar_cli.service import DEFAULT_URL, ListenerName, Topic, Url, connected_client, end_as_told

app = typer.Typer(pretty_exceptions_enable=False)

_QUEUE: Final = 10_000


@app.command()
def produce(
    topic: Topic,
    messages: Annotated[list[str] | None, typer.Argument(metavar="[MESSAGE]...", show_default=False)] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="Read this file; - is standard input.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON objects in, as `consume --json` writes them, and JSON out.")
    ] = False,
    how: Annotated[
        InputFormat | None, typer.Option("--in", help="What is read: lines, JSON objects, or one whole message.")
    ] = None,
    separator: Annotated[str, typer.Option(help=r"Between messages that are read; \0, \n and the like.")] = r"\n",
    key: Annotated[str | None, typer.Option("--key", "-k", help="Of messages that have none of their own.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="What stands between key and value in each line.", show_default=False)
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="May be given again.")
    ] = None,
    event_time: Annotated[str | None, typer.Option(help="ISO 8601, or ms since 1970.", show_default=False)] = None,
    repeat: Annotated[int, typer.Option("--repeat", "-n", min=1, help="Send all of it so many times.")] = 1,
    rate: Annotated[float, typer.Option("--rate", "-r", min=0, help="Messages a second; 0: as fast as it goes.")] = 0,
    compression: Annotated[Compression, typer.Option(help="Of batches.")] = Compression.NONE,
    batching: Annotated[bool, typer.Option(help="Whether messages that come together travel as one entry.")] = True,
    batch_messages: Annotated[int, typer.Option(min=1, help="In one batch, at most.")] = 1000,
    batch_delay_ms: Annotated[int, typer.Option(min=0, help="How long one waits for more messages.")] = 10,
    send_timeout_s: Annotated[float, typer.Option(min=0, help="Without a receipt by then it failed; 0: never.")] = 30,
    producer_name: Annotated[str | None, typer.Option(help="Unique on the topic.", show_default=False)] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the id of each message, as receipts come.")] = False,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Publish messages: arguments, or what files hold, or lines of standard input as they come.

    Whatever ends it, what was sent is waited for, and it is told how many messages are durable. Exit status 0: all
    are; 1: some were refused, or the input is wrong; 3: of some nobody knows; 4: no broker answers; 130: Ctrl-C, and
    all that was sent before is durable.
    """
    parse = _parse(_how(how, as_json), key_separator)
    at_once = [one.encode("utf-8", "surrogateescape") for one in messages or ()]
    if at_once and files:
        raise typer.BadParameter("give messages as arguments or in files, and not both", param_hint="-f")
    if repeat > 1 and not at_once and (not files or any(str(file) == "-" for file in files)):
        raise typer.BadParameter("standard input can't be read again: give arguments or files", param_hint="--repeat")
    cut_at, own = _separator(separator), _properties(properties or ())
    with end_as_told(changes=False):
        from magnetar_cli.messages.places import time_ms
        from magnetar_cli.messages.producing import Plan
        from magnetar_cli.messages.producing import produce as publish

        plan = Plan(
            messages=at_once,
            files=files or (),
            how=_how(how, as_json),
            parse=parse,
            separator=cut_at,
            repeat=repeat,
            rate=rate,
            key=key,
            properties=own,
            event_ms=0 if event_time is None else time_ms(event_time, "--event-time"),
        )
        with connected_client(url, listener_name) as client:
            producer = client.create_producer(
                topic,
                producer_name=producer_name,
                compression_type=compression_type(compression),
                batching_enabled=batching,
                batching_max_messages=batch_messages,
                batching_max_publish_delay_ms=batch_delay_ms,
                send_timeout_millis=int(send_timeout_s * 1000),
                max_pending_messages=_QUEUE,
                block_if_queue_full=True,
            )
            code = publish(client, producer, plan, ids=ids, as_json=as_json)
    raise typer.Exit(code)


def _how(how: InputFormat | None, as_json: bool) -> InputFormat:
    return how or (InputFormat.JSON if as_json else InputFormat.LINES)


def _parse(how: InputFormat, key_separator: str | None) -> Parse:
    if key_separator is not None:
        if how is not InputFormat.LINES or not key_separator:
            raise typer.BadParameter("it stands between key and value in lines", param_hint="--key-separator")
        return keyed_line(_separator(key_separator))
    return json_message if how is InputFormat.JSON else Given


def _separator(text: str) -> bytes:
    try:
        found = codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
        encoded = found.encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint="--separator") from None
    if not encoded:
        raise typer.BadParameter(r"it is empty: use \n, \0, or --in whole", param_hint="--separator")
    return encoded


def _properties(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is no property: write NAME=VALUE", param_hint="--property")
        found[name] = value
    return found
