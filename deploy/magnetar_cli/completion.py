"""Shell completion of topics' and subscriptions' names.

The user waits for it, so a broker is requested once, at the first address, with a short timeout. After an error nothing
is completed. The typed text selects the namespace: `acme/shop/or` completes topics of acme/shop.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Final

import typer

from magnetar_cli.service import DEFAULT_URL

__all__ = ["complete_subscription", "complete_topic"]

_TIMEOUT_S: Final = 0.7
_MAX_NAMES: Final = 200
_DEFAULT_NAMESPACE: Final = "public/default"
_PERSISTENT: Final = "persistent://"


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    from magnetar.exceptions import MagnetarException

    short, full = incomplete.removeprefix(_PERSISTENT), incomplete.startswith(_PERSISTENT)
    namespace = short.rpartition("/")[0] or _DEFAULT_NAMESPACE
    prefix = f"{_PERSISTENT}{namespace}/"
    with contextlib.suppress(MagnetarException, ValueError):
        names = _list_topics(ctx, namespace)
        if not full:
            prefix = "" if "/" not in short else f"{namespace}/"
            names = [prefix + name.rpartition("/")[2] for name in names]
        return [name for name in names if name.startswith(incomplete)][:_MAX_NAMES]
    return []


def complete_subscription(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a subscription of the topic that precedes it on the command line."""
    from magnetar.admin import Admin
    from magnetar.exceptions import MagnetarException

    topic = ctx.params.get("topic")
    with contextlib.suppress(MagnetarException, ValueError):
        if isinstance(topic, str):
            with _disable_logs(), Admin(_find_url(ctx), _TIMEOUT_S) as admin:
                return [name for name in admin.subscriptions.list(topic) if name.startswith(incomplete)][:_MAX_NAMES]
    return []


def _list_topics(ctx: typer.Context, namespace: str) -> list[str]:
    """List a namespace's topics. A partitioned topic is listed without its partitions."""
    from magnetar.admin import Admin

    with _disable_logs(), Admin(_find_url(ctx), _TIMEOUT_S) as admin:
        partitioned = admin.topics.list_partitioned(namespace)
        partitions = tuple(f"{name}-partition-" for name in partitioned)
        return sorted(partitioned + [name for name in admin.topics.list(namespace) if not name.startswith(partitions)])


@contextlib.contextmanager
def _disable_logs() -> Iterator[None]:
    """Disable logging, which would appear in the line that is being typed."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def _find_url(ctx: typer.Context) -> str:
    return str(ctx.params.get("url") or os.environ.get("MAGNETAR_URL") or DEFAULT_URL)
