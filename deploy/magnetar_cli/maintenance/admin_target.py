"""Which brokers a command asks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from magnetar.admin import Admin
from magnetar_cli.cluster.commands import DEFAULT_FOLDER
from magnetar_cli.cluster.local_cluster import LocalCluster
from magnetar_cli.plain_errors import plain_errors, plain_logs

__all__ = ["ServiceUrl", "at_brokers"]

# A user waits.
_PATIENCE_S: Final = 15.0

T = TypeVar("T")

ServiceUrl = Annotated[
    str | None, typer.Option("--service-url", metavar="URL", help="Any cluster: magnetar://host:port,host:port.")
]


def at_brokers(service_url: str | None, folder: Path | None, act: Callable[[Admin], T]) -> T:
    """Does it; what a user may cause is told in one line."""
    plain_logs()
    with plain_errors():
        url = service_url or LocalCluster((folder or DEFAULT_FOLDER).absolute()).service_url
        with Admin(url, _PATIENCE_S) as admin:
            return act(admin)
