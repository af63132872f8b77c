"""Reasons why subscriptions deliver nothing, in the responses of admin calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from magnetar_protos import admin_pb2 as pb
from magnetar_wire.delivery_reasons import REASONS, DeliveryReason

__all__ = ["describe_reason", "merge_reasons"]

_ORDER: Final = {code: number for number, code in enumerate(REASONS)}


def describe_reason(reason: DeliveryReason) -> pb.DeliveryReason:
    return pb.DeliveryReason(
        code=reason.code,
        text=reason.text,
        action=reason.action,
        facts={name: str(value) for name, value in reason.facts.items()},
        normal=reason.kind.is_normal,
    )


def merge_reasons(parts: Iterable[tuple[int, Sequence[pb.DeliveryReason]]]) -> list[pb.DeliveryReason]:
    """Return the reasons of a partitioned topic, from the numbers and the reasons of its partitions: each once, with
    the text of the first partition that has it, which the text names if others differ. What needs something to be done
    comes first."""
    merged: dict[str, pb.DeliveryReason] = {}
    differing: set[str] = set()
    for partition, reasons in parts:
        for reason in reasons:
            one = merged.get(reason.code)
            if one is None:
                one = merged[reason.code] = pb.DeliveryReason()
                one.CopyFrom(reason)
            elif one.text != reason.text:
                differing.add(reason.code)
            one.partitions.append(partition)
    for code in differing:
        one = merged[code]
        one.text = f"in partition {one.partitions[0]}, for example, {one.text}"
    return sorted(merged.values(), key=_rank)


def _rank(reason: pb.DeliveryReason) -> tuple[int, int]:
    """Sort by the weight of the reasons, and then in the order of the table."""
    kind = REASONS.get(reason.code)  # another version of the broker may know more
    if kind is not None and kind.is_note:
        return 2, _ORDER[kind.code]
    return int(reason.normal), _ORDER.get(reason.code, len(_ORDER))
