"""`magnetar subscriptions …`: create, inspect, move and delete subscriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command
from magnetar_cli.completion import complete_subscription
from magnetar_cli.messages.positions import parse_duration_s, parse_position
from magnetar_cli.options import AdminUrl, AsHex, AsJson, AsRaw, Force, Topic, Yes, choose_format, confirm
from magnetar_cli.output import format_json, print_rows
from magnetar_cli.service import DEFAULT_URL, call_admin, exit_on_error

if TYPE_CHECKING:
    from magnetar.admin import Admin, PeekedMessage, SubscriptionStats

app = typer.Typer(
    help="Create, inspect, move and delete subscriptions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Subscription = Annotated[str, typer.Argument(help="Subscription name.", autocompletion=complete_subscription)]
_POSITIONS = "earliest, latest, a message id, a time, or an age, e.g. 10m."
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
    at: Annotated[str, typer.Option("--at", help=f"Start position: {_POSITIONS}")] = "latest",
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """Create a subscription. Messages after its position are retained until it acknowledges them."""
    position = parse_position(at, "--at")
    call_admin(url, lambda admin: admin.subscriptions.create(topic, subscription, position), changes=True)
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
    to: Annotated[str, typer.Option("--to", help=f"New position: {_POSITIONS}")],
    yes: Yes = False,
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """Move a subscription's cursor. Messages after the new position are redelivered; messages before it count as
    acknowledged."""
    position = parse_position(to, "--to")
    confirm(f"Move {subscription} of {topic} to {to}", yes)
    call_admin(url, lambda admin: admin.subscriptions.reset(topic, subscription, position), changes=True)
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
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Acknowledge the oldest entries of a backlog without delivering them."""
    if bool(entries) == everything:
        raise typer.BadParameter("give a number of entries, or --all", param_hint="--entries")
    amount = "everything" if everything else f"up to {entries:,} entries"
    confirm(f"Skip {amount} of {subscription} of {topic}", yes)

    def act(admin: Admin) -> int:
        if everything:
            return admin.subscriptions.skip_all(topic, subscription)
        return admin.subscriptions.skip(topic, subscription, entries)

    skipped = call_admin(url, act, changes=True)
    if as_json:
        print(format_json({"topic": topic, "subscription": subscription, "skipped_entries": skipped}))
    else:
        print(f"{subscription} of {topic}: {_count_entries(skipped)} skipped")


@app.command("expire")
def expire(
    topic: Topic,
    subscription: Subscription,
    older_than: Annotated[str, typer.Option("--older-than", help="Age, e.g. 90s, 10m, 2h or 1d.")],
    yes: Yes = False,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Acknowledge entries that were published longer ago than --older-than, without delivering them."""
    seconds = int(parse_duration_s(older_than, "--older-than"))
    if seconds < 1:
        raise typer.BadParameter(f"{older_than} is less than a second", param_hint="--older-than")
    confirm(f"Skip what is older than {older_than} of {subscription} of {topic}", yes)
    expired = call_admin(url, lambda admin: admin.subscriptions.expire(topic, subscription, seconds), changes=True)
    if as_json:
        print(format_json({"topic": topic, "subscription": subscription, "skipped_entries": expired}))
    else:
        print(f"{subscription} of {topic}: {_count_entries(expired)} older than {older_than} skipped")


@app.command("peek")
def peek(
    topic: Topic,
    subscription: Subscription,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of messages.")] = 1,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_raw: AsRaw = False,
) -> None:
    """Show the oldest unacknowledged messages, of each partition. They stay unacknowledged."""
    output_format = choose_format(as_json=as_json, as_hex=as_hex, as_raw=as_raw)

    def act(admin: Admin) -> list[tuple[str, PeekedMessage]]:
        logs = [owner.topic for owner in admin.topics.owners(topic)]
        # An entry has at least one message, so this returns enough.
        found = ((log, admin.subscriptions.peek(log, subscription, count)) for log in logs)
        return [(log, one) for log, messages in found for one in messages[:count]]

    found = call_admin(url, act)
    with exit_on_error():
        from magnetar_cli.messages.message_output import MessageWriter, display_peeked_message

        several = len({log for log, _ in found}) > 1
        MessageWriter(output_format, with_topics=several).write(
            display_peeked_message(log, message) for log, message in found
        )


@app.command("stats")
def stats(
    topic: Topic,
    subscription: Annotated[
        str | None,
        typer.Argument(
            help="Subscription name. Default: all.", autocompletion=complete_subscription, show_default=False
        ),
    ] = None,
    url: AdminUrl = DEFAULT_URL,
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

    found = call_admin(url, act)
    if as_json:
        for one in found:
            print(format_json(one))
    elif subscription is not None:
        print_subscription(found[0])
    else:
        print_rows(SUBSCRIPTION_COLUMNS, map(subscription_row, found), as_json=False)


def _count_entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"
