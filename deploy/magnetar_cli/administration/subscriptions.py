"""`magnetar subscriptions …`: create, inspect, move and delete subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.administration.confirmation import Force, Yes, confirm
from magnetar_cli.administration.output import json_line, print_rows
from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command
from magnetar_cli.completion import complete_subscription
from magnetar_cli.messages.options import AsHex, AsRaw, format_of
from magnetar_cli.service import DEFAULT_URL, AsJson, Topic, Url, administered, end_as_told

if TYPE_CHECKING:
    from magnetar import MessageId
    from magnetar.admin import Admin, PeekedMessage, SubscriptionStats

app = typer.Typer(
    help="Create, inspect, move and delete subscriptions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Subscription = Annotated[str, typer.Argument(help="Subscription name.", autocompletion=complete_subscription)]
_PLACES = "earliest, latest, a message id, a time, or an age, e.g. 10m."


_TOPIC = Argument("topic", Topic)

add_command(
    app,
    SimpleCommand(
        "list",
        "subscriptions.list",
        "List a topic's durable subscriptions.",
        arguments=(_TOPIC,),
        lists="subscription",
    ),
)


@app.command("create")
def create(
    topic: Topic,
    subscription: Subscription,
    at: Annotated[str, typer.Option("--at", help=f"Start position: {_PLACES}")] = "latest",
    url: Url = DEFAULT_URL,
) -> None:
    """Create a subscription. Messages after its position are retained until it acknowledges them."""
    place = _place(at, "--at")
    administered(url, lambda admin: admin.subscriptions.create(topic, subscription, place), changes=True)
    print(f"{subscription} of {topic}: created, at {at}")


add_command(
    app,
    SimpleCommand(
        "delete",
        "subscriptions.delete",
        "Delete a subscription. Its topic no longer retains messages for it.",
        arguments=(_TOPIC, Argument("subscription", Subscription), Argument("force", Force, False)),
        confirms="Delete the subscription {subscription} of {topic}",
        prints="{subscription} of {topic}: deleted",
    ),
)


@app.command("reset")
def reset(
    topic: Topic,
    subscription: Subscription,
    to: Annotated[str, typer.Option("--to", help=f"New position: {_PLACES}")],
    yes: Yes = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Move a subscription's cursor. Messages after the new position are redelivered; messages before it count as
    acknowledged."""
    place = _place(to, "--to")
    confirm(f"Move {subscription} of {topic} to {to}", yes)
    administered(url, lambda admin: admin.subscriptions.reset(topic, subscription, place), changes=True)
    print(f"{subscription} of {topic}: moved to {to}")


@app.command("skip")
def skip(
    topic: Topic,
    subscription: Subscription,
    entries: Annotated[
        int, typer.Option("--entries", "-n", min=0, help="Maximum number of entries; a batch is one entry.")
    ] = 0,
    everything: Annotated[bool, typer.Option("--all", help="Skip the whole backlog.")] = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Acknowledge the oldest entries of a backlog without delivering them."""
    if bool(entries) == everything:
        raise typer.BadParameter("give a number of entries, or --all", param_hint="--entries")
    what = "everything" if everything else f"up to {entries:,} entries"
    confirm(f"Skip {what} of {subscription} of {topic}", yes)

    def act(admin: Admin) -> int:
        if everything:
            return admin.subscriptions.skip_all(topic, subscription)
        return admin.subscriptions.skip(topic, subscription, entries)

    skipped = administered(url, act, changes=True)
    if as_json:
        print(json_line({"topic": topic, "subscription": subscription, "skipped_entries": skipped}))
    else:
        print(f"{subscription} of {topic}: {_entries(skipped)} skipped")


@app.command("expire")
def expire(
    topic: Topic,
    subscription: Subscription,
    older_than: Annotated[str, typer.Option("--older-than", help="Age, e.g. 90s, 10m, 2h or 1d.")],
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Acknowledge entries that were published longer ago than --older-than, without delivering them."""
    from magnetar_cli.messages.places import duration_s

    seconds = int(duration_s(older_than, "--older-than"))
    if seconds < 1:
        raise typer.BadParameter(f"{older_than} is less than a second", param_hint="--older-than")
    confirm(f"Skip what is older than {older_than} of {subscription} of {topic}", yes)
    expired = administered(url, lambda admin: admin.subscriptions.expire(topic, subscription, seconds), changes=True)
    if as_json:
        print(json_line({"topic": topic, "subscription": subscription, "skipped_entries": expired}))
    else:
        print(f"{subscription} of {topic}: {_entries(expired)} older than {older_than} skipped")


@app.command("peek")
def peek(
    topic: Topic,
    subscription: Subscription,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of messages.")] = 1,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_raw: AsRaw = False,
) -> None:
    """Show the oldest unacknowledged messages, of each partition. They stay unacknowledged."""
    how = format_of(as_json=as_json, as_hex=as_hex, as_raw=as_raw)

    def act(admin: Admin) -> list[tuple[str, PeekedMessage]]:
        logs = [home.topic for home in admin.topics.homes(topic)]
        # An entry holds a message at least.
        found = ((log, admin.subscriptions.peek(log, subscription, count)) for log in logs)
        return [(log, one) for log, messages in found for one in messages[:count]]

    found = administered(url, act)
    with end_as_told():
        from magnetar_cli.messages.showing import MessageWriter, peeked_as_shown

        several = len({log for log, _ in found}) > 1
        MessageWriter(how, with_topics=several).write(peeked_as_shown(log, message) for log, message in found)


@app.command("stats")
def stats(
    topic: Topic,
    subscription: Annotated[
        str | None,
        typer.Argument(
            help="Subscription name. Default: all.", autocompletion=complete_subscription, show_default=False
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show the backlog, rates and consumers of subscriptions, and what delivery waits for."""
    from magnetar_cli.administration.stats_views import SUBSCRIPTION_COLUMNS, print_subscription, subscription_row

    def act(admin: Admin) -> list[SubscriptionStats]:
        from magnetar.exceptions import SubscriptionNotFound

        found = admin.topics.stats(topic).subscriptions
        if subscription is None:
            return list(found)
        one = [stats for stats in found if stats.subscription == subscription]
        if not one:
            names = ", ".join(stats.subscription for stats in found[:10]) or "none"
            raise SubscriptionNotFound(f"{topic} has no subscription {subscription!r}; it has {names}")
        return one

    found = administered(url, act)
    if as_json:
        for one in found:
            print(json_line(one))
    elif subscription is not None:
        print_subscription(found[0])
    else:
        print_rows(SUBSCRIPTION_COLUMNS, map(subscription_row, found), as_json=False)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def _place(text: str, option: str) -> MessageId | int:
    from magnetar_cli.messages.places import parse_place

    return parse_place(text, option)
