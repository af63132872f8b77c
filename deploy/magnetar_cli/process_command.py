"""The common part of `magnetar bookie`, `magnetar broker` and `magnetar standalone`: load settings, run, exit.

Signals are blocked before the first thread starts (stop_signals.py). Modules that take long to import are imported
after that.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

if TYPE_CHECKING:
    from magnetar_wire.configuration import Configuration
    from magnetar_wire.process.exit_status import ExitStatus
    from magnetar_wire.process.settings import LogSettings
    from magnetar_wire.process.stop_signals import StopSignals

__all__ = ["ConfigFile", "ListSettings", "Run", "SetFlags", "print_settings", "run_process"]

S = TypeVar("S", bound="LogSettings")
Run = Callable[[S, "StopSignals"], "ExitStatus"]

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file of settings: name = value.")
]
SetFlags = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting; it overrides file and environment. Repeatable."),
]
ListSettings = Annotated[
    bool,
    typer.Option("--options", help="List all settings with defaults, bounds and descriptions, as a file for --config."),
]


def print_settings(kind: type[Configuration]) -> None:
    from magnetar_cli.settings_list import settings_lines

    print("\n".join(settings_lines(kind)))


def run_process(
    name: str,
    config: Path | None,
    flags: Iterable[str],
    import_process: Callable[[], tuple[type[S], Run[S]]],
) -> NoReturn:
    """Run a process, and exit with its status. `import_process` returns its settings' class and the function to run."""
    from magnetar_wire.process.exit_status import ExitStatus
    from magnetar_wire.process.memory_tuning import raise_gc_thresholds
    from magnetar_wire.process.stop_signals import StopSignals

    raise_gc_thresholds()
    signals = StopSignals()
    from magnetar_wire.configuration import InvalidConfiguration, load
    from magnetar_wire.process.logs import log_to_stderr

    kind, run = import_process()
    try:
        settings = load(kind, file=config, environment=os.environ, flags=flags)
    except InvalidConfiguration as error:
        print(f"magnetar {name}: invalid configuration:\n{error}", file=sys.stderr)
        raise typer.Exit(ExitStatus.REFUSED) from None
    log_to_stderr(settings.log_level, settings.log_format)
    status = run(settings, signals)
    logging.shutdown()
    # A normal exit would wait for threads that hang in disk I/O.
    os._exit(status)
