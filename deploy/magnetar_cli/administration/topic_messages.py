"""`magnetar topics last-message-id`, `find-message-id`, `message`, `examine`: stored messages, by their positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.messages.positions import format_message_id, parse_position, partition_of_topic
from magnetar_cli.options import AdminUrl, AsHex, AsJson, AsRaw, Topic, choose_format
from magnetar_cli.output import print_rows
from magnetar_cli.service import DEFAULT_URL, call_admin, exit_on_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar import MessageId
    from magnetar.admin import Admin, PeekedMessage
    from magnetar_cli.messages.message_output import Format

__all__ = ["add_commands"]


def add_commands(app: typer.Typer) -> None:
    app.command("last-message-id")(_last_message_id)
    app.command("find-message-id")(_find_message_id)
    app.command("message")(_message)
    app.command("examine")(_examine)


def _last_message_id(topic: Topic, url: AdminUrl = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show the id of a topic's last message, of each partition."""
    _print_ids(url, topic, lambda admin, log: admin.topics.last_message_id(log), as_json=as_json)


def _find_message_id(
    topic: Topic,
    at: Annotated[str, typer.Argument(help="Time: ISO 8601, ms since 1970, or an age, e.g. 10m.")],
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the id of the first message from this time on, of each partition."""
    time_ms = parse_position(at, "AT")
    if not isinstance(time_ms, int):
        raise typer.BadParameter(f"{at!r} is not a time: use e.g. 2026-01-31T12:00:00 or 10m", param_hint="AT")
    _print_ids(url, topic, lambda admin, log: admin.topics.find_message_id(log, time_ms), as_json=as_json)


def _message(
    topic: Topic,
    message_id: Annotated[str, typer.Argument(help="Message id, e.g. 12:3:-1, or 12:3:-1:0 for one of a batch.")],
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_raw: AsRaw = False,
) -> None:
    """Show a stored message by its id, or all messages of its batch."""
    from magnetar import MessageId

    output_format = choose_format(as_json=as_json, as_hex=as_hex, as_raw=as_raw)
    at = parse_position(message_id, "MESSAGE_ID")
    if not isinstance(at, MessageId) or at.ledger_id() < 0:
        raise typer.BadParameter(f"{message_id!r} is not the id of a message: use e.g. 12:3", param_hint="MESSAGE_ID")
    is_log = at.partition() < 0 or partition_of_topic(topic) >= 0
    log = topic if is_log else f"{topic}-partition-{at.partition()}"

    def act(admin: Admin) -> list[PeekedMessage]:
        found = admin.topics.messages_at(log, at)
        return [one for one in found if at.batch_index() in (-1, one.message_id.batch_index())]

    _print_messages(log, call_admin(url, act), output_format)


def _examine(
    topic: Topic,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Number of the entry; the first one is 1.")] = 1,
    latest: Annotated[bool, typer.Option("--latest", help="Count from the last entry backwards.")] = False,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_raw: AsRaw = False,
) -> None:
    """Show the messages of a stored entry, by its number in a topic without partitions, or in a partition."""
    output_format = choose_format(as_json=as_json, as_hex=as_hex, as_raw=as_raw)
    start = "latest" if latest else "earliest"
    found = call_admin(url, lambda admin: admin.topics.examine_messages(topic, start, number))
    _print_messages(topic, found, output_format)


def _print_ids(url: str, topic: str, find: Callable[[Admin, str], MessageId], *, as_json: bool) -> None:
    def act(admin: Admin) -> list[tuple[str, str]]:
        logs = [owner.topic for owner in admin.topics.owners(topic)]
        return [(log, format_message_id(find(admin, log), partition_of_topic(log))) for log in logs]

    print_rows(("topic", "message id"), call_admin(url, act), as_json=as_json)


def _print_messages(log: str, messages: Sequence[PeekedMessage], output_format: Format) -> None:
    with exit_on_error():
        from magnetar_cli.messages.message_output import MessageWriter, display_peeked_message

        MessageWriter(output_format).write(display_peeked_message(log, one) for one in messages)
