"""The `magnetar` command. Each part is imported when it is called: see lazy_group.py."""

from __future__ import annotations

import sys
from typing import Final

import typer

from magnetar_cli.lazy_group import Part, lazy_group

_PARTS: Final = {
    "standalone": Part("magnetar_cli.standalone.command", "Run everything in one process: a broker to work with."),
    "cluster": Part("magnetar_cli.cluster.commands", "A cluster of real processes on this machine."),
    "bookies": Part("magnetar_cli.maintenance.bookies", "Who stores the ledgers, and who is to leave."),
    "ledgers": Part("magnetar_cli.maintenance.ledgers", "What is stored, repaired and swept."),
    "bookie": Part("magnetar_cli.bookie", "Run one bookie in the foreground."),
    "tour": Part("magnetar_cli.tour", "Show the codec and the metadata store at work."),
}

app = typer.Typer(
    cls=lazy_group(_PARTS),
    name="magnetar",
    help="Messaging and streaming with Pulsar's semantics.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they show what variables hold, secrets too
)


@app.callback()
def _magnetar() -> None:
    """So that the app is a group, though nothing is registered with it."""


def main() -> None:
    try:
        app()
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("magnetar"):
            raise
        print(f"magnetar: this needs {missing.name}: `pip install 'magnetar[server,spark]'` brings it", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
