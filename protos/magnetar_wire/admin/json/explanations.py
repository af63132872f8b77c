"""Why a subscription delivers nothing, as JSON. Pulsar has nothing like it."""

from __future__ import annotations

from typing import Final

from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_wire.admin.json.parts import Converted, Field, Object
from magnetar_wire.admin.json.stats import REASON, SUBSCRIPTION_STATS
from magnetar_wire.admin.json.values import check_text

__all__ = ["EXPLANATION"]


def _parse_position(text: str) -> EntryPosition:
    ledger_id, _, entry_id = check_text(text, "lastEntry").partition(":")
    return EntryPosition(ledger_id=int(ledger_id), entry_id=int(entry_id))


_PART: Final = Object(
    {
        "topic": "topic",
        "ownerBroker": "owner_broker",
        "loaded": "loaded",
        "reasons": Field("reasons", of=REASON),
        "stats": Field("stats", of=SUBSCRIPTION_STATS),
        "lastEntry": Converted("last", lambda at: f"{at.ledger_id}:{at.entry_id}", _parse_position, {"type": "string"}),
        "lastPublishTimeStamp": "last_publish_ms",
    }
)

EXPLANATION: Final = Object(
    {
        "topic": "topic",
        "subscription": "subscription",
        "reasons": Field("reasons", of=REASON),
        "parts": Field("parts", of=_PART),
    }
)
