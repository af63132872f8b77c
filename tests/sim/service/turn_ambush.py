"""An ambush: a subscription is changed, its last consumer leaves and another one joins, in one turn of the event loop.

It waits for a broker to take a client's request to open a consumer of a subscription whose consumers are all on other
streams. In the broker's next turn an administrator's change begins, those streams break, and the new consumer joins.
All later steps of the change come after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from magnetar import MessageId
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.consume_stream import ConsumeStream
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ConsumeRequest, OpenConsumer, StartAt
from magnetar_wire.topic_name import TopicName
from tests.sim.process import Process
from tests.sim.service.letters import is_letter_topic

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["TurnAmbush"]


class TurnAmbush:
    """A `StreamTap` that fires once."""

    def __init__(self, world: ServiceWorld, change: str) -> None:
        self._world = world
        # "reset", "skip" or "delete".
        self._change = change
        self._armed = True

    def sent(self, *_: Any, served: bool) -> None: ...

    def arrived(self, *_: Any, served: bool) -> None: ...

    def ended(self, stream: int) -> None: ...

    def taken(self, stream: int, by: Process, method: str, message: bytes, *, served: bool) -> None:
        if not self._armed or served or method != "consume" or self._world.quiet:
            return
        for opened in ConsumeRequest.FromString(message).open:
            topic = self._loaded(by, opened)
            sessions: dict[int, ConsumeStream] = {} if topic is None else self._sessions(topic, opened.subscription)
            if topic is not None and sessions and stream not in sessions:
                self._armed = False
                self._world.count(f"changed as consumers changed: {self._change}")
                by.spawn(self._changes(topic, opened.subscription), name="a change as consumers change")
                by.call_soon(_break, list(sessions.values()))
                return

    def _loaded(self, by: Process, opened: OpenConsumer) -> Topic | None:
        host = next((host for host in self._world.brokers if host.process is by), None)
        name = TopicName.parse(opened.topic)
        if (
            host is None
            or host.broker is None
            or host.broker.session is None
            or not opened.durable
            or name.is_partition
            or is_letter_topic(str(name))
        ):
            return None
        return host.broker.session.topics.get_loaded(name)

    def _sessions(self, topic: Topic, subscription: str) -> dict[int, ConsumeStream]:
        """Return the sessions of the subscription's consumers, by their streams."""
        durable = [one for one in topic.subscriptions.stats() if one.durable and one.name == subscription]
        addresses = [consumer.address for one in durable for consumer in one.consumers]
        streams = [int(address.rpartition(":")[2]) for address in addresses]
        return {stream: self._world.sessions.consuming[stream] for stream in streams}

    async def _changes(self, topic: Topic, subscription: str) -> None:
        """Change the subscription as the administrator's call does at the topic's owner."""
        history, judged, name = self._world.history, self._world.judged, str(topic.name)
        if self._change == "delete":
            judged(history.unsubscribing, name, subscription)
            try:
                await topic.subscriptions.delete(subscription)
            except BrokerError as error:
                self._world.trace.line("ambush", f"could not delete {subscription} of {name}: {error}")
            return
        to = MessageId.earliest if self._change == "reset" else MessageId.latest
        number = judged(history.moving, name, subscription, to, voids=self._change == "reset") or 0
        try:
            if self._change == "reset":
                await topic.subscriptions.reset(subscription, StartAt(earliest=True))
            else:
                await topic.subscriptions.skip_all(subscription)
        except BrokerError as error:
            judged(history.move_failed, number, error)
        else:
            judged(history.moved, number)


def _break(sessions: list[ConsumeStream]) -> None:
    """Break streams as a failed send does: all their consumers leave at once."""
    for session in sessions:
        session.break_off()
        session.stream.cancel()
