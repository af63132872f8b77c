"""`magnetar bookie`: run one bookie in the foreground until a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from magnetar_cli.process_command import ConfigFile, ListSettings, Run, SetFlags, print_settings, run_process

if TYPE_CHECKING:
    from magnetar_bookie.settings.process import BookieSettings

app = typer.Typer(add_completion=False)


@app.command()
def bookie(config: ConfigFile = None, settings: SetFlags = None, options: ListSettings = False) -> None:
    """Run one bookie in the foreground.

    Settings come from the file, from environment variables (e.g. MAGNETAR_BOOKIE_ID), and from --set; --options lists
    them. bookie_id, data_folder and metadata are required. SIGTERM and SIGINT shut the bookie down gracefully.

    Exit status: 0 graceful shutdown, 70 a bug, 74 the disk failed, 75 the shutdown timed out, 78 refused to start.
    """
    if options:
        print_settings(_import_process()[0])
        return
    run_process("bookie", config, settings or (), _import_process)


def _import_process() -> tuple[type[BookieSettings], Run[BookieSettings]]:
    from magnetar_bookie.daemon.run import run_bookie
    from magnetar_bookie.settings.process import BookieSettings

    return BookieSettings, run_bookie
