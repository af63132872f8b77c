"""The sessions that brokers serve, by the numbers of their streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from magnetar_broker.server.grpc.consume_stream import ConsumeSession
from magnetar_broker.server.grpc.produce_stream import ProduceSession

__all__ = ["ServedSessions"]

T = TypeVar("T", ProduceSession, ConsumeSession)


class ServedSessions:
    """Keeps each session while it is served, in `watch`."""

    def __init__(self) -> None:
        # Sessions of a killed process stay: their streams' numbers are not used again.
        self.producing: dict[int, ProduceSession] = {}
        self.consuming: dict[int, ConsumeSession] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        with (
            patch.object(ProduceSession, "serve", _watched(ProduceSession.serve, self.producing)),
            patch.object(ConsumeSession, "serve", _watched(ConsumeSession.serve, self.consuming)),
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
