"""How far a bookie may lag behind a broker, held against what publishers may have in flight there.

A publisher's bytes are unanswered adds until bookies answer them. If the publish buffer took more than a bookie may
leave unanswered, busy publishers alone would have every bookie lag, and wait for the lag bound instead of the buffer
that is meant to bound them.
"""

from __future__ import annotations

from typing import Final

from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_broker.topic.options import TopicOptions

__all__ = ["check_lag_bound", "with_lag_bound"]

_MIB: Final = 1 << 20


def with_lag_bound(client_options: LedgerClientOptions, options: TopicOptions) -> LedgerClientOptions:
    """The ledger client's options of a broker: there a `max_bookie_lag_bytes` of 0 means twice the publish buffer."""
    if client_options.max_bookie_lag_bytes:
        return client_options
    twice = 2 * options.max_message_publish_buffer_size_in_mb * _MIB
    return client_options.model_copy(update={"max_bookie_lag_bytes": twice})


def check_lag_bound(lag_bytes: int, publish_buffer_mb: int) -> None:
    """Raises `ValueError` for a `max_bookie_lag_bytes` below the publish buffer."""
    least = publish_buffer_mb * _MIB
    if 0 < lag_bytes < least:
        raise ValueError(
            f"max_bookie_lag_bytes is {lag_bytes}, below max_message_publish_buffer_size_in_mb, which is "
            f"{publish_buffer_mb} ({least} bytes): publishers could have more in flight than a bookie may "
            f"have unanswered. Set max_bookie_lag_bytes to 0 (twice the buffer) or to at least {least}, or "
            "lower max_message_publish_buffer_size_in_mb"
        )
