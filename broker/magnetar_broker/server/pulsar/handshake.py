"""The handlers of CONNECT, and of PING and PONG. Authentication data are ignored."""

from __future__ import annotations

from typing import Final

from magnetar_broker.server.pulsar.frames import ProtocolViolation
from magnetar_broker.server.pulsar.replies import frame
from magnetar_broker.server.pulsar.session import ClientSession
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandConnected, CommandPong, FeatureFlags
from magnetar_wire.process.version import read_version

__all__ = ["answer_ping", "connect", "ignore"]

_PROTOCOL_VERSION: Final = 21
_MAX_CLIENT_VERSION_LENGTH: Final = 100
_PONG: Final = frame(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


def connect(session: ClientSession, command: BaseCommand) -> None:
    """Answer CONNECT. Raises `ProtocolViolation` for a second one."""
    if session.is_connected:
        raise ProtocolViolation("the client has sent CONNECT twice")
    request = command.connect
    session.is_connected = True
    session.client_version = request.client_version[:_MAX_CLIENT_VERSION_LENGTH]
    session.wants_broker_metadata = request.feature_flags.supports_broker_entry_metadata
    response = CommandConnected(
        server_version=f"magnetar-{read_version()}",
        protocol_version=min(request.protocol_version, _PROTOCOL_VERSION),
        max_message_size=session.context.settings.max_message_size,
        feature_flags=FeatureFlags(
            supports_broker_entry_metadata=True,
            supports_topic_watchers=True,
            supports_get_partitioned_metadata_without_auto_creation=True,
        ),
    )
    session.write(frame(BaseCommand(type=BaseCommand.CONNECTED, connected=response)))


def answer_ping(session: ClientSession, command: BaseCommand) -> None:
    session.write(_PONG)


def ignore(command: BaseCommand) -> None:
    """Do nothing. The bytes of the command already count for the keepalive."""
