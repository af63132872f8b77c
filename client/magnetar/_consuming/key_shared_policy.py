"""How a consumer of a Key_Shared subscription gets its share of the keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from magnetar._enums import KeySharedMode
from magnetar.exceptions import InvalidConfiguration
from magnetar_protos import broker_pb2
from magnetar_protos.broker_pb2 import KeySharedOptions, SlotRange
from magnetar_wire.hashing import KEY_SHARED_SLOTS

__all__ = ["ConsumerKeySharedPolicy"]

_MODES: Final = {KeySharedMode.AutoSplit: broker_pb2.AUTO_SPLIT, KeySharedMode.Sticky: broker_pb2.STICKY}


class ConsumerKeySharedPolicy:
    """How a Key_Shared subscription divides its keys among its consumers. All of them must use the same mode.

    A key has a slot, murmur3_32(key) modulo 65,536. With `AutoSplit` the broker gives each consumer a share of the
    slots. With `Sticky` each consumer declares its own, as inclusive ranges that overlap with no other consumer's:

        ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(0, 32_767)])

    Messages of a key whose slot no consumer has declared wait for one.

    With `allow_out_of_order_delivery` a key may be delivered to its new consumer while its earlier messages are still
    unacknowledged at another one.
    """

    def __init__(
        self,
        key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        if not isinstance(key_shared_mode, KeySharedMode):
            raise InvalidConfiguration(
                f"key_shared_mode = {key_shared_mode!r}: use KeySharedMode.AutoSplit or KeySharedMode.Sticky"
            )
        if key_shared_mode is KeySharedMode.Sticky and not sticky_ranges:
            raise InvalidConfiguration("KeySharedMode.Sticky needs sticky_ranges: pass at least one (first, last)")
        if key_shared_mode is KeySharedMode.AutoSplit and sticky_ranges:
            raise InvalidConfiguration("sticky_ranges have no effect with KeySharedMode.AutoSplit: use Sticky")
        self.key_shared_mode = key_shared_mode
        self.allow_out_of_order_delivery = bool(allow_out_of_order_delivery)
        self.sticky_ranges = _check_ranges(sticky_ranges or [])

    def to_wire(self) -> KeySharedOptions:
        ranges = [SlotRange(first=first, last=last) for first, last in self.sticky_ranges]
        mode = _MODES[self.key_shared_mode]
        return KeySharedOptions(mode=mode, ranges=ranges, allow_out_of_order_delivery=self.allow_out_of_order_delivery)

    def __repr__(self) -> str:
        return (
            f"ConsumerKeySharedPolicy({self.key_shared_mode}, {self.allow_out_of_order_delivery}, "
            f"{self.sticky_ranges or None})"
        )


def _check_ranges(ranges: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the ranges as they were given. Raises InvalidConfiguration if one is invalid, or overlaps with another."""
    checked = []
    if not isinstance(ranges, Iterable):
        raise InvalidConfiguration(f"sticky_ranges = {ranges!r}: use a list of ranges (first slot, last slot)")
    for one in ranges:
        if not (isinstance(one, Sequence) and len(one) == 2 and all(type(end) is int for end in one)):
            raise InvalidConfiguration(f"sticky_ranges has {one!r}: a range is (first slot, last slot)")
        first, last = one
        if not 0 <= first <= last < KEY_SHARED_SLOTS:
            raise InvalidConfiguration(
                f"sticky_ranges has ({first}, {last}): a range needs 0 <= first <= last <= {KEY_SHARED_SLOTS - 1}"
            )
        checked.append((first, last))
    for (first, last), (next_first, next_last) in pairwise(sorted(checked)):
        if next_first <= last:
            raise InvalidConfiguration(
                f"the sticky_ranges ({first}, {last}) and ({next_first}, {next_last}) overlap: a slot may be in one"
            )
    return checked
