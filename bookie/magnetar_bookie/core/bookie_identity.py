"""Who a bookie is: what its disk says, held against what the metadata store says. See "Identity and start".

A disk that was wiped, swapped or decommissioned must not come back under the old name: whoever counts on the entries
that this name acknowledged would count on nothing.
"""

from __future__ import annotations

import enum

from magnetar_bookie.errors import DecommissionedBookie, ForeignDisk, WipedBookie
from magnetar_protos.ledger_pb2 import BookieRecord, Cookie

__all__ = ["Step", "next_step"]


class Step(enum.Enum):
    """What is to be done next; the ones after it follow."""

    MAKE = "write a new cookie to the disk"
    PUBLISH = "write the disk's cookie to the metadata store"
    JOIN = 'write "member" to the disk'
    START = "start"


def next_step(bookie_id: str, disk: BookieRecord, stored: Cookie | None) -> Step:
    """`disk` is empty where nothing was ever written, `stored` None where the metadata store has no such bookie."""
    cookie = disk.cookie if disk.HasField("cookie") else None
    if cookie is not None and cookie.bookie_id != bookie_id:
        raise ForeignDisk(
            f"the disk belongs to bookie {cookie.bookie_id!r}, and this is to be {bookie_id!r}: start it under its own "
            "name, or give it an empty disk"
        )
    if stored is None:
        if cookie is None:
            return Step.MAKE
        if disk.member:
            raise DecommissionedBookie(
                f"bookie {bookie_id!r} was decommissioned: its disk says that it was a member, and the metadata store "
                "does not know it. To have it join anew, give it an empty disk"
            )
        return Step.PUBLISH
    if cookie is None:
        raise WipedBookie(
            f"the metadata store knows bookie {bookie_id!r}, and its disk is empty: entries that it acknowledged are "
            "lost. Decommission it, and it can join anew"
        )
    if cookie.instance_id != stored.instance_id:
        raise WipedBookie(
            f"the metadata store knows bookie {bookie_id!r} as instance {stored.instance_id.hex()}, and its disk is "
            f"instance {cookie.instance_id.hex()}'s: start it on the disk that it had, or decommission it"
        )
    return Step.START if disk.member else Step.JOIN
