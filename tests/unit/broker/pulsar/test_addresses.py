"""The addresses of brokers that clients of Pulsar's protocol get, and those of the listeners that they connect to."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar_broker.daemon.run import BrokerDaemon
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.server.pulsar.listener import PulsarListener
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandLookupTopic, CommandLookupTopicResponse, ServerError
from tests.http_client import ask_json
from tests.running import until
from tests.unit.broker.http.test_broker_http import scraped, served
from tests.unit.broker.pulsar.fake_transport import FakeTransport
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import PULSAR_ADDRESS, running_pulsar_broker
from tests.unit.broker.test_broker_daemon import Machine, becomes_ready

_LISTENERS = (
    "internal:magnetar://one:6652,internal:pulsar://inside:0,external:magnetar://outside:7000,"
    "external:pulsar://outside:7001,wide:pulsar://far:7002"
)


async def _looked_up(
    daemon: BrokerDaemon, listener: PulsarListener, named: str = "", reached: Any = None
) -> CommandLookupTopicResponse:
    connection = listener.make_connection()
    client = PulsarClient(connection, FakeTransport(connection, ("10.0.0.1", 1), reached))
    await client.connect()
    command = CommandLookupTopic(topic="t", request_id=1, advertised_listener_name=named)
    answer = (await client.ask(BaseCommand.LOOKUP, lookup_topic=command)).lookup_topic_response
    client.cut()
    return answer


async def test_lookup_defaults_to_the_listener_the_client_reached() -> None:
    """WIRE-1, OWN-1: the address of another listener only if it names that; an unknown one is an error."""

    machine = Machine()
    await machine.add_bookie()
    async with machine.running(
        advertised_listeners=_LISTENERS, bind_addresses="external:pulsar://127.0.0.1:0"
    ) as daemon:
        await becomes_ready(daemon)
        inside, outside = daemon.broker.pulsar_listeners
        port = inside.address.rpartition(":")[2]
        for reached, named, expected in (
            (inside, "", f"inside:{port}"),
            (outside, "", "outside:7001"),
            (outside, "internal", f"inside:{port}"),
            (inside, "external", "outside:7001"),
            (inside, "wide", "far:7002"),
        ):
            answer = await _looked_up(daemon, reached, named)
            assert answer.broker_service_url == f"pulsar://{expected}"
        answer = await _looked_up(daemon, inside, "nowhere")
        assert answer.response == CommandLookupTopicResponse.FAILED
        assert "'nowhere'" in answer.message
        assert answer.error == ServerError.SERVICE_NOT_READY  # libraries try again
        _, status = await ask_json(daemon.http_address, "/status")
        assert status["pulsar_listen_addresses"] == [inside.address, outside.address]
        assert status["pulsar_advertised_listeners"]["external"] == "outside:7001"
        assert (await ask_json(daemon.http_address, "/"))[1]["pulsar_address"] == f"inside:{port}"


async def test_lookup_reports_owner_without_pulsar_listener() -> None:
    """Other brokers find it, and answer clients of Pulsar's protocol why they can't connect to it."""

    machine = Machine()
    await machine.add_bookie()
    async with machine.running(pulsar_listen_addresses="") as daemon:
        await becomes_ready(daemon)
        assert daemon.broker.pulsar_listeners == []
        answer = await _looked_up(daemon, PulsarListener(daemon.broker.pulsar_context, ""))
        assert answer.response == CommandLookupTopicResponse.FAILED
        assert "no listener for Pulsar's binary protocol" in answer.message


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        (("10.0.0.9", 6650), "10.0.0.9:6650"),
        (("::ffff:10.0.0.9", 6650, 0, 0), "10.0.0.9:6650"),
        (("fd00::9", 6650, 0, 0), "[fd00::9]:6650"),
        (None, "inside:7000"),
    ],
)
async def test_wildcard_listener_advertises_the_reached_address(reached: Any, expected: str) -> None:
    """WIRE-1, OWN-1: the address that serves a topic; a client that names a listener gets the address of that one."""

    machine = Machine()
    await machine.add_bookie()
    async with machine.running(pulsar_advertised_address="inside:7000") as daemon:
        await becomes_ready(daemon)
        [listener] = daemon.broker.pulsar_listeners
        answer = await _looked_up(daemon, listener, reached=reached)
        assert answer.broker_service_url == "pulsar://inside:7000"
        daemon.broker.pulsar_context.advertises_reached_address = True
        answer = await _looked_up(daemon, listener, reached=reached)
        assert answer.broker_service_url == f"pulsar://{expected}"
        answer = await _looked_up(daemon, listener, "internal", reached)
        assert answer.broker_service_url == "pulsar://inside:7000"


def test_addresses_are_written_down_and_read_again() -> None:
    """A listener may have an address for either kind of client."""
    addresses = AdvertisedAddresses((("in", "i:1"), ("out", "o:2")), (("wide", "w:3"), ("out", "o:4")))
    decoded = AdvertisedAddresses.decode(addresses.encode())
    assert decoded == AdvertisedAddresses(addresses.listeners, (("out", "o:4"), ("wide", "w:3")))
    assert addresses.internal_pulsar == ""
    with pytest.raises(BrokerError, match="no listener 'in'"):
        addresses.find_pulsar("")


@pytest.mark.parametrize("bound", ["broker_max_connections", "broker_max_connections_per_ip"])
async def test_connections_are_counted_over_all_listeners(bound: str) -> None:
    """WIRE-1: the limit is the broker's. Closed connections do not count."""

    async with running_pulsar_broker(**{bound: 2}) as scene:
        first, second = await scene.pulsar_client(), await scene.pulsar_client()
        scene.listener = PulsarListener(scene.context, "outside")
        scene.broker.pulsar_listeners.append(scene.listener)
        refused = scene.raw_client()
        await refused.wait_disconnected()
        (answer,) = refused.answers
        assert answer.error.error == ServerError.TOO_MANY_REQUESTS
        assert bound in answer.error.message
        assert not first.is_disconnected
        second.cut()
        await until(lambda: scene.context.connections == 1, "a closed connection is not counted")
        assert (await scene.pulsar_client()).connection in scene.listener.connections


async def test_connections_producers_and_consumers_are_counted() -> None:
    """ADM-2."""

    async with running_pulsar_broker(broker_max_connections=1) as scene, served(scene) as address:
        client = await scene.pulsar_client()
        await client.open_producer()
        await client.subscribe(1)
        await client.subscribe(2, subscription="other")
        refused = scene.raw_client()
        await refused.wait_disconnected()
        found = await scraped(address)
        assert found["pulsar_listener_connections"][()] == 1
        assert found["pulsar_active_connections"][()] == 1
        assert found["pulsar_listener_producers"][()] == 1
        assert found["pulsar_listener_consumers"][()] == 2
        assert found["pulsar_listener_connections_opened_total"][()] == 2
        assert found["pulsar_listener_connections_refused_total"][()] == 1
        assert found["pulsar_listener_unfinished_bytes"][()] == 0
        assert (await ask_json(address, "/status"))[1]["connections"] == 1
        info = await scene.admin.brokers.info()
        assert info.pulsar_address == PULSAR_ADDRESS
