"""Choose the brokers that `magnetar brokers` and `magnetar bundles` ask: at a URL, or of a cluster on this machine.

`--folder` names a cluster on this machine, and excludes `--url`. Without it `--url` or MAGNETAR_URL counts, as for all
commands of clients. Without any of them it is the cluster in `.magnetar`, if one of its brokers runs, else
`magnetar://localhost:6652`, as for all commands of clients.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from magnetar_cli.local_folder import DEFAULT_FOLDER, runs_brokers
from magnetar_cli.service import DEFAULT_URL, administered, end_as_told

if TYPE_CHECKING:
    from magnetar.admin import Admin

__all__ = ["BrokersFolder", "BrokersUrl", "at_brokers"]

T = TypeVar("T")


def _refuse_two_targets(context: typer.Context, folder: Path | None) -> Path | None:
    """Raise where the command line names a URL as well. MAGNETAR_URL is a default, which `--folder` overrides."""
    source = context.get_parameter_source("url")
    named = source is not None and source.name == "COMMANDLINE"
    if folder is not None and (named or context.find_root().params.get("url")):
        raise typer.BadParameter("both --folder and --url name a cluster: use one of them")
    return folder


BrokersUrl = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="MAGNETAR_URL",
        metavar="URL",
        help="Service URL, e.g. magnetar://host:6652. "
        f"Default: that of {DEFAULT_FOLDER} if it runs, else {DEFAULT_URL}.",
        show_default=False,
        is_eager=True,  # it is parsed before --folder, whose callback looks for it
    ),
]
BrokersFolder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        "-f",
        help="Folder of a cluster on this machine, instead of --url.",
        show_default=False,
        callback=_refuse_two_targets,
    ),
]


def at_brokers(url: str, folder: Path | None, act: Callable[[Admin], T], *, changes: bool = False) -> T:
    """Return the result of `act`. `changes`: a lost answer leaves open whether it was done."""
    if folder is None and not url and runs_brokers():
        folder = DEFAULT_FOLDER
    if folder is not None:
        with end_as_told():
            from magnetar_cli.cluster import LocalCluster

            url = LocalCluster(folder.absolute()).service_url
    return administered(url or DEFAULT_URL, act, changes=changes)
