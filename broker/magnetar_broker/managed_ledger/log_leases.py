"""Takes, renews and ends the leases of a topic's log, by the rules of managed_ledger/lease_rules.py.

A lease stands in the topic's node, with the list that it keeps ledgers in. So it is written on condition that the topic
is still this life's, it is there for whoever opens or deletes the topic to see, and it costs no read of its own.

Against trims it is decided by turns at the node: changes of it are made one at a time, and a trim looks at what is held
in the turn of the loop in which its change begins. A lease that was written before is spared. One that comes later
waits for that change, and who then looks at the list finds the ledgers gone. Hence: take first, then look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.lease_reads import MAX_PARTS
from magnetar_broker.managed_ledger.lease_rules import Lease
from magnetar_broker.managed_ledger.ledger_list import ListChange
from magnetar_broker.managed_ledger.topic_node import TopicNode
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock

__all__ = ["LogLeases"]

LEASE_ID_BYTES: Final = 16
# A lease is written about once in half its time.
_MIN_LEASE_MS: Final = 1000
_MAX_HOLDER_BYTES: Final = 256
_MAX_LEDGER_ID: Final = 2**63 - 1


class LogLeases:
    __slots__ = ("_check_open", "_clock", "_give_up", "_node", "_settings")

    def __init__(
        self,
        node: TopicNode,
        settings: ManagedLedgerSettings,
        clock: Clock,
        check_open: Callable[[], object],
        give_up: Callable[[TopicUnloaded], object],
    ) -> None:
        self._node = node
        self._settings = settings
        self._clock = clock
        self._check_open = check_open
        self._give_up = give_up

    # ── what there is ──

    def hold(self, ledger_id: int) -> bool:
        """The ledger must not be deleted now."""
        return self._node.leases.holds(ledger_id, self._clock.monotonic())

    @property
    def any_stands(self) -> bool:
        return self._node.leases.any_stands(self._clock.monotonic())

    @property
    def any_lapsed(self) -> bool:
        """One was not renewed in time, and stands in the topic's node still."""
        return self._node.leases.any_lapsed(self._clock.monotonic())

    @property
    def lapsed(self) -> int:
        """How many were not renewed in time, in this life of the topic."""
        return self._node.leases.lapsed

    def standing(self) -> list[tuple[Lease, float]]:
        """Those that have not ended, each with the seconds that are left of it."""
        now = self._clock.monotonic()
        return [(lease, lease.until - now) for lease in self._node.leases.standing(now)]

    # ── what is done ──

    async def take(self, lease_id: bytes, from_ledger_id: int, lease_ms: int, holder: str, read_id: bytes = b"") -> int:
        """From now on all ledgers of the list from this one on are kept, for at least half of that time; the lease is
        durable. One of the same id is moved there; with `read_id` it is shared, and holds what its other reads need,
        too. Returns when it ends, by the wall clock, for people.

        Raises `BrokerError`: INVALID_ARGUMENT, TOO_MANY_REQUESTS, METADATA_ERROR, and `TopicUnloaded`. Cancelled, it
        may have been taken.
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
        if (found := leases.renewed(lease_id, from_ledger_id, lease_ms, self._now, read_id)) is None:
            await self._node.settled()
            self._check_open()
            found = leases.renewed(lease_id, from_ledger_id, lease_ms, self._now, read_id)
        if found is not None:
            return self._ends_at_ms(found)
        self._check_number(lease_id, shared=bool(read_id))
        now_ms = self._clock.time_ms()
        return await self._write(Lease(lease_id, from_ledger_id, lease_ms, holder, now_ms, read_id=read_id))

    async def renew(self, lease_id: bytes, lease_ms: int, read_id: bytes = b"") -> int:
        """As `take`, where it stands. Raises NOT_FOUND, too: it is over, or never was."""
        self._check(lease_id, lease_ms, read_id)
        self._check_open()
        leases = self._node.leases
        if (found := leases.renewed(lease_id, None, lease_ms, self._now, read_id)) is None:
            await self._node.settled()
            self._check_open()
            found = leases.renewed(lease_id, None, lease_ms, self._now, read_id)
        if found is not None:
            return self._ends_at_ms(found)
        lease = leases.get(lease_id, self._now)
        from_ledger_id = leases.from_ledger_id(lease_id, read_id, self._now)
        if lease is None or from_ledger_id is None:
            raise BrokerError(
                ErrorCode.NOT_FOUND,
                f"{self._node.name} has no lease {lease_id.hex()}: it has ended, and its messages may be "
                "deleted; plan the read again",
            )
        now_ms = self._clock.time_ms()
        return await self._write(Lease(lease_id, from_ledger_id, lease_ms, lease.holder, now_ms, read_id=read_id))

    def finish_part(self, lease_id: bytes, read_id: bytes, part: int, parts: int) -> None:
        """One of so many parts of the read is finished. Raises `BrokerError`: INVALID_ARGUMENT."""
        if not 0 <= part < parts <= MAX_PARTS:
            raise _invalid(f"invalid part {part} of {parts}: a read has 1 … {MAX_PARTS} parts, counted from 0")
        self._check_open()
        self._node.leases.finish_part(lease_id, read_id, part, parts, self._now)

    async def end(self, lease_id: bytes, read_id: bytes = b"") -> None:
        """It holds nothing any more, also where this raises METADATA_ERROR; one that is not there has ended. With
        `read_id` that read of it ends, and what others need is held on."""
        self._check_open()
        await self._node.settled()
        self._check_open()
        if self._node.leases.end(lease_id, read_id, self._now):
            await self._change(ListChange())

    async def remove_lapsed(self) -> None:
        """Removes leases that were not renewed in time. Raises what `end` raises."""
        self._check_open()
        await self._node.settled()
        self._check_open()
        if self.any_lapsed:
            await self._change(ListChange())

    async def _write(self, lease: Lease) -> int:
        await self._change(ListChange(lease=lease))
        if (written := self._renewed_as_written(lease)) is None:
            raise BrokerError(
                ErrorCode.METADATA_ERROR,
                f"writing a lease of {self._node.name} took more than half of its {lease.lease_ms} ms: try "
                "again, or request a longer lease",
            )
        return self._ends_at_ms(written)

    async def _change(self, change: ListChange) -> None:
        """In the turn of the loop in which it was decided on, unless another one is under way."""
        try:
            await self._node.change(change)
        except TopicUnloaded as error:
            self._give_up(error)
            raise
        except MetadataError as error:
            text = f"the leases of {self._node.name} can't be changed now: {error}"
            raise BrokerError(ErrorCode.METADATA_ERROR, text) from error

    def _renewed_as_written(self, lease: Lease) -> Lease | None:
        return self._node.leases.renewed(lease.lease_id, None, lease.lease_ms, self._now, lease.read_id)

    def _check_number(self, lease_id: bytes, *, shared: bool) -> None:
        """Raises TOO_MANY_REQUESTS if there are as many others as there may be. Those that several reads share have
        half of the bound at most, so that streams, which have one each, find the other half.

        A lease that stands can be written again however many there are: a broker with a higher bound may have made the
        topic."""
        found = self._node.leases.get(lease_id, self._now)
        if found is not None and (found.shared or not shared):
            return
        others = [one for one in self._node.leases.standing(self._now) if one.lease_id != lease_id]
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
