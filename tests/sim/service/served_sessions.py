"""The sessions that brokers serve, by the numbers of their streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from magnetar_broker.server.grpc.consume_stream import ConsumeStream
from magnetar_broker.server.grpc.produce_stream import ProduceStream

__all__ = ["ServedSessions"]

T = TypeVar("T", ProduceStream, ConsumeStream)


class ServedSessions:
    """Keeps each session while it is served, in `watch`."""

    def __init__(self) -> None:
        # Sessions of a killed process stay: their streams' numbers are not used again.
        self.producing: dict[int, ProduceStream] = {}
        self.consuming: dict[int, ConsumeStream] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        with (
            patch.object(ProduceStream, "serve", _watched(ProduceStream.serve, self.producing)),
            patch.object(ConsumeStream, "serve", _watched(ConsumeStream.serve, self.consuming)),
        ):
            yield


def _watched(serve: Callable[[T], Awaitable[None]], served: dict[int, T]) -> Callable[[T], Any]:
    async def watched(session: T) -> None:
        number: int = session.stream.number  # type: ignore[attr-defined]
        served[number] = session
        try:
            await serve(session)
        finally:
            del served[number]

    return watched
