"""A gRPC server that takes the methods it was told of, and never looks at the names of others.

grpc.aio's server reads the name of every method that comes in as UTF-8, in the task that accepts requests, and when
that raises, the server shuts down: a request of a hundred bytes with a path of 0xFF ends it for everybody. The name of
a method that was registered is not read from the network. So this one never asks the core for a request to any other;
the core keeps those, in bounds of its own, and refuses them after half a minute.

What is overridden is private to grpc.aio. A test sends the request (`tests/faults/test_hostile_grpc_clients.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from magnetar_wire.grpc_transport.quiet_grpc import grpc

# Not before gRPC is told to be quiet.
from grpc._cython import cygrpc  # isort: skip
from grpc.aio import _server  # isort: skip

__all__ = ["server_of"]


def server_of(
    service: str, handlers: dict[str, grpc.RpcMethodHandler[Any, Any]], arguments: Sequence[tuple[str, int | str]]
) -> grpc.aio.Server:
    server = _Server(arguments)
    server.add_registered_method_handlers(service, handlers)
    return cast(grpc.aio.Server, server)


class _Server(_server.Server):
    def __init__(self, arguments: Sequence[tuple[str, int | str]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = _KnownMethods(self._loop, None, (), (), tuple(arguments), None)


class _KnownMethods(cygrpc.AioServer):  # type: ignore[misc]
    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        if method is None:  # any other method: waited for, and never asked for
            return asyncio.get_running_loop().create_future()
        return super()._make_request_call_future(method)  # type: ignore[no-any-return]
