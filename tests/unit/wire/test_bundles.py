"""Bundles: how the range of hashes is divided, and which bundle has a topic."""

from __future__ import annotations

import itertools
import zlib

import pytest

from magnetar_wire.bundles import LAST_HASH, MAX_BUNDLES, BundleRange, bundle_hash, default_bundles
from magnetar_wire.topic_name import TopicName


def test_default_bundles_are_those_of_pulsar() -> None:
    assert [str(bundle) for bundle in default_bundles(4)] == [
        "0x00000000_0x40000000",
        "0x40000000_0x80000000",
        "0x80000000_0xc0000000",
        "0xc0000000_0xffffffff",
    ]
    assert [str(bundle) for bundle in default_bundles(1)] == ["0x00000000_0xffffffff"]
    assert [str(bundle) for bundle in default_bundles(3)] == [
        "0x00000000_0x55555555",
        "0x55555555_0xaaaaaaaa",
        "0xaaaaaaaa_0xffffffff",
    ]


@pytest.mark.parametrize("count", [0, -1, MAX_BUNDLES + 1])
def test_an_invalid_number_of_bundles_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="use 1 …"):
        default_bundles(count)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 64, 1000, MAX_BUNDLES])
def test_bundles_leave_no_gap_and_do_not_overlap(count: int) -> None:
    bundles = default_bundles(count)
    assert len(bundles) == count
    assert (bundles[0].lower, bundles[-1].upper) == (0, LAST_HASH)
    assert all(before.upper == after.lower for before, after in itertools.pairwise(bundles))


def test_every_hash_is_in_exactly_one_bundle() -> None:
    bundles = default_bundles(7)
    edges = {bundle.lower + step for bundle in bundles for step in (-1, 0, 1)} - {-1} | {LAST_HASH - 1, LAST_HASH}
    for topic_hash in edges:
        assert len([bundle for bundle in bundles if topic_hash in bundle]) == 1
    for outside in (-1, LAST_HASH + 1):
        assert not any(outside in bundle for bundle in bundles)


def test_the_hash_of_a_topic_is_the_crc_of_its_full_name() -> None:
    assert bundle_hash(TopicName.parse("x")) == zlib.crc32(b"persistent://public/default/x") == 0x8B8A9502
    topic = TopicName.parse("Grün")
    assert bundle_hash(topic) == zlib.crc32("persistent://public/default/Grün".encode())
    assert bundle_hash(topic) != bundle_hash(topic.partition(0)) != bundle_hash(topic.partition(1))


@pytest.mark.parametrize("text", ["0x00000000_0x40000000", "0xc0000000_0xffffffff"])
def test_a_range_is_parsed_as_it_is_formatted(text: str) -> None:
    assert str(BundleRange.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0x0_0x4",
        "00000000_40000000",
        "0x00000000-0x40000000",
        "0x00000000_0x40000000\n",
        "0x00000000_0x00000000",
        "0x80000000_0x40000000",
        "0x00000000_0x100000000",
        "0x" + "\u0660" * 8 + "_0x40000000",
    ],
)
def test_an_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid bundle"):
        BundleRange.parse(text)
