"""A message of the torture shows its producer and number, and whether it is whole."""

from __future__ import annotations

import random

import pytest

from tests.faults.torture.messages import Outgoing, Unreadable, make_message, read


def _made(size: int | None, key: str | None = "k", seed: int = 0) -> Outgoing:
    return make_message("t.p~w.1", 7, random.Random(seed), size, key)


@pytest.mark.parametrize("size", [None, 0, 1, 300, 9_000])
@pytest.mark.parametrize("key", [None, "", "ключ"])
def test_decoded_message_has_its_producer_number_and_digest(size: int | None, key: str | None) -> None:
    for seed in range(20):  # with properties and without
        made = _made(size, key, seed)
        if size:
            assert made.payload is not None
            assert len(made.payload) >= size
        else:
            assert made.payload == (None if size is None else b"")
        found = read(made.payload, made.key, made.properties or {}, made.event_ms)
        assert (found.producer, found.number, found.key) == ("t.p~w.1", 7, key)
        assert found.digest == made.digest


def test_a_payload_with_any_bit_flipped_or_cut_anywhere_is_nobodys() -> None:
    payload = _made(40).payload
    assert payload is not None
    for bit in range(len(payload) * 8):
        broken = bytearray(payload)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unreadable):
            read(bytes(broken), None, {}, 0)
    for length in range(len(payload)):
        with pytest.raises(Unreadable):
            read(payload[:length], None, {}, 0)


@pytest.mark.parametrize("payload", [None, b""])
def test_empty_message_with_changed_properties_is_unreadable(payload: bytes | None) -> None:
    made = _made(None if payload is None else 0)
    assert made.properties is not None
    for who in ("", "t.p 7", made.properties["who"].replace("7", "8", 1)):
        with pytest.raises(Unreadable):
            read(payload, None, {**made.properties, "who": who}, 0)


def test_digest_detects_changed_key_properties_and_event_time() -> None:
    made = next(made for made in (_made(10, "k", seed) for seed in range(100)) if made.properties and made.event_ms)
    assert made.properties is not None
    others = [
        read(made.payload, None, made.properties, made.event_ms),
        read(made.payload, "", made.properties, made.event_ms),
        read(made.payload, made.key, {}, made.event_ms),
        read(made.payload, made.key, {**made.properties, "kind": "?"}, made.event_ms),
        read(made.payload, made.key, made.properties, made.event_ms + 1),
    ]
    assert made.digest not in {one.digest for one in others}
