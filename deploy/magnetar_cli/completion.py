"""What the shell offers for a topic's name: those that there are, if a broker says so in a moment.

A shell waits for this with the user's finger on the key, so it is asked once, of the first address, and whatever goes
wrong offers nothing. What is typed decides which namespace is looked at: `acme/shop/or` looks at acme/shop.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Final

import typer

__all__ = ["complete_subscription", "complete_topic"]

_PATIENCE_S: Final = 0.7
_MOST: Final = 200
_DEFAULT_NAMESPACE: Final = "public/default"
_PERSISTENT: Final = "persistent://"


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    from magnetar.exceptions import MagnetarException

    short, full = incomplete.removeprefix(_PERSISTENT), incomplete.startswith(_PERSISTENT)
    namespace = short.rpartition("/")[0] or _DEFAULT_NAMESPACE
    prefix = f"{_PERSISTENT}{namespace}/"
    with contextlib.suppress(MagnetarException, ValueError):
        names = _offered(ctx, namespace)
        if not full:
            prefix = "" if "/" not in short else f"{namespace}/"
            names = [prefix + name.rpartition("/")[2] for name in names]
        return [name for name in names if name.startswith(incomplete)][:_MOST]
    return []


def complete_subscription(ctx: typer.Context, incomplete: str) -> list[str]:
    """Of the topic that stands before it."""
    from magnetar.admin import Admin
    from magnetar.exceptions import MagnetarException

    topic = ctx.params.get("topic")
    with contextlib.suppress(MagnetarException, ValueError):
        if isinstance(topic, str):
            with _silence(), Admin(_url(ctx), _PATIENCE_S) as admin:
                return [name for name in admin.subscriptions.list(topic) if name.startswith(incomplete)][:_MOST]
    return []


def _offered(ctx: typer.Context, namespace: str) -> list[str]:
    """Partitions are left out: their topic stands for them."""
    from magnetar.admin import Admin

    with _silence(), Admin(_url(ctx), _PATIENCE_S) as admin:
        partitioned = admin.topics.list_partitioned(namespace)
        of_those = tuple(f"{name}-partition-" for name in partitioned)
        return sorted(partitioned + [name for name in admin.topics.list(namespace) if not name.startswith(of_those)])


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """What is logged would stand in the line that is being typed."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def _url(ctx: typer.Context) -> str:
    return str(ctx.params.get("url") or os.environ.get("MAGNETAR_URL") or "magnetar://localhost:6652")
