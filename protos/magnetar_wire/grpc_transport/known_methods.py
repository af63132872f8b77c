"""A gRPC server that accepts registered methods only, and never reads the names of others.

grpc.aio's server decodes the name of every requested method as UTF-8, in the task that accepts requests. If that
raises, the server shuts down: a request of a hundred bytes with a path of 0xFF ends it for all clients. The name of a
registered method is not read from the network. So this server never asks the core for requests to other methods. The
core queues those, within its own limits, and refuses them after half a minute.

The overridden methods are private to grpc.aio, and another version may not have them. They exist since 1.84. A version
without them is refused when this module is imported. A version that has them and does not call them is refused when a
server starts. Otherwise the server would accept all requests, or none, without a sign of it. A version that was never
tested is logged. Only servers import this module: a client works with any newer grpcio. A test sends the request
(`tests/faults/test_hostile_grpc_clients.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from magnetar_wire.grpc_transport.grpc_library import INSTALL_TESTED, grpc
from magnetar_wire.transport import NotReached

# After `grpc_library`, which must be imported first.
from grpc._cython import cygrpc  # isort: skip
from grpc.aio import _server  # isort: skip

__all__ = ["KnownMethodsServer", "check_version"]

_USED: Final = ("_make_request_call_future", "add_registered_method_handlers")
# The server accepts as soon as it has started.
_BEGINS_S: Final = 10.0


_TESTED: Final = ("1.84", "1.85")
_log = logging.getLogger(__name__)


def check_version(server: type, version: str) -> None:
    """Raise ImportError if this grpcio lacks the overridden methods. Log a warning if it was never tested."""
    missing = [name for name in _USED if not hasattr(server, name)]
    if missing:
        raise ImportError(
            f"grpcio {version} has no {' nor '.join(missing)} in its asynchronous server: Magnetar's "
            "servers need them to survive malformed requests"
        )
    if ".".join(version.split(".")[:2]) not in _TESTED:
        _log.warning(
            "Magnetar's servers were tested with grpcio %s, but %s is installed: if a server misbehaves, %s",
            " and ".join(_TESTED),
            version,
            INSTALL_TESTED,
        )


check_version(cygrpc.AioServer, grpc.__version__)


class KnownMethodsServer(_server.Server):
    """`grpc.aio`'s server with a restricted core."""

    def __init__(
        self,
        service: str,
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]],
        arguments: Sequence[tuple[str, int | str]],
    ) -> None:
        # As the library's own constructor, but with our core.
        self._loop = asyncio.get_running_loop()
        self._accepting = asyncio.Event()
        self._server = _KnownMethods(self._loop, None, (), (), tuple(arguments), None)
        self._server.on_other_methods_requested = self._accepting.set
        self.add_registered_method_handlers(service, handlers)

    async def start(self) -> None:
        """Start the server. Raises `NotReached` if gRPC accepts requests in an unknown way."""
        await super().start()
        try:
            await asyncio.wait_for(self._accepting.wait(), _BEGINS_S)
        except TimeoutError:
            await self.stop(None)
            raise NotReached(
                f"grpcio {grpc.__version__} accepts requests in an unknown way, in which malformed ones "
                f"could stop the server: {INSTALL_TESTED}"
            ) from None


class _KnownMethods(cygrpc.AioServer):  # type: ignore[misc]
    # Called when the library requests calls of any other method.
    on_other_methods_requested: Callable[[], object]

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        if method is None:  # a request to any other method: never made, so this waits for ever
            self.on_other_methods_requested()
            return asyncio.get_running_loop().create_future()
        return super()._make_request_call_future(method)  # type: ignore[no-any-return]
