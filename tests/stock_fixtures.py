"""A server for a test module's stock clients, and one of those; for `pytest_plugins = ["tests.stock_fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest

from tests.stock_clients import StockServer, stock_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StockServer]:
    with stock_server(tmp_path_factory.mktemp("standalone") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: StockServer) -> Iterator[pulsar.Client]:
    with server.client() as client:
        yield client
