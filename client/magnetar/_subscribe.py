"""`subscribe` and `create_reader`, as both kinds of client have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from magnetar import _aio_consumer, _aio_reader
from magnetar._active_events import check_event_listener, tell_active
from magnetar._client_core import ClientCore, topic_name
from magnetar._consumer import Consumer
from magnetar._consumer_core import ConsumerCore
from magnetar._consumer_options import ConsumerBatchReceivePolicy, consumer_options, topic_names
from magnetar._enums import ConsumerType, InitialPosition
from magnetar._message import Message
from magnetar._reader import Reader
from magnetar._reader_core import open_reader
from magnetar.exceptions import AlreadyClosed
from magnetar_protos.broker_pb2 import StartAt
from magnetar_wire.message_id import MessageId

__all__ = ["AioSubscribing", "Subscribing"]

T = TypeVar("T")
F = TypeVar("F")


async def _open_consumer(
    client: ClientCore, topic: str | Sequence[str] | re.Pattern[str], given: Mapping[str, Any]
) -> ConsumerCore:
    client.check_open()
    names, options = topic_names(topic), consumer_options(given)
    start = StartAt(earliest=True) if options.initial_position is InitialPosition.Earliest else StartAt(latest=True)
    core = ConsumerCore(client, names, options, start)
    await core.open()
    return _kept(client, core)


async def _open_reader(
    client: ClientCore, topic: str, start: MessageId | int, given: Mapping[str, Any]
) -> ConsumerCore:
    client.check_open()
    return _kept(client, await open_reader(client, topic_name(topic), start, given))


def _kept(client: ClientCore, core: ConsumerCore) -> ConsumerCore:
    """The client closes it when it is closed itself."""
    try:
        client.add_member(core)
    except AlreadyClosed as error:
        core.end(error)
        raise
    return core


class Subscribing:
    """Of the synchronous client."""

    def _begun(self) -> ClientCore:
        raise NotImplementedError

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        raise NotImplementedError

    def _make_front(self, work: Coroutine[Any, Any, Any], front: Callable[[Any], F]) -> F:
        """What the application gets of what the work makes on the loop. If it gets nothing, that is closed again."""
        raise NotImplementedError

    def subscribe(
        self,
        topic: str | Sequence[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Any = None,
        message_listener: Callable[[Consumer, Message], object] | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: float = 60000,
        is_read_compacted: bool = False,
        properties: Mapping[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        start_message_id_inclusive: bool = False,
        consumer_event_listener: Any = None,
        **more: Any,
    ) -> Consumer:
        """A consumer of the topic, or of each in a list of them, in the subscription, which is made if there is none.

        `initial_position` says where a new subscription begins. `message_listener` is called with the consumer and each
        message, on a thread of its own. `consumer_event_listener` is told, on the thread of callbacks, of which
        partitions of a Failover subscription the consumer is served: see _active_events.py. `more` are options that are
        less often used: see ConsumerOptions.
        """
        given = _given(locals())
        check_event_listener(consumer_event_listener)
        begun = self._begun()

        def front(core: ConsumerCore) -> Consumer:
            consumer = Consumer(core, self._run, message_listener)
            tell_active(core, consumer, consumer_event_listener, begun.callbacks.put)
            return consumer

        return self._make_front(_open_consumer(begun, topic, given), front)

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId | int,
        schema: Any = None,
        reader_listener: Callable[[Reader, Message], object] | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        start_message_id_inclusive: bool = False,
        **more: Any,
    ) -> Reader:
        """A reader of the topic: from behind a message (from it, with `start_message_id_inclusive`), from
        `MessageId.earliest` or `latest`, or from a time, in ms since 1970."""
        given = _given(locals())
        work = _open_reader(self._begun(), topic, start_message_id, given)
        return self._make_front(work, lambda core: Reader(core, self._run, reader_listener))


class AioSubscribing:
    """Of the asyncio client."""

    async def _begun(self) -> ClientCore:
        raise NotImplementedError

    async def subscribe(
        self,
        topic: str | Sequence[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Any = None,
        message_listener: Callable[[_aio_consumer.Consumer, Message], object] | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: float = 60000,
        is_read_compacted: bool = False,
        properties: Mapping[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
        initial_position: InitialPosition = InitialPosition.Latest,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        start_message_id_inclusive: bool = False,
        consumer_event_listener: Any = None,
        **more: Any,
    ) -> _aio_consumer.Consumer:
        """A consumer of the topic, or of each in a list of them, in the subscription, which is made if there is none.

        `initial_position` says where a new subscription begins. `message_listener`, a function or a coroutine function,
        is called with the consumer and each message, in a task of its own. `more` are options that are less often used:
        see ConsumerOptions.
        """
        given = _given(locals())
        check_event_listener(consumer_event_listener)
        core = await _open_consumer(await self._begun(), topic, given)
        consumer = _aio_consumer.Consumer(core, message_listener)
        tell_active(core, consumer, consumer_event_listener)
        return consumer

    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId | int,
        schema: Any = None,
        reader_listener: Callable[[_aio_reader.Reader, Message], object] | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        start_message_id_inclusive: bool = False,
        **more: Any,
    ) -> _aio_reader.Reader:
        """A reader of the topic: from behind a message (from it, with `start_message_id_inclusive`), from
        `MessageId.earliest` or `latest`, or from a time, in ms since 1970."""
        given = _given(locals())
        core = await _open_reader(await self._begun(), topic, start_message_id, given)
        return _aio_reader.Reader(core, reader_listener)


# What is no option of the consumer.
_NOT_OPTIONS = frozenset(
    {"self", "topic", "message_listener", "reader_listener", "consumer_event_listener", "start_message_id", "more"}
)


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in arguments.items() if name not in _NOT_OPTIONS}
    if options.get("properties", ...) is None:
        del options["properties"]
    return {**options, **arguments["more"]}
