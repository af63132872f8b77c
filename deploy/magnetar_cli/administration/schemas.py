"""`magnetar schemas …`: show, upload, check and delete the schemas of topics."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar_cli.exit_codes import ExitCode
from magnetar_cli.options import AdminUrl, AsJson, Topic, Yes, confirm
from magnetar_cli.output import format_json, print_facts
from magnetar_cli.schema_sources import SchemaSource, SchemaTypeName, load_schema
from magnetar_cli.service import DEFAULT_URL, call_admin, exit_on_error, print_message

if TYPE_CHECKING:
    from magnetar.admin import Admin, TopicSchema
    from magnetar.schema import Schema, SchemaInfo

app = typer.Typer(
    help="Show, upload, check and delete the schemas of topics.", no_args_is_help=True, pretty_exceptions_enable=False
)


@app.command("show")
def show(
    topic: Topic,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="Version.", show_default="the last one")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show all versions, oldest first.")] = False,
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show a topic's schema."""
    if everything and version is not None:
        raise typer.BadParameter("give a version, or --all", param_hint="--version")

    def find(admin: Admin) -> list[TopicSchema]:
        return (everything and admin.schemas.list(topic)) or [admin.schemas.get(topic, version)]

    for one in call_admin(url, find):
        if as_json:
            print(format_json(_to_object(one)))
        else:
            _print_schema(one)


def _to_object(one: TopicSchema) -> dict[str, Any]:
    schema = one.schema
    return {
        "version": one.version,
        "type": schema.type.name,
        "created_ms": one.created_ms,
        "properties": dict(schema.properties),
        "definition": _parse_definition(schema),
    }


def _parse_definition(schema: SchemaInfo) -> Any:
    """Return the definition as a JSON value; what is no JSON as a text."""
    from magnetar_wire.admin.json.schemas import format_definition

    text = format_definition(schema.type.value, schema.definition)
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def _print_schema(one: TopicSchema) -> None:
    import datetime

    created = datetime.datetime.fromtimestamp(one.created_ms / 1000).astimezone().isoformat(" ", "seconds")
    facts = [("version", str(one.version)), ("type", one.schema.type.name), ("created", created)]
    facts += [(f"property {name}", value) for name, value in sorted(one.schema.properties.items())]
    print_facts(facts)
    definition = _parse_definition(one.schema)
    if definition is not None:
        # Escaped: definitions come from others, and may have characters that a terminal interprets.
        print(json.dumps(definition, indent=2))


@app.command("upload")
def upload(
    topic: Topic, source: SchemaSource = "", type_name: SchemaTypeName = "", url: AdminUrl = DEFAULT_URL
) -> None:
    """Add a version to a topic's schema, unless it has one with this definition."""
    schema = _load(source, type_name)
    version = call_admin(url, lambda admin: admin.schemas.upload(topic, schema), changes=True)
    print(f"{topic}: the schema is version {version}")


@app.command("check")
def check(
    topic: Topic,
    source: SchemaSource = "",
    type_name: SchemaTypeName = "",
    url: AdminUrl = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Check whether a schema could become the topic's next version. If not, the exit status is 1."""
    schema = _load(source, type_name)
    found = call_admin(url, lambda admin: admin.schemas.check(topic, schema))
    if as_json:
        print(
            format_json(
                {
                    "topic": topic,
                    "is_compatible": found.is_compatible,
                    "reason": found.reason,
                    "strategy": found.strategy,
                }
            )
        )
    elif found.is_compatible:
        print(f"{topic}: compatible ({found.strategy})")
    if not found.is_compatible:
        # Most reasons have these words already.
        is_complete = "not compatible" in found.reason and found.strategy in found.reason
        print_message(found.reason if is_complete else f"not compatible ({found.strategy}): {found.reason}")
        raise typer.Exit(ExitCode.FAILED)


@app.command("delete")
def delete(
    topic: Topic,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Remove all versions: messages can't be decoded by them any more. Close the topic's producers first: "
            "one that is open goes on with its version.",
        ),
    ] = False,
    yes: Yes = False,
    url: AdminUrl = DEFAULT_URL,
) -> None:
    """Delete a topic's schema. The next one need not be compatible with it."""
    confirm(f"Remove all versions of the schema of {topic}" if force else f"Delete the schema of {topic}", yes)
    call_admin(url, lambda admin: admin.schemas.delete(topic, force), changes=True)
    print(f"{topic}: the schema is deleted")


def _load(source: str, type_name: str) -> SchemaInfo | Schema[Any]:
    with exit_on_error():
        return load_schema(source, type_name)
