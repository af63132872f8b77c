"""The base of models that check each delivery of a subscription to its consumers."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer, DeliveryRun
from tests.unit.broker.recording_sink import RecordingSink

__all__ = ["CheckingSink", "DeliveryModel"]


class DeliveryModel:
    def __init__(self) -> None:
        self.consumers: dict[Consumer, CheckingSink] = {}
        self._errors: list[AssertionError] = []

    def delivered(self, sink: CheckingSink, consumer: Consumer, position: Position, count: int, bits: int) -> None:
        """Check an entry with this redelivery count and these acknowledged messages."""
        raise NotImplementedError

    def failed(self, error: AssertionError) -> None:
        self._errors.append(error)

    def check_deliveries(self) -> None:
        """Raise the first error: in a delivery the subscription would log it, and go on."""
        if self._errors:
            raise self._errors[0]


class CheckingSink(RecordingSink):
    def __init__(self, model: DeliveryModel) -> None:
        super().__init__()
        self._model = model

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        assert self.consumer is not None
        before = len(self.delivered)
        super().deliver(runs)
        for position, epoch, count, bits in self.delivered[before:]:
            try:
                assert self.consumer in self._model.consumers, "it has left"
                assert epoch == self.consumer.epoch
                self._model.delivered(self, self.consumer, position, count, bits)
            except AssertionError as error:
                self._model.failed(error)
