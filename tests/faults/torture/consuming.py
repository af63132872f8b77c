"""Consumers of the torture, and the lines that they record.

A consumer is open for some seconds, and is then closed and opened again: its unacknowledged messages are to be
redelivered. After producers were stopped, the next opening stays until the end and acknowledges everything, so that
nothing is left. Errors of its library are recorded, and end an opening. One that `stays` is open as long as its
process, unless an error is raised: so a message that it doesn't get is found missing at the end.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import magnetar
from tests.faults.torture.clients import CLIENT_ERRORS, Clients
from tests.faults.torture.connections import HasParts, short_name
from tests.faults.torture.messages import Unreadable, read_message
from tests.faults.torture.producing import AGAIN_S, AnyId, error_text

__all__ = ["KINDS", "ConsumerLog", "Id", "Kind", "by_partition", "id_of", "options"]

_RENEW_S: Final = 5.0
# So much of what could be acknowledged is, until it draws to the end.
_CHOSEN: Final = 0.8

# Ledger, entry, batch index.
Id = list[int]
Kind = Literal["Exclusive", "Failover", "Shared", "Key_Shared"]
KINDS: Final[dict[str, magnetar.ConsumerType]] = {
    "Exclusive": magnetar.ConsumerType.Exclusive,
    "Failover": magnetar.ConsumerType.Failover,
    "Shared": magnetar.ConsumerType.Shared,
    "Key_Shared": magnetar.ConsumerType.KeyShared,
}


def options(kind: Kind, **more: Any) -> dict[str, Any]:
    """Options for the SDK's `subscribe`."""
    return {
        "consumer_type": KINDS[kind],
        "initial_position": magnetar.InitialPosition.Earliest,
        "negative_ack_redelivery_delay_ms": 300,
        "receiver_queue_size": 200,
        "auto_update_partitions_interval_seconds": 1,
        **more,
    }


def id_of(message: HasId) -> Id:
    found = message.message_id()
    return [found.ledger_id(), found.entry_id(), found.batch_index()]


class HasId(Protocol):
    def message_id(self) -> AnyId: ...


class ConsumerLog:
    """Records one worker's consumers of one subscription, one after the other."""

    # Optional fields of the line `opening`.
    more_fields: Mapping[str, Any] = {}

    def __init__(self, clients: Clients, topic: str, subscription: str, worker: str, *, stays: bool = False) -> None:
        self.clients, self.topic, self.subscription = clients, topic, f"{topic}.{subscription}"
        self._stays = stays
        self._worker = f"{clients.writer}.{worker}"
        self.chance = clients.chance(f"{self.subscription} {worker}")
        self._openings = 0
        self.name = ""
        self._until = 0.0
        # It was opened after producers had been stopped.
        self.last = False

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """One opening of a consumer, from its announcement to its end. An error of its library ends it."""
        self._openings += 1
        self.name = f"{self.subscription}#{self._worker}.{self._openings}"
        self._until = time.monotonic() + _RENEW_S * (0.5 + self.chance.random())
        self.last = self.clients.stopping.is_set()
        self._say("opening", subscription=self.subscription, **self.more_fields)
        try:
            yield
        except CLIENT_ERRORS as error:
            self._say("error", why=error_text(error))
            self.clients.quitting.wait(AGAIN_S)

    def opened(self, front: HasParts | None) -> None:
        """`front`: the consumer whose connections are watched; None: none are."""
        self._say("opened")
        if front is not None:
            self.clients.connections.opened(self.name, front)

    def closing(self) -> None:
        self.clients.connections.closing(self.name)
        self._say("closing")

    def closed(self) -> None:
        self._say("closed")

    @property
    def goes_on(self) -> bool:
        if self.last or self._stays:
            return not self.clients.quitting.is_set()
        return not self.clients.stopping.is_set() and time.monotonic() < self._until

    def chosen(self, messages: Sequence[Any]) -> list[Any]:
        """Choose the messages to acknowledge."""
        all_of_them = self.last or (self._stays and self.clients.stopping.is_set())
        return [one for one in messages if all_of_them or self.chance.random() < _CHOSEN]

    def waiting(self) -> float:
        """Call it before a receive: the time since which the messages that come now are delivered."""
        self.clients.connections.look(self.name)
        return time.monotonic()

    def got(self, messages: Sequence[Any], since: float) -> None:
        for where, found in by_partition(messages).items():
            items = []
            for one in found:
                try:
                    read = read_message(one)
                except Unreadable as error:
                    self._say("unreadable", place=where, id=id_of(one), why=str(error))
                else:
                    who = [read.producer, read.number, read.digest, read.key]
                    items.append([*who, *id_of(one), one.redelivery_count()])
            if items:
                self._say("got", since=since, place=where, items=items)
        if messages:
            self.clients.connections.look(self.name, 0)

    @contextlib.contextmanager
    def acknowledging(self, messages: Sequence[Any]) -> Iterator[None]:
        """Record an acknowledgement with a receipt, which is made within the context."""
        ids = {where: [id_of(one) for one in found] for where, found in by_partition(messages).items()}
        for where, found in ids.items():
            self._say("acking", place=where, ids=found)
        with self._recording_failure():
            yield
        for where, found in ids.items():
            self._say("acked", place=where, ids=found)

    @contextlib.contextmanager
    def acknowledging_up_to(self, last: Any) -> Iterator[None]:
        fields = {"place": short_name(last.topic_name()), "id": id_of(last)}
        self._say("acking_up_to", **fields)
        with self._recording_failure():
            yield
        self._say("acked_up_to", **fields)

    def acknowledging_unheard(self, messages: Sequence[Any]) -> None:
        """Record an acknowledgement that is about to be made without a receipt."""
        for where, found in by_partition(messages).items():
            self._say("acking", place=where, ids=[id_of(one) for one in found])

    def acknowledging_up_to_unheard(self, last: Any) -> None:
        self._say("acking_up_to", place=short_name(last.topic_name()), id=id_of(last))

    def nacking(self, messages: Sequence[Any]) -> None:
        for where, found in by_partition(messages).items():
            self._say("nacked", place=where, ids=[id_of(one) for one in found])

    @contextlib.contextmanager
    def _recording_failure(self) -> Iterator[None]:
        try:
            yield
        except magnetar.MagnetarException as error:
            self._say("ack_unknown", why=error_text(error))
            raise

    def _say(self, what: str, **fields: Any) -> None:
        self.clients.recorder.say(what, consumer=self.name, **fields)


def by_partition(messages: Sequence[Any]) -> dict[str, list[Any]]:
    """Group the messages by partition, in the order in which they came."""
    found: dict[str, list[Any]] = defaultdict(list)
    for one in messages:
        found[short_name(one.topic_name())].append(one)
    return found
