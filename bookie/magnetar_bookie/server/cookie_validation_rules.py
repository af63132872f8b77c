"""The rules of cookie validation: whether a disk may start under a bookie id. See "Identity and start" in protocol.md.

A disk that was wiped, replaced or decommissioned must not start under its former bookie id: the entries that were
acknowledged under this id would be missing. The id of a decommissioned bookie isn't reused either. Its old process may
have been cut off from the metadata store, and have acknowledged entries of a ledger whose writer didn't know of the
decommission yet. An empty disk under this id would answer that it never had them.
"""

from __future__ import annotations

import enum

from magnetar_bookie.errors import DecommissionedBookie, ForeignDisk, WipedBookie
from magnetar_protos.ledger_pb2 import BookieRecord, Cookie

__all__ = ["Step", "next_step"]


class Step(enum.Enum):
    """The next step of a start. All steps after it follow."""

    CREATE = "write a new cookie to the disk"
    PUBLISH = "write the disk's cookie to the metadata store"
    JOIN = 'write "member" to the disk'
    START = "start"


def next_step(bookie_id: str, disk: BookieRecord, stored: Cookie | None, *, leaving: bool) -> Step:
    """Return the next step, or raise a `BookieRefused`.

    `disk` is the bookie's own record, which is empty on a new disk. `stored` is the cookie in the metadata store.
    `leaving`: the metadata store has a mark that this bookie is being decommissioned, or was.
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
        return Step.CREATE if cookie is None else Step.PUBLISH
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
