"""Choose the brokers that `magnetar brokers` and `magnetar bundles` use: at a URL, or of a cluster on this machine.

`--folder` selects a cluster on this machine, and excludes `--url`. Without it, `--url` or MAGNETAR_URL is used, as by
all client commands. Without any of them it is the cluster in `.magnetar` if one of its brokers runs, else
`magnetar://localhost:6652`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from magnetar_cli.cluster_folder import DEFAULT_FOLDER, has_running_broker
from magnetar_cli.service import DEFAULT_URL, call_admin, exit_on_error

if TYPE_CHECKING:
    from magnetar.admin import Admin

__all__ = ["BrokersFolder", "BrokersUrl", "call_brokers"]

T = TypeVar("T")


def _refuse_two_targets(context: typer.Context, folder: Path | None) -> Path | None:
    """Raise if the command line has a URL, too. MAGNETAR_URL is only a default, which `--folder` overrides."""
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
        help="Service URL, e.g. magnetar://host:6652, or http://host:8080 for the REST API of Magnetar or Pulsar. "
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


def call_brokers(url: str, folder: Path | None, act: Callable[[Admin], T], *, changes: bool = False) -> T:
    """Call `act` with an administration client and return its result. See `call_admin`."""
    if folder is None and not url and has_running_broker():
        folder = DEFAULT_FOLDER
    if folder is not None:
        with exit_on_error():
            from magnetar_cli.cluster import LocalCluster

            url = LocalCluster(folder.absolute()).service_url
    return call_admin(url or DEFAULT_URL, act, changes=changes)
