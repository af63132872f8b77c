"""Topic names: accepted forms, refusals and their errors, partitions, paths."""

from __future__ import annotations

import copy
import pickle

import pytest

from magnetar_metadata.store import MAX_PATH_BYTES
from magnetar_wire import path_component, topic_name
from magnetar_wire.errors import InvalidTopicName, WireError
from magnetar_wire.path_component import decode_path_component, encode_path_component
from magnetar_wire.topic_name import (
    MAX_LOCAL_NAME_BYTES,
    MAX_NAMESPACE_BYTES,
    MAX_PARTITION_INDEX,
    MAX_TENANT_BYTES,
    NamespaceName,
    TopicDomain,
    TopicName,
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("x", "persistent://public/default/x"),
        ("tenant/ns/topic", "persistent://tenant/ns/topic"),
        ("persistent://tenant/ns/topic", "persistent://tenant/ns/topic"),
        ("non-persistent://tenant/ns/topic", "non-persistent://tenant/ns/topic"),
        ("persistent://a-=:._9/B-=:._8/c d", "persistent://a-=:._9/B-=:._8/c d"),
        ("Grün ☂ 𝄞", "persistent://public/default/Grün ☂ 𝄞"),
        ("a:b", "persistent://public/default/a:b"),
        ("...", "persistent://public/default/..."),
    ],
)
def test_all_forms_become_the_full_name(text: str, full: str) -> None:
    """TOP-1."""
    topic = TopicName.parse(text)
    assert str(topic) == full
    assert TopicName.parse(str(topic)) == topic
    domain, _, rest = full.partition("://")
    assert [topic.domain, topic.tenant, topic.namespace, topic.local_name] == [domain, *rest.split("/")]
    assert topic == TopicName(topic.domain, topic.tenant, topic.namespace, topic.local_name)
    assert topic.is_persistent is (domain == "persistent")
    assert str(topic.namespace_name) == f"{topic.tenant}/{topic.namespace}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ns/topic", "it has two parts"),
        ("/topic", "it has two parts"),
        ("persistent:/topic", "it has two parts"),
        ("persistent://tenant/cluster/ns/topic", "it has four parts: the old form with a cluster is not supported"),
        ("persistent://tenant/ns/to/p/ic", r"it has 5 part\(s\) instead of three"),
        ("tenant/cluster/ns/topic", r"it has 4 part\(s\) instead of one or three"),
        ("persistent://topic", r"it has 1 part\(s\) instead of three"),
        ("persistent://", r"it has 1 part\(s\)"),
        ("", "the topic's local name is empty"),
        ("persistent://tenant/ns/", "the topic's local name is empty"),
        ("tenant//topic", "the namespace is empty"),
        ("/ns/topic", "the tenant is empty"),
        ("://tenant/ns/topic", "unknown domain ''"),
        ("Persistent://tenant/ns/topic", "unknown domain 'Persistent': use persistent or non-persistent"),
        ("http://tenant/ns/topic", "unknown domain 'http'"),
        ("tenänt/ns/topic", "the tenant .* has other characters than ASCII letters"),
        ("ten ant/ns/topic", "the tenant 'ten ant' has other characters than ASCII letters"),
        ("tenant/n%s/topic", "the namespace 'n%s' has other characters"),
        ("tenant/ns\n/topic", "the namespace .* has other characters"),
        ("../ns/topic", r"the tenant '..' has other characters .*, or is . or .."),
        ("tenant/./topic", "the namespace '.' has other characters"),
        ("tenant/٣/topic", "the namespace .* has other characters"),
        ("a\nb", r"has U\+000A, a control character or surrogate at index 1"),
        ("\x00", r"has U\+0000"),
        ("a\x7f", r"has U\+007F"),
        ("a\x85", r"has U\+0085"),
        ("a\ud800", r"has U\+D800, a control character or surrogate"),
        (".", "a topic can't be named '.'"),
        ("..", "a topic can't be named '..'"),
        ("..-partition-0", "a topic can't be named '..'"),
        ("t" * 129 + "/ns/topic", "has 129 bytes, above the limit of 128"),
        ("tenant/" + "n" * 129 + "/topic", "has 129 bytes, above the limit of 128"),
        ("ü" * 385, "has 770 UTF-8 bytes, above the limit of 768"),
        ("x" * 1_000_000, "1,000,000 characters, above the limit"),
    ],
)
def test_the_error_of_a_malformed_name_has_the_problem_and_the_form(text: str, complaint: str) -> None:
    """TOP-1."""
    with pytest.raises(InvalidTopicName, match=complaint) as raised:
        TopicName.parse(text)
    message = str(raised.value)
    assert message.startswith("Invalid topic name ")
    assert len(message) < 600
    assert message.isprintable()
    if len(text) < 1000:
        assert message.endswith("write persistent://tenant/namespace/topic, tenant/namespace/topic, or a bare topic")


def test_the_error_is_a_wire_error_and_a_value_error() -> None:
    assert issubclass(InvalidTopicName, WireError)
    assert issubclass(InvalidTopicName, ValueError)


def test_the_parts_are_checked_without_parsing_too() -> None:
    for parts in (("persistent", "t", "n", "a/b"), ("x", "t", "n", "a"), ("persistent", "", "n", "a")):
        with pytest.raises(InvalidTopicName):
            TopicName(*parts)  # type: ignore[arg-type]
    made = TopicName("persistent", "t", "n", "a")  # type: ignore[arg-type]
    assert made.domain is TopicDomain.PERSISTENT


def test_a_partition_is_a_topic_named_after_its_base() -> None:
    topic = TopicName.parse("tenant/ns/orders")
    partition = topic.partition(12)
    assert str(partition) == "persistent://tenant/ns/orders-partition-12"
    assert (partition.partition_index, partition.is_partition, partition.base) == (12, True, topic)
    assert (topic.partition_index, topic.is_partition, topic.base) == (-1, False, topic)
    assert TopicName.parse(str(partition)) == partition
    assert topic.partition(MAX_PARTITION_INDEX).partition_index == MAX_PARTITION_INDEX


@pytest.mark.parametrize("index", [-1, MAX_PARTITION_INDEX + 1])
def test_there_are_no_other_partitions(index: int) -> None:
    with pytest.raises(InvalidTopicName, match="Invalid partition"):
        TopicName.parse("x").partition(index)
    with pytest.raises(InvalidTopicName, match="is a partition and has no partitions itself"):
        TopicName.parse("x-partition-1").partition(0)


@pytest.mark.parametrize(
    "suffix", ["01", "00", "+1", "-1", "1 ", "", "1x", "٣", "1_0", "2147483648", "99999999999999999999", "1\u2028"]
)
def test_only_canonical_decimal_makes_a_partition(suffix: str) -> None:
    topic = TopicName.parse(f"x-partition-{suffix}")
    assert topic.partition_index == -1
    assert topic.base is topic


def test_a_suffix_without_a_name_before_it_is_a_name() -> None:
    assert not TopicName.parse("-partition-1").is_partition
    twice = TopicName.parse("x-partition-1-partition-2")
    assert (twice.partition_index, twice.base.local_name) == (2, "x-partition-1")


def test_the_longest_name_can_be_partitioned_and_fits_a_path() -> None:
    """The path of every partition leaves enough bytes for the rest of the path."""
    longest = TopicName(TopicDomain.NON_PERSISTENT, "t" * MAX_TENANT_BYTES, "n" * MAX_NAMESPACE_BYTES, "☂" * 256)
    assert len(longest.local_name.encode()) == MAX_LOCAL_NAME_BYTES
    partition = longest.partition(MAX_PARTITION_INDEX)
    assert TopicName.parse(str(partition)) == partition
    path = f"{partition.tenant}/{partition.namespace}/{partition.domain}/{partition.encoded_local_name}"
    assert len(path) <= MAX_PATH_BYTES - 1_000
    with pytest.raises(InvalidTopicName):
        TopicName.parse(longest.local_name + "x")


def test_namespace_names() -> None:
    """TOP-1."""
    assert NamespaceName.parse("tenant/ns") == NamespaceName("tenant", "ns")
    for text in ("", "tenant", "tenant/", "/ns", "a/b/c", "a/b\n", "ü/b", "a/" + "x" * 10_000):
        with pytest.raises(InvalidTopicName) as raised:
            NamespaceName.parse(text)
        assert len(str(raised.value)) < 300


def test_names_are_values() -> None:
    topic = TopicName.parse("a/b/c")
    same = TopicName(TopicDomain.PERSISTENT, "a", "b", "c")
    assert topic == same
    assert hash(topic) == hash(same)
    assert topic != TopicName.parse("non-persistent://a/b/c")
    assert topic != str(topic)
    assert pickle.loads(pickle.dumps(topic)) == copy.copy(topic) == copy.deepcopy(topic) == topic
    with pytest.raises(AttributeError):
        topic.tenant = "other"  # type: ignore[misc]


def test_the_cache_has_a_limit_and_no_invalid_names() -> None:
    cache_info = topic_name._parse.cache_info
    assert cache_info().maxsize == topic_name._CACHED
    before = cache_info().currsize
    for number in range(10):
        with pytest.raises(InvalidTopicName):
            TopicName.parse(f"bad/{number}")
    assert cache_info().currsize == before
    assert TopicName.parse("cached") is TopicName.parse("cached")


@pytest.mark.parametrize(
    ("text", "component"),
    [
        ("plain-name_1.x~", "plain-name_1.x~"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        ("a b+c", "a%20b%2Bc"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("☂", "%E2%98%82"),
        ("\x00", "%00"),
    ],
)
def test_any_text_is_one_component_of_a_path(text: str, component: str) -> None:
    assert encode_path_component(text) == component
    assert decode_path_component(component) == text
    assert len(component) <= path_component.GROWTH * len(text.encode())


def test_components_of_other_tools_are_decoded() -> None:
    assert decode_path_component("a+b%7e%7E") == "a b~~"
    assert decode_path_component("☂") == "☂"


@pytest.mark.parametrize("component", ["", "a/b", "%", "%4", "%zz", "%ff", "%ed%a0%80", "a%c3"])
def test_an_invalid_component_is_refused(component: str) -> None:
    with pytest.raises(ValueError, match=r"component|percent-encoded|codec can't decode"):
        decode_path_component(component)
    with pytest.raises(InvalidTopicName):
        TopicName.from_path("persistent", "t", "n", component)


@pytest.mark.parametrize("text", ["", "\ud800"])
def test_a_text_without_a_component_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"component|surrogates"):
        encode_path_component(text)


def test_a_topic_is_decoded_from_its_path() -> None:
    topic = TopicName.parse("non-persistent://t/n/a b?☂#%2F")
    assert TopicName.from_path(topic.domain, topic.tenant, topic.namespace, topic.encoded_local_name) == topic
    for hidden in ("a%2Fb", "%2E%2E", "a%00"):
        with pytest.raises(InvalidTopicName):
            TopicName.from_path("persistent", "t", "n", hidden)
