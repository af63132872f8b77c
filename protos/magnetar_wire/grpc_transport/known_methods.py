"""A gRPC server that takes the methods it was told of, and never looks at the names of others.

grpc.aio's server reads the name of every method that comes in as UTF-8, in the task that accepts requests, and when
that raises, the server shuts down: a request of a hundred bytes with a path of 0xFF ends it for everybody. The name of
a method that was registered is not read from the network. So this one never asks the core for a request to any other;
the core keeps those, in bounds of its own, and refuses them after half a minute.

The methods that are overridden are private to grpc.aio, and another version may not have them. They exist from 1.84 on.
A version without them is refused when this module is imported; a version that has them and does not call them is
refused when a server starts: both would take every request, or none, and report nothing. A version that was never
tested is logged. Only servers import this module: a client works with any newer grpcio. A test sends the request
(`tests/faults/test_hostile_grpc_clients.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from magnetar_wire.grpc_transport.quiet_grpc import INSTALL_TESTED, grpc
from magnetar_wire.transport import NotReached

# Not before gRPC is told to be quiet.
from grpc._cython import cygrpc  # isort: skip
from grpc.aio import _server  # isort: skip

__all__ = ["KnownMethodsServer", "check_version"]

_USED: Final = ("_make_request_call_future", "add_registered_method_handlers")
# Accepting begins in the moment in which the server does.
_BEGINS_S: Final = 10.0


_TESTED: Final = ("1.84", "1.85")
_log = logging.getLogger(__name__)


def check_version(server: type, version: str) -> None:
    """Raise ImportError if this grpcio has not what is overridden; log a warning if it was never tested."""
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
    """`grpc.aio`'s server, but for what its core is asked for."""

    def __init__(
        self,
        service: str,
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]],
        arguments: Sequence[tuple[str, int | str]],
    ) -> None:
        # What the library's own does, with a server of ours in it.
        self._loop = asyncio.get_running_loop()
        self._accepting = asyncio.Event()
        self._server = _KnownMethods(self._loop, None, (), (), tuple(arguments), None)
        self._server.others_left_alone = self._accepting.set
        self.add_registered_method_handlers(service, handlers)

    async def start(self) -> None:
        """Raises `NotReached` where gRPC accepts requests in a way that we don't know."""
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
    # Told when the library would ask for any other method.
    others_left_alone: Callable[[], object]

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[Any]:
        if method is None:  # any other method: waited for, and never asked for
            self.others_left_alone()
            return asyncio.get_running_loop().create_future()
        return super()._make_request_call_future(method)  # type: ignore[no-any-return]
