"""Cookie validation: compares the cookie on the disk with the one in the metadata store, and creates both at first.

The steps are those of `cookie_validation_rules.py`. Each is durable before the next. A process that ends between two of
them continues there when it is restarted.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from magnetar_bookie import paths
from magnetar_bookie.errors import BookieRefused, WipedBookie
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.cookie_validation_rules import Step, next_step
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import MetadataStore
from magnetar_protos.ledger_pb2 import BookieRecord, Cookie
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness

__all__ = ["validate_cookie"]

_INSTANCE_ID_BYTES: Final = 16


async def validate_cookie(bookie: Bookie, store: MetadataStore, clock: Clock, randomness: Randomness) -> None:
    """Raise `BookieRefused` if the bookie must not start. After a `MetadataError`, call it again."""
    path = paths.cookie(bookie.bookie_id)
    await store.sync()
    stored = await compare_and_set.read(store, path)
    leaving = await store.exists(paths.leaving(bookie.bookie_id)) is not None
    step = next_step(
        bookie.bookie_id, bookie.record, _decode_cookie(stored.payload) if stored else None, leaving=leaving
    )
    if step is Step.CREATE:
        cookie = Cookie(bookie_id=bookie.bookie_id, instance_id=randomness.token(_INSTANCE_ID_BYTES))
        await bookie.store_record(_change_record(bookie.record, cookie=cookie))
    if step in (Step.CREATE, Step.PUBLISH):
        cookie = bookie.record.cookie

        def publish(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            if payload is None:
                return cookie.SerializeToString(deterministic=True)
            if _decode_cookie(payload).instance_id == cookie.instance_id:
                return compare_and_set.LEAVE
            raise WipedBookie(
                f"another disk was registered as bookie {bookie.bookie_id!r} at the same time: choose another bookie_id"
            )

        await compare_and_set.change(store, path, publish, clock=clock, randomness=randomness)
    if step is not Step.START:
        await bookie.store_record(_change_record(bookie.record, member=True))


def _decode_cookie(payload: bytes) -> Cookie:
    try:
        return Cookie.FromString(payload)
    except DecodeError as error:
        raise BookieRefused(f"the bookie's cookie in the metadata store can't be decoded: {error}") from None


def _change_record(record: BookieRecord, *, cookie: Cookie | None = None, member: bool | None = None) -> BookieRecord:
    changed = BookieRecord()
    changed.CopyFrom(record)
    if cookie is not None:
        changed.cookie.CopyFrom(cookie)
    if member is not None:
        changed.member = member
    return changed
