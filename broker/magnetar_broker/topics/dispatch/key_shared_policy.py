"""How a consumer wants to share a Key_Shared subscription: checked, as the request to open it declares it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode, KeySharedMode, KeySharedOptions
from magnetar_wire.hashing import KEY_SHARED_SLOTS

__all__ = ["KeySharedPolicy", "SlotRange", "read_key_shared_options"]

# The first and the last slot.
SlotRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    # The consumer requests its slots; otherwise the broker divides all among the consumers.
    is_sticky: bool = False
    allow_out_of_order_delivery: bool = False
    # Sticky: the consumer's slots, in order; no slot is in two ranges.
    ranges: tuple[SlotRange, ...] = ()

    @property
    def mode(self) -> str:
        return KeySharedMode.Name(KeySharedMode.STICKY if self.is_sticky else KeySharedMode.AUTO_SPLIT)

    def fits(self, other: KeySharedPolicy) -> bool:
        """Return whether consumers with these policies may share a subscription."""
        return (self.is_sticky, self.allow_out_of_order_delivery) == (
            other.is_sticky,
            other.allow_out_of_order_delivery,
        )


def read_key_shared_options(options: KeySharedOptions) -> KeySharedPolicy:
    """Raises `BrokerError` for a mode that is unknown, and for ranges that are missing or not valid."""
    if options.mode not in KeySharedMode.values():
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"the mode {options.mode} of a Key_Shared subscription is unknown: use AUTO_SPLIT (0) or STICKY (1)",
        )
    is_sticky = options.mode == KeySharedMode.STICKY
    # As in Pulsar, ranges are ignored if the broker divides the slots.
    ranges = _check_ranges(options) if is_sticky else ()
    return KeySharedPolicy(is_sticky, options.allow_out_of_order_delivery, ranges)


def _check_ranges(options: KeySharedOptions) -> tuple[SlotRange, ...]:
    if len(options.ranges) > KEY_SHARED_SLOTS:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT,
            f"a consumer requests {len(options.ranges):,} ranges of slots, and there are {KEY_SHARED_SLOTS:,} slots",
        )
    ranges = sorted((one.first, one.last) for one in options.ranges)
    if not ranges:
        raise BrokerError(
            ErrorCode.INVALID_ARGUMENT, "a consumer with the Key_Shared mode STICKY needs at least one range of slots"
        )
    for first, last in ranges:
        if not first <= last < KEY_SHARED_SLOTS:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"the range of slots {first} … {last} is not valid: the first slot is at most the last one, and the "
                f"last one at most {KEY_SHARED_SLOTS - 1:,}",
            )
    for before, after in pairwise(ranges):
        if after[0] <= before[1]:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"the ranges of slots {before[0]} … {before[1]} and {after[0]} … {after[1]} of one consumer overlap",
            )
    return tuple(ranges)
