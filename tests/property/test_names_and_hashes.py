"""Names, ids and hashes, compared with simple models, with generated input."""

from __future__ import annotations

import string
import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magnetar_wire.bundles import default_bundles
from magnetar_wire.errors import InvalidMessageId, InvalidTopicName
from magnetar_wire.hashing import HashingScheme, java_string_hash, partition_of
from magnetar_wire.message_id import MessageId
from magnetar_wire.path_component import decode_path_component, encode_path_component
from magnetar_wire.topic_name import MAX_PARTITION_INDEX, TopicName

TEXT = st.text(min_size=1)
TRICKY = st.text(alphabet="./%+ 2EFef~-_:=a\x00☂", min_size=1, max_size=8)
NAMED = st.text(alphabet=f"{string.ascii_letters}{string.digits}_-=:.", min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)
LOCAL = st.text(
    alphabet=st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/"), min_size=1, max_size=100
).filter(lambda name: name not in (".", ".."))
DOMAINS = st.sampled_from(["persistent", "non-persistent"])
NUMBERS = st.integers(-1, 2**63 - 1)
SMALL_NUMBERS = st.integers(-1, 2**31 - 1)
IDS = st.builds(
    MessageId,
    SMALL_NUMBERS,
    NUMBERS,
    NUMBERS,
    SMALL_NUMBERS,
    st.integers(0, 2**31 - 1),
    st.just(""),
    st.none() | st.builds(MessageId, SMALL_NUMBERS, NUMBERS, NUMBERS),
)


@given(TEXT | TRICKY, TEXT | TRICKY)
def test_no_two_texts_share_a_component_and_each_is_found_again(one: str, other: str) -> None:
    component = encode_path_component(one)
    assert decode_path_component(component) == one
    assert component.isascii()
    assert component.isprintable()
    assert "/" not in component
    assert component not in (".", "..")
    assert (component == encode_path_component(other)) is (one == other)


@given(DOMAINS, NAMED, NAMED, LOCAL)
def test_parsed_topic_name_round_trips(domain: str, tenant: str, namespace: str, local_name: str) -> None:
    """TOP-1."""
    full = f"{domain}://{tenant}/{namespace}/{local_name}"
    topic = TopicName.parse(full)
    assert str(topic) == full
    assert (topic.domain, topic.tenant, topic.namespace, topic.local_name) == (domain, tenant, namespace, local_name)
    assert TopicName.from_path(domain, tenant, namespace, topic.encoded_local_name) == topic


@given(LOCAL, st.integers(0, MAX_PARTITION_INDEX))
def test_a_partitions_name_leads_back_to_its_topic(local_name: str, index: int) -> None:
    topic = TopicName.parse(f"t/n/{local_name}")
    if topic.is_partition:
        return
    partition = topic.partition(index)
    assert str(partition) == f"{topic}-partition-{index}"
    assert (partition.base, partition.partition_index) == (topic, index)


@given(st.text(max_size=40) | st.text(alphabet="persitn-:/.a", max_size=40))
def test_any_text_parses_as_a_topic_name_or_is_refused(text: str) -> None:
    """TOP-1."""
    try:
        topic = TopicName.parse(text)
    except InvalidTopicName:
        return
    assert TopicName.parse(str(topic)) == topic
    assert text.endswith(topic.local_name)


@given(IDS)
def test_an_id_is_read_as_it_was_written(message_id: MessageId) -> None:
    """MSG-3."""
    assert MessageId.deserialize(message_id.serialize()).__reduce__() == message_id.__reduce__()


@given(IDS, IDS)
def test_order_equality_and_hash_agree(one: MessageId, other: MessageId) -> None:
    """MSG-3."""
    assert (one < other) + (one == other) + (one > other) == 1
    assert (one <= other) is not (one > other)
    assert one != other or hash(one) == hash(other)


@given(IDS, st.data())
def test_a_part_of_an_ids_bytes_is_another_id_or_refused(message_id: MessageId, data: Any) -> None:
    """MSG-3."""
    whole = message_id.serialize()
    size = data.draw(st.integers(0, len(whole) - 1))
    try:
        MessageId.deserialize(whole[:size])
    except InvalidMessageId:
        return
    # The required fields come first, so the rest of the bytes is an id only if both are complete.
    assert whole[:size].startswith(MessageId(-1, message_id.ledger_id(), message_id.entry_id()).serialize())


@given(st.binary(max_size=60))
def test_any_bytes_are_an_id_or_refused(data: bytes) -> None:
    """MSG-3."""
    try:
        message_id = MessageId.deserialize(data)
    except InvalidMessageId:
        return
    assert MessageId.deserialize(message_id.serialize()) == message_id


@given(st.text() | st.text(alphabet="aé☂𝄞\uffff", min_size=250, max_size=800))
def test_java_string_hash_is_the_sum_that_java_defines(key: str) -> None:
    units = key.encode("utf-16-le")
    value = 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    assert java_string_hash(key) == value & 0x7FFF_FFFF


@given(st.text(), st.integers(1, 10_000), st.sampled_from(HashingScheme))
def test_a_key_has_one_of_the_partitions(key: str, partitions: int, scheme: HashingScheme) -> None:
    assert 0 <= partition_of(key, partitions, scheme) < partitions


@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
def test_a_hash_is_in_exactly_one_bundle(topic_hash: int, count: int) -> None:
    bundles = default_bundles(count)
    assert len([bundle for bundle in bundles if topic_hash in bundle]) == 1
