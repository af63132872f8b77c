"""A client of `produce` streams that sends what a test sets, however wrong, and records the answers."""

from __future__ import annotations

import asyncio
from typing import Any

from magnetar_protos.broker_pb2 import (
    CloseProducer,
    EntryRefused,
    OpenProducer,
    ProduceAnswer,
    ProducerEnded,
    ProduceRequest,
    ProducerOpened,
)
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_protos.frame_pb2 import Frame, Run
from magnetar_wire.entry import encode_entry
from magnetar_wire.transport import Stream, TransportError
from tests.running import until

__all__ = ["ProduceClient", "entry"]


def entry(sequence_id: int, payload: bytes = b"x", producer: str = "p", **metadata: Any) -> bytes:
    made = MessageMetadata(producer_name=producer, sequence_id=sequence_id, publish_time=1, **metadata)
    return encode_entry(made, payload)


class ProduceClient:
    """One stream; its answers are in lists, and receipts are spread out: (producer, number) → position."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.opened: dict[int, ProducerOpened] = {}
        self.receipts: dict[tuple[int, int], tuple[int, int]] = {}
        self.refused: list[EntryRefused] = []
        self.ended: dict[int, ProducerEnded] = {}
        # By producer: whether it was paused. It goes on all the same.
        self.paused: dict[int, bool] = {}
        self.messages = 0
        self.ranges = 0
        self.error: TransportError | None = None
        self.over = False
        self.reading = asyncio.create_task(self.read())

    async def read(self) -> None:
        try:
            while (message := await self.stream.receive()) is not None:
                self._take(ProduceAnswer.FromString(message))
        except TransportError as error:
            self.error = error
        self.over = True

    def _take(self, answer: ProduceAnswer) -> None:
        self.messages += 1
        for opened in answer.opened:
            assert opened.producer_id not in self.opened
            self.opened[opened.producer_id] = opened
        for receipt in answer.receipts:
            self.ranges += 1
            assert receipt.producer_id in self.opened
            assert receipt.producer_id not in self.ended
            for at in range(receipt.count):
                # A duplicate has none.
                position = (receipt.ledger_id, receipt.first_entry_id + at if receipt.ledger_id >= 0 else -1)
                assert self.receipts.setdefault((receipt.producer_id, receipt.first + at), position) is position
        self.refused += answer.refused
        for ended in answer.ended:
            assert ended.producer_id not in self.ended
            self.ended[ended.producer_id] = ended
        for flow in answer.flow:
            assert flow.producer_id in self.opened
            assert flow.producer_id not in self.ended
            self.paused[flow.producer_id] = flow.paused

    async def send(self, *parts: OpenProducer | CloseProducer | tuple[int, int, list[bytes]]) -> None:
        request = ProduceRequest()
        for part in parts:
            if isinstance(part, OpenProducer):
                request.open.append(part)
            elif isinstance(part, CloseProducer):
                request.close.append(part)
            else:
                channel, first, entries = part
                request.frame.MergeFrom(
                    Frame(runs=[Run(channel=channel, first=first, count=len(entries))], entries=entries)
                )
        await self.stream.send(request.SerializeToString())

    async def open(self, producer_id: int, name: str = "p", topic: str = "t", **fields: Any) -> ProducerOpened:
        await self.send(OpenProducer(producer_id=producer_id, topic=topic, producer_name=name, **fields))
        await until(lambda: producer_id in self.opened or producer_id in self.ended, "it is answered")
        assert producer_id in self.opened, self.ended
        return self.opened[producer_id]

    async def code(self, producer_id: int) -> int:
        await until(lambda: producer_id in self.ended or self.over, "it ends")
        return self.ended[producer_id].problem.code
