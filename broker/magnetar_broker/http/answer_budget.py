"""Limit the memory of large answers that are being made or sent, over all connections.

A client that reads slowly keeps its answer in memory until the time for its exchange is over. So an answer above
`_FREE_BYTES` takes its size from a budget until it is sent, and is refused if the budget is used up. It is sent in
pieces: the server waits for the client between them, and holds one or two at a time. Small answers take nothing: the
maximum number of connections limits them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["AnswerBudget", "BudgetExceeded", "send_answer"]

_FREE_BYTES: Final = 32 * 1024
_PIECE_BYTES: Final = 64 * 1024


class BudgetExceeded(Exception):
    """Too much is being sent: the client may repeat its request."""


class AnswerBudget:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.pending_bytes = 0

    @contextlib.contextmanager
    def hold(self, size: int, *, may_refuse: bool = True) -> Iterator[None]:
        """Count an answer of this size. A single one may be larger than the maximum. Raises BudgetExceeded, unless
        `may_refuse` is false."""
        taken = size if size > _FREE_BYTES else 0
        if may_refuse and taken and self.pending_bytes and self.pending_bytes + taken > self._max_bytes:
            raise BudgetExceeded(
                f"answers of {self.pending_bytes:,} bytes are being sent, and this one has {size:,}: the maximum is "
                f"{self._max_bytes:,} (http_max_pending_answer_bytes): try again later"
            )
        self.pending_bytes += taken
        try:
            yield
        finally:
            self.pending_bytes -= taken

    def limit(self, answer: Response, refuse: Callable[[str], Response]) -> ASGIApp:
        """Return an application that sends the answer, or the one that `refuse` makes of a reason."""

        async def send_limited(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                with self.hold(len(answer.body)):
                    await send_answer(answer, scope, receive, send)
                    return
            except BudgetExceeded as error:
                refused = refuse(str(error))
            await refused(scope, receive, send)

        return send_limited


async def send_answer(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the answer, in pieces if it is large."""
    body = memoryview(answer.body)
    if len(body) <= _PIECE_BYTES or scope["method"] == "HEAD":
        await answer(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": answer.status_code, "headers": answer.raw_headers})
    for at in range(0, len(body), _PIECE_BYTES):
        piece = bytes(body[at : at + _PIECE_BYTES])
        await send({"type": "http.response.body", "body": piece, "more_body": at + len(piece) < len(body)})
