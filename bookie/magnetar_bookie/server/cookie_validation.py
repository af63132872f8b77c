"""A bookie makes sure of who it is, before it serves: the steps of server/cookie_validation_rules.py, one by one.

Each step is durable before the next. A process that ends between two of them goes on there when it starts again.
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
    """Raises `BookieRefused`. Where the store gives no answer (`MetadataError`) it is to be called again."""
    path = paths.cookie(bookie.bookie_id)
    await store.sync()
    stored = await compare_and_set.read(store, path)
    leaving = await store.exists(paths.leaving(bookie.bookie_id)) is not None
    step = next_step(bookie.bookie_id, bookie.record, _cookie(stored.payload) if stored else None, leaving=leaving)
    if step is Step.MAKE:
        cookie = Cookie(bookie_id=bookie.bookie_id, instance_id=randomness.token(_INSTANCE_ID_BYTES))
        await bookie.write_record(_with(bookie.record, cookie=cookie))
    if step in (Step.MAKE, Step.PUBLISH):
        cookie = bookie.record.cookie

        def published(payload: bytes | None) -> bytes | compare_and_set.UpdateAction:
            if payload is None:
                return cookie.SerializeToString(deterministic=True)
            if _cookie(payload).instance_id == cookie.instance_id:
                return compare_and_set.LEAVE
            raise WipedBookie(
                f"another disk was registered as bookie {bookie.bookie_id!r} at the same time: choose another bookie_id"
            )

        await compare_and_set.change(store, path, published, clock=clock, randomness=randomness)
    if step is not Step.START:
        await bookie.write_record(_with(bookie.record, member=True))


def _cookie(payload: bytes) -> Cookie:
    try:
        return Cookie.FromString(payload)
    except DecodeError as error:
        raise BookieRefused(f"the bookie's cookie in the metadata store can't be decoded: {error}") from None


def _with(record: BookieRecord, *, cookie: Cookie | None = None, member: bool | None = None) -> BookieRecord:
    changed = BookieRecord()
    changed.CopyFrom(record)
    if cookie is not None:
        changed.cookie.CopyFrom(cookie)
    if member is not None:
        changed.member = member
    return changed
