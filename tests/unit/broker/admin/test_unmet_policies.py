"""A `persistence` policy that the bookies can't meet: who is warned, what waits for it, and that it is put right."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from magnetar import InitialPosition, exceptions
from magnetar.admin import NamespacePolicies, Persistence
from magnetar_broker.catalog.policies import find_unmet_policies
from magnetar_broker.managed_ledger import ledger_striping
from magnetar_protos.catalog_pb2 import Persistence as StoredPersistence
from magnetar_protos.catalog_pb2 import Policies
from tests.running import until, within
from tests.unit.broker.broker_scene import running_broker

_NAMESPACE = "public/default"
_IMPOSSIBLE = NamespacePolicies(Persistence(3, 3, 3))


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_striping, "_REREAD_S", 0.02)


@pytest.mark.parametrize(
    ("persistence", "writable", "expected"),
    [
        (None, 0, None),
        ((3, 3, 2), 3, None),
        ((3, 3, 2), 2, "in full now: 2 of 5 registered bookies .* the ensemble needs 3"),
        ((3, 3, 2), 1, "can't be met now: 1 of 5 registered bookies .* the ack quorum needs 2"),
        ((1, 1, 1), 1, None),
        ((1, 1, 1), 0, "can't be met now: 0 of 5"),
    ],
)
def test_warning_states_available_and_required_bookies(
    persistence: tuple[int, int, int] | None, writable: int, expected: str | None
) -> None:
    policies = Policies()
    if persistence is not None:
        ensemble, write, ack = persistence
        stored = StoredPersistence(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
        policies.persistence.CopyFrom(stored)
    warnings = find_unmet_policies("acme/shop", policies, writable, 5)
    assert len(warnings) == (expected is not None)
    assert expected is None or re.search(f"namespace acme/shop: .*{expected}", warnings[0])


async def test_setting_an_unmet_policy_returns_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The policy is set, since more bookies may be registered later; the broker logs it, too."""

    async with running_broker() as scene:
        namespaces = scene.admin.namespaces
        with caplog.at_level(logging.WARNING, "magnetar_broker.admin.catalog_calls"):
            (warning,) = await namespaces.set_policies(_NAMESPACE, _IMPOSSIBLE)
        assert "2 of 2 registered bookies" in warning
        assert "the ack quorum needs 3" in warning
        assert warning in caplog.text
        assert await namespaces.policies(_NAMESPACE) == _IMPOSSIBLE
        (warning,) = await namespaces.create("public/shop", NamespacePolicies(Persistence(3, 2, 2)))
        assert "the ensemble needs 3" in warning
        assert await namespaces.set_policies(_NAMESPACE, NamespacePolicies(Persistence(2, 2, 2))) == ()
        assert await namespaces.set_policies(_NAMESPACE, NamespacePolicies()) == ()


async def test_topic_waiting_for_bookies_applies_a_changed_policy() -> None:
    """A log whose first ledger can't be made goes on when the policy is corrected, without an unload."""

    async with running_broker(metadata_cache_ttl_seconds=0.02) as scene:
        admin = scene.admin
        await admin.namespaces.set_policies(_NAMESPACE, _IMPOSSIBLE)
        async with scene.client() as client:
            producer = await client.create_producer("t")
            sending = asyncio.create_task(producer.send(b"one"))

            async def waits() -> bool:
                return "needs 3" in (await admin.topics.stats("t")).waiting_for

            await until(waits, "the topic waits for bookies")
            # Another policy that can't be met is taken, too.
            await admin.namespaces.set_policies(_NAMESPACE, NamespacePolicies(Persistence(5, 5, 5)))

            async def waits_for_more() -> bool:
                return "needs 5" in (await admin.topics.stats("t")).waiting_for

            await until(waits_for_more, "the topic waits for more bookies")
            assert not sending.done()
            await admin.namespaces.set_policies(_NAMESPACE, NamespacePolicies())
            placed = await within(sending, "the message is stored")
            assert (await admin.topics.stats("t")).waiting_for == ""
            assert (
                await scene.broker_session.client.ledgers.read_metadata(placed.ledger_id())
            ).striping.ack_quorum == 2


async def test_cursor_waiting_for_bookies_applies_a_changed_policy() -> None:
    """ACK-1: the receipt of an acknowledgement that needs a ledger comes when the policy is corrected."""

    async with running_broker(metadata_cache_ttl_seconds=0.02) as scene:
        admin = scene.admin
        async with scene.client() as client:
            consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
            producer = await client.create_producer("t", batching_enabled=False)
            for number in range(3):
                await producer.send(b"%d" % number)
            await producer.close()
            await admin.namespaces.set_policies(_NAMESPACE, _IMPOSSIBLE)
            await admin.topics.unload("t")
            messages = [await within(consumer.receive(), "a message") for _ in range(3)]
            # A hole, which the cursor's node alone can't hold.
            acknowledging = asyncio.create_task(consumer.acknowledge(messages[1], receipt=True))

            (topic,) = scene.broker_session.topics.loaded()
            cursor = topic.cursors.get("s")
            assert cursor is not None
            await until(lambda: "needs 3" in cursor.waiting_for, "the cursor waits for bookies")
            assert not acknowledging.done()
            await admin.namespaces.set_policies(_NAMESPACE, NamespacePolicies())
            await within(acknowledging, "the receipt")


async def test_send_timeout_error_explains_why_topic_waits() -> None:
    """ADM-3: as the topic's statistics do, and only as long as it waits."""

    async with running_broker(
        metadata_cache_ttl_seconds=0.02, topic_housekeeping_interval_seconds=0.02, add_entry_timeout_seconds=30.0
    ) as scene:
        namespaces = scene.admin.namespaces
        await namespaces.set_policies(_NAMESPACE, _IMPOSSIBLE)
        async with scene.client() as client:
            producer = await client.create_producer("t", send_timeout_millis=500)
            with pytest.raises(exceptions.Timeout) as timed_out:
                await producer.send(b"one")
            waiting_for = (await scene.admin.topics.stats("t")).waiting_for
            assert re.search("needs 3 bookies, but 2 of 2 registered", waiting_for)
            assert f"the producer is connected: the topic waits: {waiting_for}" in str(timed_out.value)
            # A producer that opens later gets the reason, too.
            other = await client.create_producer("t", send_timeout_millis=500)
            with pytest.raises(exceptions.Timeout, match=r"the topic waits: .* needs 3"):
                await other.send(b"two")
            await namespaces.set_policies(_NAMESPACE, NamespacePolicies())
            lasting = await client.create_producer("t")
            await lasting.send(b"three")
            # Nothing is stored now for another reason, which the broker does not know.
            for bookie in scene.bookies:
                bookie.hold()
            with pytest.raises(exceptions.Timeout) as timed_out:
                await other.send(b"four")
            assert "the topic waits" not in str(timed_out.value)
            for bookie in scene.bookies:
                bookie.resume()


async def test_producer_creation_timeout_explains_why_topic_waits() -> None:
    """ADM-3: it waits for what its predecessor of that name has sent."""

    async with running_broker(metadata_cache_ttl_seconds=0.02, topic_housekeeping_interval_seconds=0.02) as scene:
        await scene.admin.namespaces.set_policies(_NAMESPACE, _IMPOSSIBLE)
        async with scene.client() as first, scene.client(operation_timeout_seconds=0.5) as second:
            producer = await first.create_producer("t", producer_name="p", send_timeout_millis=500)
            with pytest.raises(exceptions.Timeout):
                await producer.send(b"one")
            await first.close()
            with pytest.raises(exceptions.Timeout, match=r"has not opened a producer of .* needs 3"):
                await second.create_producer("t", producer_name="p")
