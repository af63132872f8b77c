"""`magnetar produce`: publish messages from arguments, files or standard input."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from magnetar_cli.messages.message_input import (
    InputFormat,
    InputMessage,
    Parser,
    make_json_parser,
    make_keyed_line_parser,
    make_line_parser,
    parse_json_message,
)
from magnetar_cli.messages.positions import parse_time_ms
from magnetar_cli.options import (
    AccessMode,
    Compression,
    ListenerName,
    Topic,
    Url,
    parse_properties,
    to_access_mode,
    to_compression_type,
)
from magnetar_cli.service import DEFAULT_URL, connect_client, exit_on_error

if TYPE_CHECKING:
    from magnetar_cli.messages.value_encoder import ValueEncoder

app = typer.Typer(pretty_exceptions_enable=False)

_MAX_PENDING_MESSAGES: Final = 10_000


@app.command()
def produce(
    topic: Topic,
    messages: Annotated[
        list[str] | None, typer.Argument(metavar="MESSAGE", help="Messages.", show_default=False)
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", help="File to read messages from; -: standard input.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Read JSON objects, as `consume --json` prints them; print JSON.")
    ] = False,
    input_format: Annotated[
        InputFormat | None, typer.Option("--in", help="Input: lines, JSON objects, or one whole message.")
    ] = None,
    separator: Annotated[
        str, typer.Option(help=r"Separator between input messages; escapes such as \0 are allowed.")
    ] = r"\n",
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of messages without one.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="Separator between key and value in each line.", show_default=False)
    ] = None,
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            metavar="SOURCE",
            help="Schema that encodes the values, which are JSON: `topic` for the topic's last version, a file as for "
            "`schemas upload`, or a Python class, module:Class.",
            show_default=False,
        ),
    ] = "",
    schema_type: Annotated[
        str,
        typer.Option(
            "--schema-type", metavar="TYPE", help="Type of the schema: avro, json, string, …", show_default=False
        ),
    ] = "",
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="Property of all messages. Repeatable."),
    ] = None,
    event_time: Annotated[
        str | None, typer.Option(help="Event time: ISO 8601, or ms since 1970.", show_default=False)
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", "-n", min=1, help="Number of times that the input is sent.")] = 1,
    rate: Annotated[float, typer.Option("--rate", "-r", min=0, help="Maximum messages per second; 0: no limit.")] = 0,
    compression: Annotated[Compression, typer.Option(help="Compression of batches.")] = Compression.NONE,
    batching: Annotated[bool, typer.Option(help="Send several messages as one entry.")] = True,
    by_key: Annotated[bool, typer.Option("--batch-by-key", help="Batches with messages of one key each.")] = False,
    chunking: Annotated[
        bool,
        typer.Option("--chunking", help="Send messages that are too large for an entry in chunks, without batching."),
    ] = False,
    batch_messages: Annotated[int, typer.Option(min=1, help="Maximum messages of a batch.")] = 1000,
    batch_delay_ms: Annotated[int, typer.Option(min=0, help="Maximum delay of a batch, in ms.")] = 10,
    send_timeout_s: Annotated[float, typer.Option(min=0, help="Seconds after which a send has failed; 0: never.")] = 30,
    producer_name: Annotated[
        str | None, typer.Option(help="Producer name, unique on the topic.", show_default=False)
    ] = None,
    access_mode: Annotated[
        AccessMode, typer.Option(help="Whether other producers may publish to the topic, too.")
    ] = AccessMode.SHARED,
    sequence_id: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Sequence id of the first message; it grows by 1. With --producer-name and deduplication, a message "
            "that is sent again is stored once.",
            show_default=False,
        ),
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the id of each message when it is persisted.")] = False,
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
) -> None:
    """Publish messages: arguments, the content of files, or lines of standard input.

    With a schema, each value is JSON, and the schema encodes it. A line for a STRING schema may also be plain text.

    At the end, it waits for messages in flight, and prints how many are persisted. Exit status 0: all are persisted; 1:
    some were refused, or the input is invalid; 3: unknown whether some are persisted; 4: no broker answers; 130:
    Ctrl-C, and all messages sent before are persisted.
    """
    input_format = input_format or (InputFormat.JSON if as_json else InputFormat.LINES)
    key_separator_bytes = None if key_separator is None else _parse_key_separator(input_format, key_separator)
    arguments = [one.encode("utf-8", "surrogateescape") for one in messages or ()]
    if arguments and files:
        raise typer.BadParameter("messages are given both as arguments and in files: use one of them", param_hint="-f")
    if repeat > 1 and not arguments and (not files or any(str(file) == "-" for file in files)):
        raise typer.BadParameter("standard input can't be read again: use arguments or files", param_hint="--repeat")
    separator_bytes, common_properties = _parse_separator(separator), parse_properties(properties or ())
    with exit_on_error(changes=False):
        from magnetar import BatchingType
        from magnetar_cli.messages.publisher import Plan, publish_messages

        encoder = None
        if schema or schema_type:
            from magnetar_cli.messages.value_encoder import find_encoder

            encoder = find_encoder(url, topic, schema, schema_type)
            if encoder.sets_key and (key is not None or key_separator is not None):
                option = "--key" if key is not None else "--key-separator"
                raise typer.BadParameter("leave it out: the key is a part of each value", param_hint=option)
        plan = Plan(
            messages=arguments,
            files=files or (),
            input_format=input_format,
            parse=_choose_parser(input_format, key_separator_bytes, encoder),
            separator=separator_bytes,
            repeat=repeat,
            rate=rate,
            key=key,
            properties=common_properties,
            first_sequence_id=sequence_id,
            is_chunked=chunking,
            event_ms=0 if event_time is None else parse_time_ms(event_time, "--event-time"),
        )
        with connect_client(url, listener_name) as client:
            producer = client.create_producer(
                topic,
                producer_name=producer_name,
                schema=None if encoder is None else encoder.schema,
                compression_type=to_compression_type(compression),
                batching_enabled=batching and not chunking,
                batching_type=BatchingType.KeyBased if by_key else BatchingType.Default,
                chunking_enabled=chunking,
                access_mode=to_access_mode(access_mode),
                batching_max_messages=batch_messages,
                batching_max_publish_delay_ms=batch_delay_ms,
                send_timeout_millis=int(send_timeout_s * 1000),
                max_pending_messages=_MAX_PENDING_MESSAGES,
                block_if_queue_full=True,
            )
            code = publish_messages(client, producer, plan, ids=ids, as_json=as_json)
    raise typer.Exit(code)


def _parse_key_separator(input_format: InputFormat, text: str) -> bytes:
    if input_format is not InputFormat.LINES or not text:
        raise typer.BadParameter("it needs --in lines, and at least one character", param_hint="--key-separator")
    return _parse_separator(text)


def _choose_parser(input_format: InputFormat, key_separator: bytes | None, encoder: ValueEncoder | None) -> Parser:
    encode = None if encoder is None else encoder.encode
    takes_text = encoder is not None and encoder.takes_text
    if key_separator is not None:
        return make_keyed_line_parser(key_separator, encode, takes_text=takes_text)
    if encode is not None:
        is_json = input_format is InputFormat.JSON
        return make_json_parser(encode) if is_json else make_line_parser(encode, takes_text=takes_text)
    return parse_json_message if input_format is InputFormat.JSON else InputMessage


def _parse_separator(text: str) -> bytes:
    try:
        found = codecs.decode(text.encode("latin-1", "backslashreplace"), "unicode_escape")
        encoded = found.encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint="--separator") from None
    if not encoded:
        raise typer.BadParameter(r"it is empty: use \n, \0, or --in whole", param_hint="--separator")
    return encoded
