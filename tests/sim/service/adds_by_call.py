"""Show the adds that a broker makes by calls to the bookie of its own process to the taps of the network.

A call is no message, so its adds and answers would be invisible. Each run and each answer is reported as the equivalent
message. A call must not overtake a frame: that is checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar_bookie.in_process_adds import Answered, InProcessAdds
from magnetar_protos.frame_pb2 import Frame, Run
from magnetar_protos.ledger_pb2 import AddAnswer, AddAnswers, AddRequest, AddRun
from tests.sim.stream import SimulatedStream

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["watch_calls"]


def watch_calls(world: ServiceWorld, client: SimulatedStream, served: SimulatedStream, what: object) -> object:
    """Return the service's in-process object for the client, wrapped if adds go to it."""
    return _WatchedAdds(world, client, served, what) if isinstance(what, InProcessAdds) else what


class _WatchedAdds:
    """An `InProcessAdds`."""

    def __init__(
        self, world: ServiceWorld, client: SimulatedStream, served: SimulatedStream, adds: InProcessAdds
    ) -> None:
        self._world = world
        self._client = client
        self._served = served
        self._adds = adds

    def set_answer_callback(self, on_answer: Answered) -> None:
        bookie, broker, method = self._served.process, self._client.process, self._client.method

        def watched(ledger_id: int, first: int, count: int, status: int) -> None:
            answer = AddAnswer(ledger_id=ledger_id, first_entry_id=first, count=count, status=status)  # type: ignore[arg-type]
            message = AddAnswers(answers=[answer]).SerializeToString()
            for tap in self._world.network.taps:
                tap.message_sent(bookie, broker, method, message, served=True)
            on_answer(ledger_id, first, count, status)

        self._adds.set_answer_callback(watched)

    def can_add(self, frames: int) -> bool:
        return self._adds.can_add(frames)

    def add_run(
        self, ledger_id: int, master_key: bytes, first: int, records: Sequence[bytes], *, recovery: bool
    ) -> Sequence[int]:
        world, bookie, broker, method = self._world, self._served.process, self._client.process, self._client.method
        world.count("entries added by calls", len(records))
        world.checker.added_by_call(bookie.name, ledger_id, first, overtakes=not self._served.is_caught_up)
        frame = Frame(runs=[Run(channel=ledger_id, first=first, count=len(records))])
        request = AddRequest(runs=[AddRun(master_key=master_key, recovery=recovery)])
        request.frame.CopyFrom(frame)
        message = request.SerializeToString()
        for tap in world.network.taps:
            tap.message_arrived(broker, bookie, method, message, served=False)
        return self._adds.add_run(ledger_id, master_key, first, records, recovery=recovery)

    def commit_adds(self) -> None:
        self._adds.commit_adds()
