"""A server for stock clients, and one of those; for `pytest_plugins = ["tests.stock_fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from tests.stock_clients import StockServer, is_elsewhere


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> StockServer:
    """The standalone that all tests of the run share, unless the environment names another server. A module that kills
    it has a fixture of this name of its own."""
    return StockServer(None if is_elsewhere() else request.getfixturevalue("magnetar_standalone"))


@pytest.fixture(scope="module")
def client(server: StockServer) -> Iterator[pulsar.Client]:
    with server.client() as client:
        yield client
