"""Takes, renews and ends the leases of a topic's log, by the rules of managed_ledger/lease_rules.py.

A lease is stored in the topic's node, beside the list of ledgers. So it is written only while this broker owns the
topic, every broker that opens or deletes the topic finds it, and it costs no read of its own.

Leases and trims take turns at the node, whose changes are made one at a time. A trim decides in the turn of the event
loop in which its change begins, and spares ledgers of leases that were written before. A lease that comes later waits
for that change, and a caller that reads the list afterwards finds that the ledgers are deleted. So callers take the
lease first, and read the list then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.lease_rules import MAX_PARTS, Lease
from magnetar_broker.managed_ledger.ledger_list import ListChange
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock

__all__ = ["LogLeases"]

LEASE_ID_BYTES: Final = 16
# A lease is written about once in half of its time.
_MIN_LEASE_MS: Final = 1000
_MAX_HOLDER_BYTES: Final = 256
_MAX_LEDGER_ID: Final = 2**63 - 1


class LogLeases:
    __slots__ = ("_check_open", "_clock", "_fail", "_node", "_settings")

    def __init__(
        self,
        node: TopicNode,
        settings: ManagedLedgerSettings,
        clock: Clock,
        check_open: Callable[[], object],
        fail: Callable[[TopicUnloaded], object],
    ) -> None:
        self._node = node
        self._settings = settings
        self._clock = clock
        self._check_open = check_open
        self._fail = fail

    def protects(self, ledger_id: int) -> bool:
        """Whether the ledger must not be deleted now."""
        return self._node.leases.protects(ledger_id, self._clock.monotonic())

    @property
    def any_active(self) -> bool:
        return self._node.leases.any_active(self._clock.monotonic())

    def count_from(self, at: float) -> None:
        """Count the leases from an earlier time of the monotonic clock on, at which this broker had the topic open, and
        after which nobody opened it before now."""
        self._node.leases.count_from(at)

    @property
    def has_lapsed(self) -> bool:
        """Whether a lease was not renewed in time, and is still in the topic's node."""
        return self._node.leases.has_lapsed(self._clock.monotonic())

    @property
    def lapsed(self) -> int:
        """The number of leases that were not renewed in time since the topic was opened."""
        return self._node.leases.lapsed

    def list_active(self) -> list[tuple[Lease, float]]:
        """Return each active lease, and the seconds that are left of it."""
        now = self._clock.monotonic()
        return [(lease, lease.until - now) for lease in self._node.leases.list_active(now)]

    async def take_lease(
        self, lease_id: bytes, from_ledger_id: int, lease_ms: int, holder: str, read_id: bytes = b""
    ) -> int:
        """Protect the ledgers of the list from this one on, for at least half of the time, durably.

        A lease with the same id is moved. With `read_id` it is shared, and protects what its other reads need, too.
        Return the wall clock time at which it ends, for display.

        Raises `BrokerError`: INVALID_ARGUMENT, TOO_MANY_REQUESTS, METADATA_ERROR, and `TopicUnloaded`. If this is
        cancelled, the lease may have been taken.
        """
        self._check(lease_id, lease_ms, read_id)
        if not 0 <= from_ledger_id <= _MAX_LEDGER_ID:
            raise _invalid(f"a lease can't begin at ledger {from_ledger_id}: use 0 … {_MAX_LEDGER_ID}")
        if len(holder.encode(errors="replace")) > _MAX_HOLDER_BYTES:
            raise _invalid(
                f"the name of the lease's holder {holder[:20]!r}… is too long: use at most {_MAX_HOLDER_BYTES} bytes"
            )
        self._check_open()
        leases = self._node.leases
        if (found := leases.renew(lease_id, from_ledger_id, lease_ms, self._now, read_id)) is None:
            await self._node.wait_until_unchanged()
            self._check_open()
            found = leases.renew(lease_id, from_ledger_id, lease_ms, self._now, read_id)
        if found is not None:
            return self._ends_at_ms(found)
        self._check_number(lease_id, shared=bool(read_id))
        now_ms = self._clock.time_ms()
        return await self._write(Lease(lease_id, from_ledger_id, lease_ms, holder, now_ms, read_id=read_id))

    async def renew_lease(self, lease_id: bytes, lease_ms: int, read_id: bytes = b"") -> int:
        """Renew a lease, without moving it. Raises as `take_lease`, and NOT_FOUND if it has ended or never was."""
        self._check(lease_id, lease_ms, read_id)
        self._check_open()
        leases = self._node.leases
        if (found := leases.renew(lease_id, None, lease_ms, self._now, read_id)) is None:
            await self._node.wait_until_unchanged()
            self._check_open()
            found = leases.renew(lease_id, None, lease_ms, self._now, read_id)
        if found is not None:
            return self._ends_at_ms(found)
        lease = leases.find(lease_id, self._now)
        from_ledger_id = leases.find_first_ledger(lease_id, read_id, self._now)
        if lease is None or from_ledger_id is None:
            raise BrokerError(
                ErrorCode.NOT_FOUND,
                f"{self._node.name} has no lease {lease_id.hex()}: it has ended, and its messages may be "
                "deleted; plan the read again",
            )
        now_ms = self._clock.time_ms()
        return await self._write(Lease(lease_id, from_ledger_id, lease_ms, lease.holder, now_ms, read_id=read_id))

    def finish_part(self, lease_id: bytes, read_id: bytes, part: int, parts: int) -> None:
        """Note that a part of a read with `parts` parts is finished. Raises `BrokerError`: INVALID_ARGUMENT."""
        if not 0 <= part < parts <= MAX_PARTS:
            raise _invalid(f"invalid part {part} of {parts}: a read has 1 … {MAX_PARTS} parts, counted from 0")
        self._check_open()
        self._node.leases.finish_part(lease_id, read_id, part, parts, self._now)

    async def end_lease(self, lease_id: bytes, read_id: bytes = b"") -> None:
        """End a lease, also if this raises METADATA_ERROR. A lease that is not found has ended. With `read_id` that
        read of it ends, and ledgers that other reads need stay protected."""
        self._check_open()
        await self._node.wait_until_unchanged()
        self._check_open()
        if self._node.leases.end_lease(lease_id, read_id, self._now):
            await self._change(ListChange())

    async def remove_lapsed(self) -> None:
        """Remove leases that were not renewed in time. Raises as `end_lease`."""
        self._check_open()
        await self._node.wait_until_unchanged()
        self._check_open()
        if self.has_lapsed:
            await self._change(ListChange())

    async def _write(self, lease: Lease) -> int:
        await self._change(ListChange(lease=lease))
        if (written := self._renew_as_written(lease)) is None:
            raise BrokerError(
                ErrorCode.METADATA_ERROR,
                f"writing a lease of {self._node.name} took more than half of its {lease.lease_ms} ms: try "
                "again, or request a longer lease",
            )
        return self._ends_at_ms(written)

    async def _change(self, change: ListChange) -> None:
        """Begin the change in this turn of the event loop, unless another one is in flight."""
        try:
            await self._node.change(change)
        except TopicUnloaded as error:
            self._fail(error)
            raise
        except MetadataError as error:
            text = f"the leases of {self._node.name} can't be changed now: {error}"
            raise BrokerError(ErrorCode.METADATA_ERROR, text) from error

    def _renew_as_written(self, lease: Lease) -> Lease | None:
        return self._node.leases.renew(lease.lease_id, None, lease.lease_ms, self._now, lease.read_id)

    def _check_number(self, lease_id: bytes, *, shared: bool) -> None:
        """Raise TOO_MANY_REQUESTS if there is the maximum number of other leases. Shared ones may be half of that, so
        that streams, which have a lease each, find the other half.

        An active lease can be written again, however many there are: a broker with a higher bound may have created the
        topic."""
        found = self._node.leases.find(lease_id, self._now)
        if found is not None and (found.shared or not shared):
            return
        others = [one for one in self._node.leases.list_active(self._now) if one.lease_id != lease_id]
        most = self._settings.managed_ledger_max_leases_per_topic
        others_shared = sum(one.shared for one in others)
        if len(others) < most and not (shared and others_shared >= (most + 1) // 2):
            return
        raise BrokerError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"{self._node.name} has {len(others)} leases of readers, {others_shared} of them shared by "
            f"batch reads, and managed_ledger_max_leases_per_topic allows {most}, half of them shared: wait "
            "until one ends, or end one whose reader has stopped (internal_stats shows them, `magnetar "
            "topics end-lease` ends them)",
        )

    def _check(self, lease_id: bytes, lease_ms: int, read_id: bytes) -> None:
        if len(read_id) not in (0, LEASE_ID_BYTES):
            raise _invalid(f"the id of a read has {len(read_id)} bytes: use {LEASE_ID_BYTES} bytes, drawn at random")
        if len(lease_id) != LEASE_ID_BYTES:
            raise _invalid(f"the id of a lease has {len(lease_id)} bytes: use {LEASE_ID_BYTES} bytes, drawn at random")
        most = self._settings.max_lease_ms
        if not _MIN_LEASE_MS <= lease_ms <= most:
            raise _invalid(
                f"a lease can't last {lease_ms} ms: use {_MIN_LEASE_MS} … {most} ms "
                "(managed_ledger_max_lease_minutes), and renew it"
            )

    @property
    def _now(self) -> float:
        return self._clock.monotonic()

    def _ends_at_ms(self, lease: Lease) -> int:
        return self._clock.time_ms() + max(0, int((lease.sure_until - self._now) * 1000))


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_ARGUMENT, text)
