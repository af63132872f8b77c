"""Rows of the table of admin calls: bulk reads of a log.

They are served on gRPC only: their plans name bookies, which the client then reads by gRPC itself.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_protos import reading_pb2 as reading
from magnetar_wire.admin.call import AdminCall, Method, Role, Scope

__all__ = ["READING"]

_ANY: Final = Scope.ANY_BROKER
_TOPIC: Final = Scope.TOPIC
_CONSUME: Final = Role.CONSUME

# fmt: off
# All of these may be repeated: a plan's lease is the same one, and a progress subscription never moves back.
READING: Final = (
    AdminCall("find_position", reading.FindPositionRequest, reading.FindPositionAnswer, _TOPIC, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.find_position(log: str, start: StartPoint) -> LogPosition",
            "Return the position of `start` in the log, or the next one that the log has.",
            fields={"topic": "log", "at": "start"},
        ),
    )),
    AdminCall("plan", reading.PlanRequest, reading.PlanAnswer, _TOPIC, _CONSUME, idempotent=True, methods=(
        Method(
            'reading.plan(log: str, *, incarnation: str = "", start: MessagePosition, '
            'stop: MessagePosition | None = None, max_messages: int = 0, max_bytes: int = 0, '
            'lease_ms: int = 0, lease_id: bytes = b"", holder: str = "", '
            'listener_name: str = "", before_ledgers: int = 0, before_bytes: int = 0, fresh: bool = False, '
            'read_id: bytes = b"") -> Plan',
            "Return what lies between the two positions, up to the limits, and which bookies store it. With `lease_ms` "
            "it is retained for that time. The plan may end before `stop`: plan on from its own `stop`. A plan without "
            "pieces that ends where it begins says that there is nothing more now.\n\n"
            "A plan ends before the message with which it would have more than `max_messages`, and before the entry "
            "with which it would have more than `max_bytes`, unless that is its first.",
            fields={"topic": "log", "listener_name": "listener_name or self._calls.listener_name"},
        ),
    )),
    AdminCall("renew_lease", reading.RenewLeaseRequest, pb.Done, _TOPIC, _CONSUME, idempotent=True, methods=(
        Method(
            "reading.renew_lease(log: str, incarnation: str, lease_id: bytes, lease_ms: int, *, "
            'read_id: bytes = b"") -> None',
            "Let the lease last for this time from now on; 0 ends it. One that has ended is refused with `NotFound`."
            "\n\n"
            "`read_id`: which of the reads that share the lease; without it a lease ends for all of them.",
            fields={"topic": "log"},
        ),
        Method(
            'reading.end_lease(log: str, lease_id: bytes, *, read_id: bytes = b"") -> None',
            "End a lease, so that the messages that it retains can be deleted, even if a reader still reads them. A "
            "lease that does not exist has ended.",
            fields={"topic": "log"},
        ),
    )),
    AdminCall("finish_part", reading.FinishPartRequest, pb.Done, _TOPIC, _CONSUME, idempotent=True, methods=(
        Method(
            "reading.finish_part(log: str, lease_id: bytes, read_id: bytes, part: int, parts: int) -> None",
            "Report that one of `parts` parts of the read is finished.\n\n"
            "When all are, the read's messages are retained for a quarter of the lease's time more, and for half of it "
            "from each renewal on.",
            fields={"topic": "log"},
        ),
    )),
    AdminCall("advance_progress", reading.AdvanceProgressRequest, reading.AdvanceProgressAnswer, _TOPIC, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.advance_progress(log: str, incarnation: str, subscription: str, to: MessagePosition, *, "
            'only_make: bool = False, owner: str = "", owner_name: str = "") -> MessagePosition',
            "Acknowledge everything before `to` on a progress subscription, which is created if it does not exist. It "
            "never moves back, so the call may be repeated. Return the position of the first entry that is not "
            "acknowledged whole.\n\n"
            "`only_make`: create the subscription at `to`. One that has an owner stays where it is; one that has none "
            "is moved back to `to` if it is ahead of that, also without `only_make` if an `owner` is given.\n"
            "`owner`: the id of the reader whose progress it is, drawn at random. The first one becomes the "
            "subscription's.\n"
            "`owner_name`: a description of the owner for people.\n\n"
            "Raises `ConsumerBusy` if the subscription has another owner, and `NotAllowedError` if it is not a "
            "progress subscription: one that consumers or administrators created is refused whether or not it has "
            "consumers.",
            result="position",
            fields={"topic": "log"},
        ),
    )),
    AdminCall("hold_namespace", reading.HoldNamespaceRequest, reading.HoldNamespaceAnswer, _ANY, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.hold_namespace(namespace: str, name_prefix: str, lease_id: bytes, lease_ms: int, *, "
            'holder: str = "") -> bool',
            "Take or renew a lease on the topics that will be created in the namespace with names that begin with the "
            "prefix. Each of them gets a lease with this id, for `lease_ms`, from its first message on. Return whether "
            "there was no such lease: topics created until then have none by it.",
            result="taken",
        ),
        Method(
            "reading.end_namespace_lease(namespace: str, lease_id: bytes) -> None",
            "End a lease on a namespace. Leases on topics stay. A lease that does not exist has ended.",
        ),
    )),
    AdminCall("namespace_leases", reading.NamespaceLeasesRequest, reading.NamespaceLeasesAnswer, _ANY, _CONSUME,
              idempotent=True, methods=(
        Method(
            "reading.namespace_leases(namespace: str) -> list[NamespaceLease]",
            "List the leases on a namespace.",
            result="leases",
        ),
    )),
)
# fmt: on
