"""The handlers of LOOKUP and PARTITIONED_METADATA.

LOOKUP is always answered with the address of the topic's owner (CONNECT). There are no redirects.
"""

from __future__ import annotations

from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.interface import TopicOwner
from magnetar_broker.server.pulsar.error_codes import server_error
from magnetar_broker.server.pulsar.replies import frame, shorten
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_broker.server.request_errors import as_broker_error
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)
from magnetar_wire.topic_name import TopicName

__all__ = ["get_partitions", "look_up"]


def look_up(session: ClientSession, command: BaseCommand) -> None:
    """Handle LOOKUP."""
    session.spawn(_answer_lookup(session, command.lookup_topic))


async def _answer_lookup(session: ClientSession, request: CommandLookupTopic) -> None:
    response = CommandLookupTopicResponse(request_id=request.request_id)
    server = session.context.server
    server.counters.lookups += 1
    try:
        with as_broker_error("A lookup"):
            broker_session = server.get_session()
            with server.lookup_limit.hold():
                owner = await broker_session.ownership.find_owner(TopicName.parse(request.topic))
            server.counters.lookups_elsewhere += not owner.is_local
            address = _address_of(owner, session, request.advertised_listener_name)
            response.broker_service_url = f"pulsar://{address}"
            response.response, response.authoritative = CommandLookupTopicResponse.CONNECT, True
    except BrokerError as error:
        server.counters.lookups_failed += 1
        response.response = CommandLookupTopicResponse.FAILED
        response.error, response.message = server_error(error.code), shorten(error)
    session.write(frame(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_topic_response=response)))


def _address_of(owner: TopicOwner, session: ClientSession, listener_name: str) -> str:
    """Return the address at which the client reaches the owner. `listener_name`: from the request; empty: none."""
    if owner.is_local and not listener_name and session.context.advertises_reached_address and session.reached_address:
        return session.reached_address
    return owner.addresses.find_pulsar(listener_name or session.listener_name)


def get_partitions(session: ClientSession, command: BaseCommand) -> None:
    """Handle PARTITIONED_METADATA."""
    session.spawn(_answer_partitions(session, command.partition_metadata))


async def _answer_partitions(session: ClientSession, request: CommandPartitionedTopicMetadata) -> None:
    response = CommandPartitionedTopicMetadataResponse(request_id=request.request_id)
    server = session.context.server
    try:
        with as_broker_error("A request for the number of partitions"), server.lookup_limit.hold():
            name = TopicName.parse(request.topic)
            may_create = request.metadata_auto_creation_enabled
            response.partitions = await server.get_session().catalog.resolve_partitions(name, may_create)
        response.response = CommandPartitionedTopicMetadataResponse.SUCCESS
    except BrokerError as error:
        response.response = CommandPartitionedTopicMetadataResponse.FAILED
        response.error, response.message = server_error(error.code), shorten(error)
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partition_metadata_response=response)
    session.write(frame(answer))
