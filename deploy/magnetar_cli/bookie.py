"""`magnetar bookie`: one bookie in the foreground, until it is told to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from magnetar_cli.process_command import ConfigFile, ListOptions, Run, SetFlags, list_options, run_process

if TYPE_CHECKING:
    from magnetar_bookie.daemon.settings import BookieSettings

app = typer.Typer(add_completion=False)


@app.command()
def bookie(config: ConfigFile = None, settings: SetFlags = None, options: ListOptions = False) -> None:
    """Run one bookie in the foreground.

    Settings come from the file, from environment variables (MAGNETAR_BOOKIE_ID and so on), and from --set; --options
    lists them. It needs bookie_id, data_folder and metadata. SIGTERM and SIGINT have it end in peace.

    Exit status: 0 it ended in peace, 70 a bug, 74 the disk failed, 75 it did not end in time, 78 it refuses to start.
    """
    if options:
        list_options(_what_runs()[0])
        return
    run_process("bookie", config, settings or (), _what_runs)


def _what_runs() -> tuple[type[BookieSettings], Run[BookieSettings]]:
    from magnetar_bookie.daemon.run import run_bookie
    from magnetar_bookie.daemon.settings import BookieSettings

    return BookieSettings, run_bookie
