"""`magnetar explain …`: say why something does not happen, and what to do about it."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.completion import complete_subscription
from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.messages.positions import format_message_id
from magnetar_cli.options import AdminUrl, AsJson, Topic
from magnetar_cli.output import escape_unprintable, format_json, format_number, print_facts, print_rows
from magnetar_cli.service import DEFAULT_URL, call_admin

if TYPE_CHECKING:
    from magnetar.admin import DeliveryReason, PartExplanation, SubscriptionExplanation

app = typer.Typer(
    help="Explain why a subscription delivers nothing, and what to do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_MAX_CONSUMERS = 20
_DELIVERS = "delivering"
# Brokers don't count the unacknowledged messages of these, as Pulsar's.
_ORDERED_TYPES = ("EXCLUSIVE", "FAILOVER")


@app.callback()
def _explain() -> None:
    """With a callback, a group of one command keeps the command's name."""


@app.command("subscription")
def explain_subscription(
    topic: Topic,
    subscription: Annotated[str, typer.Argument(help="Subscription name.", autocompletion=complete_subscription)],
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show why a subscription delivers nothing, or no more, and what to do. The first line is the answer.

    The exit status is 6 if something holds messages back, and 0 if the subscription works as it should."""
    found = call_admin(url, lambda admin: admin.subscriptions.explain(topic, subscription))
    if as_json:
        print(format_json(found))
    else:
        _print_explanation(found)
    if not found.reasons[0].normal:
        raise typer.Exit(ExitCode.HELD_BACK)


def _print_explanation(found: SubscriptionExplanation) -> None:
    answer, *others = found.reasons
    several = len(found.parts) > 1
    print(escape_unprintable(f"{_describe_state(found, answer)}: {answer.text}{_where(answer, several=several)}"))
    print(escape_unprintable(f"What to do: {answer.action}"))
    for reason in others:
        print(escape_unprintable(f"Also: {reason.text}{_where(reason, several=several)}. {reason.action}"))
    print()
    if several:
        rows = [_part_row(part) for part in found.parts]
        print_rows(("partition", "served by", "backlog", "consumers", "answer"), rows, as_json=False)
        return
    (part,) = found.parts
    print_facts(_list_facts(part))
    if part.stats is not None and part.stats.consumers:
        print()
        _print_consumers(part)


def _describe_state(found: SubscriptionExplanation, answer: DeliveryReason) -> str:
    name = f"{found.subscription} of {found.topic}"
    if answer.code == _DELIVERS:
        return f"{name} delivers"
    return f"{name} has nothing to do" if answer.normal else f"{name} is held back"


def _where(reason: DeliveryReason, *, several: bool) -> str:
    if not several or not reason.partitions:
        return ""
    shown = ", ".join(map(str, reason.partitions[:10]))
    noun = "partition" if len(reason.partitions) == 1 else "partitions"
    return f" ({noun} {shown}{' and others' if len(reason.partitions) > 10 else ''})"


def _part_row(part: PartExplanation) -> Sequence[object]:
    backlog = part.stats.backlog_entries if part.stats is not None else None
    consumers = len(part.stats.consumers) if part.stats is not None else None
    return part.topic.rpartition("-")[2], part.owner_broker or "no broker", backlog, consumers, part.reasons[0].text


def _list_facts(part: PartExplanation) -> Iterator[tuple[str, object]]:
    yield "topic", part.topic
    loaded = "" if part.loaded or not part.owner_broker else ", which had not loaded it before: it had no clients"
    yield "served by", (part.owner_broker or "no broker") + loaded
    if part.last is not None:
        yield "last entry", f"{format_message_id(part.last)}, published at {_format_time(part.last_publish_ms)}"
    stats = part.stats
    if stats is None:
        return
    yield "type", stats.type or "no consumers"
    yield "backlog", f"{format_number(stats.backlog_entries)} entries"
    # Of Key_Shared they include entries that were never delivered.
    what = "waits for its consumers" if stats.type == "KEY_SHARED" else "waits for redelivery"
    yield what, f"{format_number(stats.to_be_redelivered)} entries"
    if stats.type not in _ORDERED_TYPES:
        yield "not acknowledged", f"{format_number(stats.unacknowledged_messages)} delivered messages"
    if stats.active_consumer:
        yield "active consumer", stats.active_consumer
    yield "delivered last", _format_time(stats.last_delivered_ms)
    yield "acknowledged last", _format_time(stats.last_acknowledged_ms)
    yield "permits granted last", _format_time(stats.last_flow_ms)


def _print_consumers(part: PartExplanation) -> None:
    assert part.stats is not None
    shown = part.stats.consumers[:_MAX_CONSUMERS]
    counted = part.stats.type not in _ORDERED_TYPES
    rows = [
        (
            one.consumer_name,
            one.address,
            one.client_version,
            one.permits,
            *([one.unacknowledged_messages] if counted else []),
            "" if one.reason is None else one.reason.text,
        )
        for one in shown
    ]
    columns = ("consumer", "address", "client", "permits", *(["unacknowledged"] if counted else []), "held back by")
    print_rows(columns, rows, as_json=False)
    if more := len(part.stats.consumers) - len(shown):
        print(f"and {more:,} more consumers: --json has them")


def _format_time(time_ms: int) -> str:
    if not time_ms:
        return "never since the topic was loaded"
    at = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)
    return f"{at.replace(tzinfo=None).isoformat(' ', 'milliseconds')} UTC"
