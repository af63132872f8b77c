"""`magnetar topics …`: create, inspect, empty and delete topics."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from magnetar_cli.administration.policy_options import (
    find_without_effect,
    policy_options,
    print_policies,
    read_policies,
)
from magnetar_cli.administration.simple_command import Argument, SimpleCommand, add_command, add_function
from magnetar_cli.administration.topic_messages import add_commands as add_message_commands
from magnetar_cli.messages.positions import parse_position
from magnetar_cli.options import (
    AdminUrl,
    AsHex,
    AsJson,
    AsRaw,
    Decode,
    Force,
    ListenerName,
    Topic,
    Topics,
    Url,
    Yes,
    choose_format,
    confirm,
    parse_properties,
)
from magnetar_cli.output import format_json, print_rows
from magnetar_cli.service import (
    DEFAULT_URL,
    OPERATION_TIMEOUT_S,
    call_admin,
    check_topics,
    connect_client,
    exit_on_error,
)

if TYPE_CHECKING:
    from magnetar.admin import Admin, InternalStats, TopicPolicies
    from magnetar_wire.message_id import MessageId

app = typer.Typer(
    help="Create, inspect, empty and delete topics.", no_args_is_help=True, pretty_exceptions_enable=False
)

_NAMESPACE: Final = "public/default"
Partitions = Annotated[int, typer.Option("--partitions", "-p", min=1, help="Number of partitions; it can only grow.")]


@app.command("list")
def list_topics(
    namespace: Annotated[str, typer.Argument(help="Namespace, e.g. public/default.")] = _NAMESPACE,
    partitions: Annotated[bool, typer.Option("--partitions", help="List each partition.")] = False,
    system: Annotated[
        bool, typer.Option("--include-system-topic", "--system", help="List system topics, too.")
    ] = False,
    domain: Annotated[
        str, typer.Option("--domain", "-td", help="persistent, or non-persistent: listed while they are loaded.")
    ] = "persistent",
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List a namespace's topics with their number of partitions; 0: not partitioned."""

    def act(admin: Admin) -> list[tuple[str, int]]:
        partitioned = admin.topics.list_partitioned(namespace, include_system_topic=system, domain=domain)
        names = admin.topics.list(namespace, include_system_topic=system, domain=domain)
        found = [(name, admin.topics.get_partitioned(name).partitions) for name in partitioned]
        parts = {f"{name}-partition-{at}" for name, count in found for at in range(count)}
        if partitions:
            return [(name, 0) for name in sorted(parts.union(names))]
        return sorted(found + [(name, 0) for name in names if name not in parts])

    print_rows(("topic", "partitions"), call_admin(url, act), as_json=as_json)


@app.command("create")
def create(
    topic: Topic,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=0, help="Number of partitions; 0: not partitioned.")
    ] = 0,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="Property of the topic. Repeatable.")
    ] = None,
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """Create a topic."""
    given = parse_properties(properties or ())

    def act(admin: Admin) -> None:
        if partitions:
            admin.topics.create_partitioned(topic, partitions, given)
        else:
            admin.topics.create(topic, given)

    call_admin(url, act, changes=True)
    print(f"{topic}: created" + (f", with {partitions:,} partitions" if partitions else ""))


@app.command("delete")
def delete(topics: Topics, force: Force = False, yes: Yes = False, url: AdminUrl = DEFAULT_URL) -> None:
    """Delete topics with their partitions, messages and subscriptions."""
    check_topics(topics)
    confirm(f"Delete {', '.join(topics)} with all messages and subscriptions", yes)

    def act(admin: Admin) -> None:
        for topic in topics:
            if is_partitioned(admin, topic):
                admin.topics.delete_partitioned(topic, force)
            else:
                admin.topics.delete(topic, force)
            print(f"{topic}: deleted", flush=True)

    call_admin(url, act, changes=True)


@app.command("properties")
def properties(
    topic: Topic,
    changed: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a property. Repeatable.")
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--remove", metavar="NAME", help="Remove a property. Repeatable.")
    ] = None,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a topic's properties, after changing them."""
    given = parse_properties(changed or (), "--set")

    def act(admin: Admin) -> dict[str, str]:
        if given:
            admin.topics.update_properties(topic, given)
        if removed:
            admin.topics.remove_properties(topic, removed)
        return admin.topics.properties(topic)

    found = call_admin(url, act)
    print_rows(("name", "value"), sorted(found.items()), as_json=as_json)


@app.command("stats")
def stats(
    topic: Topic,
    internal: Annotated[bool, typer.Option("--internal", help="Show ledgers, cursors and leases.")] = False,
    per_partition: Annotated[
        bool, typer.Option("--per-partition", help="Show each partition of a partitioned topic.")
    ] = False,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a topic's rates, storage, producers and subscriptions."""
    if internal and per_partition:
        raise typer.BadParameter("--internal shows each partition already", param_hint="--per-partition")
    from magnetar_cli.administration.stats_views import print_internal_stats, print_topic_stats

    if internal:
        logs = call_admin(url, lambda admin: _get_internal_stats(admin, topic))
        for name, log in logs:
            if as_json:
                print(format_json({"topic": name, "stats": log}))
            else:
                print_internal_stats(name, log)
        return
    if per_partition:
        shown = call_admin(url, lambda admin: admin.topics.partitioned_stats(topic)).partitions
    else:
        shown = [call_admin(url, lambda admin: admin.topics.stats(topic))]
    for number, one in enumerate(shown):
        if as_json:
            print(format_json(one))
        else:
            if number:
                print()
            print_topic_stats(one)


@app.command("lookup")
def lookup(
    topic: Topic, url: AdminUrl = DEFAULT_URL, listener_name: ListenerName = "", as_json: AsJson = False
) -> None:
    """Show which broker serves a topic, or each of its partitions."""
    owners = call_admin(url, lambda admin: admin.topics.owners(topic, listener_name))
    rows = [(one.topic, one.broker_id, one.address, one.bundle) for one in owners]
    print_rows(("topic", "broker", "address", "bundle"), rows, as_json=as_json)


@app.command("partitions")
def partitions(topic: Topic, url: AdminUrl = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the names of a topic's partitions, or its own name if it is not partitioned."""
    owners = call_admin(url, lambda admin: admin.topics.owners(topic))
    print_rows(("topic",), [(one.topic,) for one in owners], as_json=as_json)


_TOPIC: Final = Argument("topic", Topic)

add_command(
    app,
    SimpleCommand(
        "update",
        "topics.update_partitioned",
        "Add partitions to a partitioned topic. Its subscriptions get the new ones from their first message.",
        arguments=(_TOPIC, Argument("partitions", Partitions)),
        prints="{topic}: has {partitions:,} partitions now",
    ),
)
add_command(
    app,
    SimpleCommand(
        "truncate",
        "topics.truncate",
        "Delete all messages of a topic, acknowledged or not.",
        arguments=(_TOPIC,),
        confirms="Delete all messages of {topic}",
        prints="{topic}: empty",
    ),
)
add_command(
    app,
    SimpleCommand(
        "unload",
        "topics.unload",
        "Unload a topic from its broker. It is loaded again when it is next used.",
        arguments=(_TOPIC,),
        prints="{topic}: unloaded",
    ),
)


@app.command("terminate")
def terminate(topic: Topic, yes: Yes = False, url: AdminUrl = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Have a topic, or each of its partitions, accept no more messages, for good."""
    confirm(f"Have {topic} accept no more messages, for good", yes)

    def act(admin: Admin) -> list[tuple[str, str]]:
        from magnetar.exceptions import NotAllowedError

        try:
            parts = admin.topics.terminate_partitioned(topic)
        except NotAllowedError:
            return [(topic, _last_message(admin.topics.terminate(topic)))]
        return [(f"{topic}-partition-{one.partition}", _last_message(one.last)) for one in parts]

    print_rows(("topic", "last message"), call_admin(url, act, changes=True), as_json=as_json)


def _last_message(last: MessageId) -> str:
    return f"{last.ledger_id()}:{last.entry_id()}" if last.entry_id() >= 0 else "none"


add_command(
    app,
    SimpleCommand(
        "create-missed-partitions",
        "topics.create_missed_partitions",
        "Create the partitions of a topic that were never used, or were deleted.",
        arguments=(_TOPIC,),
        prints="{topic}: has all its partitions",
    ),
)
add_command(
    app,
    SimpleCommand(
        "trim",
        "topics.trim",
        "Delete ledgers that no subscription needs and that nothing retains. Brokers also do so by themselves.",
        arguments=(_TOPIC,),
        prints="{topic}: trimmed",
    ),
)
add_message_commands(app)


def _run_policies(**given: Any) -> None:
    from magnetar.admin import TopicPolicies

    topic, applied = given["topic"], given["applied"]
    wanted, removed = read_policies(TopicPolicies, given)
    changes = wanted != TopicPolicies() or bool(removed)

    def act(admin: Admin) -> tuple[TopicPolicies, Sequence[str], Sequence[str]]:
        warnings = admin.topics.change_policies(topic, wanted, removed) if changes else ()
        return admin.topics.policies(topic, applied), admin.topics.policy_warnings(topic), warnings

    found, remarks, warnings = call_admin(given["url"], act, changes=changes)
    for warning in warnings:
        print(f"magnetar: warning: {warning}", file=sys.stderr)
    if given["as_json"]:
        not_in_effect = list(find_without_effect(remarks))
        print(format_json({"topic": topic, **dataclasses.asdict(found), "not_in_effect": not_in_effect}))
        return
    print_policies(found, remarks, "as in its namespace", removed, every=given["every"])


_APPLIED: Final = Annotated[
    bool, typer.Option("--applied", help="Show what applies: else its namespace's, else the brokers' settings.")
]

add_function(
    app,
    "policies",
    "Set and show a topic's own policies. Policies that are not given stay unchanged.",
    [
        _TOPIC,
        *policy_options(of_topics=True),
        Argument("applied", _APPLIED, False),
        Argument("url", AdminUrl, DEFAULT_URL),
        Argument("as_json", AsJson, False),
    ],
    _run_policies,
    has_long_options=True,
)


@app.command("end-lease")
def end_lease(
    topic: Topic,
    lease: Annotated[str, typer.Argument(help="Lease id, as shown by `stats --internal`.")],
    yes: Yes = False,
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """End a reader's lease on each partition, so that the ledgers it retains can be deleted."""
    if url.startswith(("http://", "https://")):
        raise typer.BadParameter("leases can't be ended over HTTP: use a magnetar:// URL", param_hint="--url")
    confirm(f"End the lease {lease} on {topic}, even if a reader still uses it", yes)

    def act(admin: Admin) -> list[str]:
        from magnetar.exceptions import NotFound

        held = {
            name: one.lease_id
            for name, stats in _get_internal_stats(admin, topic)
            for one in stats.leases
            if one.lease_id.hex() == lease.lower()
        }
        if not held:
            raise NotFound(f"{topic} has no lease {lease}: it has ended, or never existed")
        for name, lease_id in held.items():
            admin.reading.end_lease(name, lease_id)
        return list(held)

    for name in call_admin(url, act):
        print(f"{name}: the lease has ended")


@app.command("peek")
def peek(
    topic: Topic,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of messages.")] = 10,
    start: Annotated[
        str, typer.Option("--from", help="Start position: earliest, a message id, a time, or an age, e.g. 10m.")
    ] = "earliest",
    url: Url = DEFAULT_URL,
    listener_name: ListenerName = "",
    as_json: AsJson = False,
    as_hex: AsHex = False,
    as_raw: AsRaw = False,
    decode: Decode = True,
) -> None:
    """Show messages that a topic stores, acknowledged ones, too. It changes nothing."""
    output_format = choose_format(as_json=as_json, as_hex=as_hex, as_raw=as_raw)
    with exit_on_error():
        from magnetar.admin import Admin
        from magnetar_cli.messages.message_output import MessageWriter, choose_schema
        from magnetar_cli.messages.topic_tail import Tail, show_messages

        schema = choose_schema(output_format, decode=decode)
        tail = Tail(0, parse_position(start), follow=False, count=count, schema=schema)
        with Admin(url, OPERATION_TIMEOUT_S) as admin, connect_client(url, listener_name) as client:
            code = show_messages(client, admin, [topic], tail, MessageWriter(output_format))
    raise typer.Exit(code)


def _get_internal_stats(admin: Admin, topic: str) -> list[tuple[str, InternalStats]]:
    names = [owner.topic for owner in admin.topics.owners(topic)]
    return [(name, admin.topics.internal_stats(name)) for name in names]


def is_partitioned(admin: Admin, topic: str) -> bool:
    from magnetar.exceptions import NotFound, TopicNotFound

    try:
        return admin.topics.get_partitioned(topic).partitions > 0
    except (NotFound, TopicNotFound):
        return False
