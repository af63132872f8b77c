"""Who a bookie is: what its disk says, held against what the metadata store says. See "Identity and start".

A disk that was wiped, swapped or decommissioned must not come back under the old name: whoever counts on the entries
that this name acknowledged would count on nothing. So a name that was decommissioned is not given out again either. Its
old process may have gone on for a while, cut off from the metadata store, and acknowledged entries of a ledger whose
maker had not heard of the decommission; an empty disk under this name would deny them.
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


def next_step(bookie_id: str, disk: BookieRecord, stored: Cookie | None, *, leaving: bool) -> Step:
    """What is to be done next.

    `disk` is empty where nothing was ever written, `stored` None where the metadata store has no such bookie.
    `leaving`: the name was marked for decommissioning, at any time.
    """
    cookie = disk.cookie if disk.HasField("cookie") else None
    if cookie is not None and cookie.bookie_id != bookie_id:
        raise ForeignDisk(
            f"the disk belongs to bookie {cookie.bookie_id!r}, not to {bookie_id!r}: start it with the "
            f"bookie_id {cookie.bookie_id!r}, or use an empty disk"
        )
    if stored is None:
        if disk.member:
            raise DecommissionedBookie(
                f"bookie {bookie_id!r} was decommissioned: its disk belonged to the cluster, but the "
                "metadata store does not know it any more. Start it with an empty disk and another "
                "bookie_id to join the cluster again"
            )
        if leaving:
            raise DecommissionedBookie(
                f"a bookie {bookie_id!r} was decommissioned, and its name can't be reused: choose another bookie_id"
            )
        return Step.MAKE if cookie is None else Step.PUBLISH
    if cookie is None:
        raise WipedBookie(
            f"the disk of bookie {bookie_id!r} is empty, but the metadata store knows that bookie: its "
            "acknowledged entries are lost. Decommission it, and start the empty disk with another "
            "bookie_id"
        )
    if cookie.instance_id != stored.instance_id:
        raise WipedBookie(
            f"the disk belongs to instance {cookie.instance_id.hex()} of bookie {bookie_id!r}, but the "
            f"metadata store knows instance {stored.instance_id.hex()}: start the bookie with its former "
            "disk, or decommission it"
        )
    return Step.START if disk.member else Step.JOIN
