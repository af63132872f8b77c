"""What `magnetar bookie`, `magnetar broker` and `magnetar standalone` do as one: settings in, exit status out.

Signals are blocked before anything starts a thread (stop_signals.py), and what takes its time to be imported is
imported after that.
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
    from magnetar_wire.process.logs import LogOptions
    from magnetar_wire.process.stop_signals import StopSignals

__all__ = ["ConfigFile", "ListOptions", "Run", "SetFlags", "list_options", "run_process"]

S = TypeVar("S", bound="LogOptions")
Run = Callable[[S, "StopSignals"], "ExitStatus"]

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file of settings: name = value.")
]
SetFlags = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting; it overrides file and environment. Repeatable."),
]

ListOptions = Annotated[
    bool, typer.Option("--options", help="List all settings with their defaults and descriptions, as TOML.")
]


def list_options(kind: type[Configuration]) -> None:
    from magnetar_cli.option_list import option_lines

    print("\n".join(option_lines(kind)))


def run_process(
    name: str,
    config: Path | None,
    flags: Iterable[str],
    what_runs: Callable[[], tuple[type[S], Run[S]]],
) -> NoReturn:
    """`what_runs` imports the settings and what runs with them, and returns both. The process ends with the status."""
    from magnetar_wire.process.exit_status import ExitStatus
    from magnetar_wire.process.memory_tuning import raise_gc_thresholds
    from magnetar_wire.process.stop_signals import StopSignals

    raise_gc_thresholds()
    signals = StopSignals()
    from magnetar_wire.configuration import InvalidConfiguration, load
    from magnetar_wire.process.logs import log_to_stderr

    kind, run = what_runs()
    try:
        loaded = load(kind, file=config, environment=os.environ, flags=flags)
    except InvalidConfiguration as error:
        print(f"magnetar {name}: invalid configuration:\n{error}", file=sys.stderr)
        raise typer.Exit(ExitStatus.REFUSED) from None
    log_to_stderr(loaded.log_level, loaded.log_format)
    status = run(loaded, signals)
    logging.shutdown()
    # Threads that hang with the disk would be waited for otherwise.
    os._exit(status)
