"""`magnetar subscriptions …`: create, inspect, move and delete subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command
from magnetar_cli.completion import complete_subscription
from magnetar_cli.messages.positions import parse_duration_s, parse_position
from magnetar_cli.options import (
    AdminUrl,
    AsHex,
    AsJson,
    AsRaw,
    Force,
    Topic,
    Yes,
    choose_format,
    confirm,
    parse_properties,
)
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
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="NAME=VALUE", help="Property of the subscription. Repeatable."),
    ] = None,
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """Create a subscription. Messages after its position are retained until it acknowledges them."""
    position, named = parse_position(at, "--at"), parse_properties(properties or (), "--property")
    call_admin(url, lambda admin: admin.subscriptions.create(topic, subscription, position, named), changes=True)
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
    excluded: Annotated[
        bool, typer.Option("--excluded", help="Continue after the message of that id, not with it.")
    ] = False,
    yes: Yes = False,
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """Move a subscription's cursor. Messages after the new position are redelivered; messages before it count as
    acknowledged."""
    position = parse_position(to, "--to")
    confirm(f"Move {subscription} of {topic} to {to}", yes)
    if excluded and (isinstance(position, int) or to in ("earliest", "latest")):
        raise typer.BadParameter(f"{to} is no message id: only a message can be excluded", param_hint="--excluded")
    call_admin(url, lambda admin: admin.subscriptions.reset(topic, subscription, position, excluded), changes=True)
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
        print(format_json({"topic": topic, "subscription": subscription, "skipped_entries": _known(skipped)}))
    else:
        print(f"{subscription} of {topic}: {_count_entries(skipped)} skipped")


@app.command("expire")
def expire(
    topic: Topic,
    subscription: Annotated[
        str | None,
        typer.Argument(
            help="Subscription name. Default: all.", autocompletion=complete_subscription, show_default=False
        ),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Age, e.g. 90s, 10m, 2h or 1d.", show_default=False)
    ] = None,
    up_to: Annotated[
        str | None,
        typer.Option("--up-to", help="Message id: expire this message and all before it.", show_default=False),
    ] = None,
    excluded: Annotated[bool, typer.Option("--excluded", help="Do not expire the message of that id.")] = False,
    yes: Yes = False,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Acknowledge entries that were published longer ago than --older-than, or up to a message, without delivering
    them."""
    if (older_than is None) == (up_to is None):
        raise typer.BadParameter("give an age, or a message id with --up-to", param_hint="--older-than")
    if excluded and up_to is None:
        raise typer.BadParameter("it needs --up-to", param_hint="--excluded")
    if up_to is not None and subscription is None:
        raise typer.BadParameter("name a subscription", param_hint="--up-to")
    whose = subscription or "all subscriptions"
    act, expired = _plan_expiry(topic, subscription, older_than, up_to, excluded)
    confirm(f"Skip what is {expired} of {whose} of {topic}", yes)
    count = call_admin(url, act, changes=True)
    if as_json:
        print(format_json({"topic": topic, "subscription": subscription, "skipped_entries": _known(count)}))
    else:
        print(f"{whose} of {topic}: {_count_entries(count)} {expired} skipped")


def _plan_expiry(
    topic: str, subscription: str | None, older_than: str | None, up_to: str | None, excluded: bool
) -> tuple[Callable[[Admin], int], str]:
    """Return the call, and which entries it expires. Raises `BadParameter`."""
    if up_to is not None:
        message = parse_position(up_to, "--up-to")
        if isinstance(message, int) or up_to in ("earliest", "latest"):
            raise typer.BadParameter(f"{up_to} is no message id, such as 12:3:-1", param_hint="--up-to")
        named, found = subscription or "", message
        return (
            lambda admin: admin.subscriptions.expire_up_to(topic, named, found, excluded),
            f"{'before' if excluded else 'up to'} {up_to}",
        )
    seconds = int(parse_duration_s(older_than or "", "--older-than"))
    if seconds < 1:
        raise typer.BadParameter(f"{older_than} is less than a second", param_hint="--older-than")
    if subscription is None:
        return lambda admin: admin.subscriptions.expire_all(topic, seconds), f"older than {older_than}"
    name = subscription
    return lambda admin: admin.subscriptions.expire(topic, name, seconds), f"older than {older_than}"


@app.command("properties")
def properties(topic: Topic, subscription: Subscription, url: AdminUrl = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show the properties of a subscription."""
    found = call_admin(url, lambda admin: admin.subscriptions.get_properties(topic, subscription))
    print_rows(("name", "value"), sorted(found.items()), as_json=as_json)


@app.command("set-properties")
def set_properties(
    topic: Topic,
    subscription: Subscription,
    properties: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="The new properties. Default: none.")
    ] = None,
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """Replace all properties of a subscription."""
    named = parse_properties(properties or (), "NAME=VALUE")
    call_admin(url, lambda admin: admin.subscriptions.set_properties(topic, subscription, named), changes=True)
    print(f"{subscription} of {topic}: {len(named):,} properties")


@app.command("analyze-backlog")
def analyze_backlog(
    topic: Topic,
    subscription: Subscription,
    start: Annotated[str, typer.Option("--from", help=f"Start position: {_POSITIONS}")] = "earliest",
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Count the entries and messages that a subscription has not acknowledged, by reading them."""
    position = parse_position(start)
    found = call_admin(url, lambda admin: admin.subscriptions.analyze_backlog(topic, subscription, position))
    if as_json:
        print(format_json(found))
        return
    more = " or more: the broker stopped at its limit" if found.aborted else ""
    print(f"{subscription} of {topic}: {found.messages:,} messages in {_count_entries(found.entries)}{more}")
    if found.lost_entries:
        print(f"{_count_entries(found.lost_entries)} of them lost on all bookies")


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
    from magnetar_cli.administration.stats_views import print_subscription, print_subscriptions

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
        print_subscription(topic, found[0])
    else:
        print_subscriptions(topic, found)


def _known(count: int) -> int | None:
    """Return None for the number of a broker of Pulsar, which does not report it."""
    return count if count >= 0 else None


def _count_entries(count: int) -> str:
    if count < 0:
        return "an unknown number of entries"
    return "1 entry" if count == 1 else f"{count:,} entries"
