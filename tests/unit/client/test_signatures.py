"""The parameters of the methods that take options: each by name, and the same in the options' models."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import magnetar
from magnetar import CompressionType, aio, exceptions
from magnetar._consuming.consumer_options import ConsumerOptions, ReaderOptions, TableViewOptions, consumer_options
from magnetar._options import ClientOptions, ProducerOptions, client_options, option_fields, producer_options
from magnetar_wire.configuration import Configuration
from tests.running import run

URL = "magnetar://localhost:6652"
# Parameters that no options' model has, because they are not the same for both clients, or not options.
NOT_OPTIONS = frozenset(
    {"service_url", "topic", "start_message_id", "message_listener", "reader_listener", "consumer_event_listener"}
)


def parameters_of(method: Callable[..., Any]) -> list[inspect.Parameter]:
    return [one for one in inspect.signature(method).parameters.values() if one.name != "self" and one.name[0] != "_"]


@pytest.mark.parametrize("client", [magnetar.Client, aio.Client])
@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("__init__", ClientOptions),
        ("create_producer", ProducerOptions),
        ("subscribe", ConsumerOptions),
        ("create_reader", ReaderOptions),
        ("create_table_view", TableViewOptions),
    ],
)
def test_parameters_are_the_fields_of_the_options(
    client: type[magnetar.Client] | type[aio.Client], method: str, model: type[Configuration]
) -> None:
    """Names, order and defaults, which are written twice."""
    parameters = parameters_of(getattr(client, method))
    assert {one.kind for one in parameters} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    written = [(one.name, one.default) for one in parameters if one.name not in NOT_OPTIONS]
    fields = [
        (
            name,
            inspect.Parameter.empty if field.is_required() else None if field.default_factory else field.default,
        )
        for name, field in option_fields(model).items()
    ]
    assert written == fields


@pytest.mark.parametrize("method", ["__init__", "create_producer", "subscribe", "create_reader", "create_table_view"])
def test_both_clients_have_the_same_parameters(method: str) -> None:
    sync, asynchronous = (
        [(one.name, one.kind, one.default) for one in parameters_of(getattr(client, method))]
        for client in (magnetar.Client, aio.Client)
    )
    assert sync == asynchronous


# Methods that differ between the two kinds of client, so that their docstrings do.
DIFFERENT = frozenset({"Client.create_producer", "Client.subscribe", "Producer.flush", "Producer.send"})


@pytest.mark.parametrize("name", ["Client", "Producer", "Consumer", "Reader", "TableView"])
def test_both_kinds_of_client_have_the_same_methods_and_docstrings(name: str) -> None:
    """The asyncio method's docstring may go on where the other one ends."""
    sync, asynchronous = getattr(magnetar, name), getattr(aio, name)
    methods = {one for one in (*dir(sync), *dir(asynchronous)) if not one.startswith("_")} - {"send_async"}
    different = set()
    for method in sorted(methods):
        ours, theirs = getattr(sync, method), getattr(asynchronous, method)
        assert [(one.name, one.kind, one.default) for one in parameters_of(ours)] == [
            (one.name, one.kind, one.default) for one in parameters_of(theirs)
        ], method
        text, other = inspect.getdoc(ours), inspect.getdoc(theirs)
        assert text
        assert other
        if not other.startswith(text):
            different.add(f"{name}.{method}")
    assert different == {one for one in DIFFERENT if one.startswith(f"{name}.")}


@pytest.mark.parametrize("client", [magnetar.Client, aio.Client])
@pytest.mark.parametrize("method", ["__init__", "create_producer", "subscribe", "create_reader", "create_table_view"])
def test_annotations_can_be_read_at_runtime(client: Any, method: str) -> None:
    hints = get_type_hints(getattr(client, method))
    assert {one.name for one in parameters_of(getattr(client, method))} <= hints.keys()


@pytest.mark.parametrize(
    "method",
    [f"Client.{name}" for name in ("__init__", "create_producer", "subscribe", "create_reader", "create_table_view")],
)
def test_parameters_stand_where_the_stock_client_has_them(method: str) -> None:
    pulsar = pytest.importorskip("pulsar")
    kind, name = method.split(".")
    theirs = list(inspect.signature(getattr(getattr(pulsar, kind), name)).parameters)
    ours = list(inspect.signature(getattr(getattr(magnetar, kind), name)).parameters)
    assert ours[: len(theirs)] == theirs


@pytest.mark.parametrize(
    ("method", "arguments", "wrong", "meant"),
    [
        ("create_producer", ("t",), "block_if_que_full", "block_if_queue_full"),
        ("subscribe", ("t", "s"), "consumertype", "consumer_type"),
        ("create_reader", ("t", magnetar.MessageId.earliest), "reader_names", "reader_name"),
        ("create_table_view", ("t",), "subscription_names", "subscription_name"),
    ],
)
def test_an_unknown_keyword_names_the_nearest(method: str, arguments: tuple[Any, ...], wrong: str, meant: str) -> None:
    expected = rf"^Client\.{method} has no option '{wrong}': did you mean '{meant}'\?$"
    with pytest.raises(exceptions.UnknownOption, match=expected), magnetar.Client(URL) as client:
        getattr(client, method)(*arguments, **{wrong: 1})

    async def go() -> None:
        async with aio.Client(URL) as client:
            await getattr(client, method)(*arguments, **{wrong: 1})

    with pytest.raises(TypeError, match=expected):
        run(go())
    assert inspect.iscoroutinefunction(getattr(aio.Client, method))


@pytest.mark.parametrize("client", [magnetar.Client, aio.Client])
def test_an_unknown_keyword_of_a_client_names_the_nearest(client: Any) -> None:
    with pytest.raises(TypeError, match=r"^Client has no option 'listenername': did you mean 'listener_name'\?$"):
        client(URL, listenername="x")
    with pytest.raises(
        exceptions.UnknownOption, match=r"'zzz': its options are authentication, concurrent_lookup_requests, "
    ):
        client(URL, zzz=1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"consumer_type": "Shared"}, "consumer_type = 'Shared': use ConsumerType.Shared"),
        ({"consumer_type": "ConsumerType.failover"}, "consumer_type = .*: use ConsumerType.Failover"),
        ({"consumer_type": "x"}, "use one of ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.Failover, "),
        ({"initial_position": "earliest"}, "initial_position = 'earliest': use InitialPosition.Earliest"),
        ({"initial_position": CompressionType.LZ4}, "use one of InitialPosition.Latest, InitialPosition.Earliest"),
        ({"crypto_failure_action": 1}, "use one of ConsumerCryptoFailureAction.FAIL, "),
        ({"receiver_queue_size": None}, "receiver_queue_size = None: .*integer"),
        (
            {"consumer_type": "Shared", "priority_level": -1},
            "use ConsumerType.Shared; priority_level = -1: .*greater than or equal to 0",
        ),
    ],
)
def test_a_wrong_value_names_the_member_to_use(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(exceptions.InvalidConfiguration, match=expected):
        consumer_options({"subscription_name": "s", **options})


def test_a_member_of_the_stock_client_s_enum_names_ours() -> None:
    pulsar = pytest.importorskip("pulsar")
    with pytest.raises(exceptions.InvalidConfiguration, match=r"use ConsumerType\.KeyShared$"):
        consumer_options({"subscription_name": "s", "consumer_type": pulsar.ConsumerType.KeyShared})
    with pytest.raises(exceptions.InvalidConfiguration, match=r"use CompressionType\.ZSTD$"):
        producer_options({"compression_type": pulsar.CompressionType.ZSTD})


@pytest.mark.parametrize(
    ("check", "options", "expected"),
    [
        (client_options, {"authentication": object()}, "authentication = .*: leave it out, and run brokers on a tr"),
        (client_options, {"io_threads": 4}, "io_threads = 4 .*: one thread"),
        (consumer_options, {"is_read_compacted": True}, "is_read_compacted = True .*: topics are not compacted"),
    ],
)
def test_unsupported_option_error_names_an_alternative(
    check: Callable[[dict[str, Any]], object], options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(exceptions.OperationNotSupported, match=expected):
        check({"subscription_name": "s", **options})


def test_none_is_accepted_for_options_with_factory_defaults() -> None:
    options = consumer_options({"subscription_name": "s", "properties": None, "batch_receive_policy": None})
    assert options.properties == {}
    assert options.batch_receive_policy.timeout_ms == 100
