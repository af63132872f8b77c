"""The table of commands: which code handles which command of Pulsar's protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from magnetar_broker.server.pulsar.consumer_queries import get_consumer_stats, get_last_message_id
from magnetar_broker.server.pulsar.consumers import Consumers
from magnetar_broker.server.pulsar.handshake import answer_ping, connect, ignore
from magnetar_broker.server.pulsar.lookup import get_partitions, look_up
from magnetar_broker.server.pulsar.producers import Producers
from magnetar_broker.server.pulsar.schemas import get_or_create_schema, get_schema
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.server.pulsar.topic_lists import TopicLists
from magnetar_broker.server.pulsar.transactions import refuse_transaction
from magnetar_protos.pulsar_pb2 import BaseCommand

__all__ = ["Handlers"]


class Handlers:
    """The handlers of one connection's commands, and its producers, consumers and watches."""

    def __init__(self, session: ClientSession) -> None:
        self.producers = producers = Producers(session)
        self.consumers = consumers = Consumers(session)
        self.topic_lists = topic_lists = TopicLists(session)
        # SEND is not in the table, since it is frequent: the connection gathers the entries of all SENDs that it has
        # received, and publishes them together.
        self.gather_send = producers.gather
        self.publish_gathered = producers.publish_gathered
        self.by_command: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.CONNECT: partial(connect, session),
            BaseCommand.AUTH_RESPONSE: ignore,
            BaseCommand.PING: partial(answer_ping, session),
            BaseCommand.PONG: ignore,
            BaseCommand.LOOKUP: partial(look_up, session),
            BaseCommand.PARTITIONED_METADATA: partial(get_partitions, session),
            BaseCommand.PRODUCER: producers.open,
            BaseCommand.CLOSE_PRODUCER: producers.close,
            BaseCommand.SUBSCRIBE: consumers.subscribe,
            BaseCommand.FLOW: consumers.flow,
            BaseCommand.ACK: consumers.acknowledge,
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: consumers.redeliver,
            BaseCommand.SEEK: consumers.seek,
            BaseCommand.UNSUBSCRIBE: consumers.unsubscribe,
            BaseCommand.CLOSE_CONSUMER: consumers.close,
            BaseCommand.GET_LAST_MESSAGE_ID: partial(get_last_message_id, session, consumers),
            BaseCommand.CONSUMER_STATS: partial(get_consumer_stats, session, consumers),
            BaseCommand.GET_TOPICS_OF_NAMESPACE: topic_lists.get_topics,
            BaseCommand.WATCH_TOPIC_LIST: topic_lists.watch,
            BaseCommand.WATCH_TOPIC_LIST_CLOSE: topic_lists.close_watch,
            BaseCommand.GET_SCHEMA: partial(get_schema, session),
            BaseCommand.GET_OR_CREATE_SCHEMA: partial(get_or_create_schema, session),
            BaseCommand.NEW_TXN: partial(refuse_transaction, session),
            BaseCommand.ADD_PARTITION_TO_TXN: partial(refuse_transaction, session),
            BaseCommand.ADD_SUBSCRIPTION_TO_TXN: partial(refuse_transaction, session),
            BaseCommand.END_TXN: partial(refuse_transaction, session),
            BaseCommand.END_TXN_ON_PARTITION: partial(refuse_transaction, session),
            BaseCommand.END_TXN_ON_SUBSCRIPTION: partial(refuse_transaction, session),
            BaseCommand.TC_CLIENT_CONNECT_REQUEST: partial(refuse_transaction, session),
        }

    def close(self) -> None:
        """Close all producers, consumers and watches of a connection that is closed."""
        self.consumers.leave_all()
        self.producers.leave_all()
        self.topic_lists.close()
