"""What a consumer's part asks of the consumer that it is a part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from magnetar.exceptions import MagnetarException

if TYPE_CHECKING:
    from magnetar._consumer_part import ConsumerPart

__all__ = ["PartOwner"]


class PartOwner(Protocol):
    def post(self, call: Callable[[], object]) -> None:
        """Has it called on the I/O loop. From any thread."""

    def starts_anew(self, part: ConsumerPart) -> None:
        """All that the part has not acknowledged comes again."""

    def handed_out(self, part: ConsumerPart) -> None:
        """Some more of the part's messages."""

    def active_changed(self, part: ConsumerPart, active: bool) -> None: ...

    def give_acknowledged(self) -> None:
        """Gives each part what the application has acknowledged."""

    def acknowledge_soon(self) -> None:
        """There is something to acknowledge that no application did."""

    def hungry(self) -> None:
        """Somebody waits for a batch, and more has come."""

    def part_failed(self, part: ConsumerPart, error: MagnetarException) -> None:
        """It is over for good."""
