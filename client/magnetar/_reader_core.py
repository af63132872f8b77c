"""A reader on its client's event loop: a consumer of a subscription that nobody else has, and that goes with it.

What was read is acknowledged by itself, now and then: nothing depends on it but what the broker thinks is on its way.
"""

from __future__ import annotations

from magnetar._client_core import ClientCore, topic_name
from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_options import ReaderOptions
from magnetar._consumer_part import ConsumerPart
from magnetar._places import place_of, start_at
from magnetar.exceptions import InvalidConfiguration
from magnetar_wire.message_id import MessageId

__all__ = ["open_reader"]


async def open_reader(client: ClientCore, topic: str, start: MessageId | int, options: ReaderOptions) -> ConsumerCore:
    """Return the reader's consumer, opened, which the client closes when it is closed itself."""
    client.check_open()
    name = topic_name(topic)
    if not isinstance(start, (MessageId, int)) or isinstance(start, bool):
        raise InvalidConfiguration(f"a reader starts at a message's id or a time in ms, not at {start!r}")
    token = client.randomness.token(5).hex()
    prefix = options.subscription_role_prefix
    consumer_options = options.for_consumer(f"{prefix}-reader-{token}" if prefix else f"reader-{token}")
    at = start_at(start, inclusive=options.start_message_id_inclusive)
    core = ConsumerCore(client, [name], consumer_options, at, durable=False)
    core.on_handed_out = _acknowledge_read
    await core.open()
    client.add_member(core)
    return core


def _acknowledge_read(part: ConsumerPart) -> None:
    last = part.source.read
    if last is not None and last._delivered.era is part.era:
        ledger_id, entry_id, index = place_of(last)
        part.acks.add_cumulative(part.era, ledger_id, entry_id, index, last._delivered.batch_size)
        part.acknowledge()
