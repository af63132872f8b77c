"""The requests of consumers, as they are put into a stream's messages."""

from __future__ import annotations

from magnetar._acknowledging.pending_acks import EpochTracker, PendingAcks
from magnetar._consuming.consume_stream import RequestBuilder
from magnetar._consuming.consumer_requests import OutboundRequests, PendingRequests
from magnetar._message import DeliveryEpoch
from magnetar_protos.broker_pb2 import ConsumeRequest


def parts_of(request: ConsumeRequest) -> int:
    """As a broker counts them."""
    parts = len(request.open) + len(request.seek) + len(request.flow) + len(request.unsubscribe) + len(request.close)
    parts += sum(1 + len(one.entries) + len(one.messages) for one in request.acknowledge)
    return parts + sum(1 + len(one.entries) for one in request.redeliver)


async def test_a_request_never_has_more_parts_than_a_broker_accepts() -> None:
    """CON-3, CON-5: however much is acknowledged and redelivered at a time."""
    consumers = []
    for _ in range(2):
        acks, epochs = PendingAcks(), EpochTracker()
        epochs.start_opening(1, 0)
        epoch = DeliveryEpoch(None, 1, 1)
        for number in range(30_000):
            acks.add_entry(epoch, 1, 2 * number)
            acks.add_message(epoch, 2, 2 * number, 3, 9)
        outbound = OutboundRequests(acks, PendingRequests())
        outbound.redeliver = dict.fromkeys((3, 2 * number) for number in range(40_000))
        outbound.permits = 5
        consumers.append((outbound, epochs))
    acknowledged: set[tuple[int, int]] = set()
    again: list[int] = []
    waiting = dict(enumerate(consumers))
    while waiting:
        builder = RequestBuilder()
        for consumer_id, (outbound, epochs) in list(waiting.items()):
            if builder.is_full:
                break
            if outbound.fill(builder, consumer_id, epochs):
                del waiting[consumer_id]
        request = builder.request
        assert 0 < parts_of(request) <= 20_000
        assert request.ByteSize() < 2_000_000
        for one in request.acknowledge:
            assert not [redeliver for redeliver in again if redeliver == one.consumer_id], "before what comes again"
            acknowledged |= {(one.consumer_id, range_.first_entry_id) for range_ in one.entries}
            acknowledged |= {(one.consumer_id, -1 - batch.entry_id) for batch in one.messages}
        again += [one.consumer_id for one in request.redeliver for _ in one.entries]
    assert len(acknowledged) == 2 * 60_000
    assert len(again) == 2 * 40_000
