"""How much work the rules may do for one request on schemas.

Definitions come from any client, and the rules are applied in a thread, which can't be stopped from outside. So all
that grows with definitions spends steps from a budget, and ends with an error when the steps are spent, or when the
caller waits no more.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["BYTES_PER_STEP", "MAX_STEPS", "WorkBudget", "too_complex"]

# A step takes a microsecond or less. Two schemas of a hundred fields take some hundred steps.
MAX_STEPS: Final = 2_000_000
# Bytes of JSON that are parsed for one step.
BYTES_PER_STEP: Final = 4


class WorkBudget:
    """Is spent by one thread. `cancel` may be called from another one."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._limit = self._steps = steps
        self._cancelled = False

    def spend(self, steps: int = 1) -> None:
        """Raise `BrokerError` when all is spent, or after `cancel`."""
        self._steps -= steps
        if self._cancelled:
            raise BrokerError(ErrorCode.SERVICE_NOT_READY, "the work on the schema was stopped: retry", "schema")
        if self._steps < 0:
            raise too_complex(f"it takes more than {self._limit} steps")

    def cancel(self) -> None:
        """Let the work end with an error soon."""
        self._cancelled = True

    @property
    def spent(self) -> int:
        return self._limit - self._steps


def too_complex(why: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_ARGUMENT, f"the schemas are too complex to check or compare: {why}", "schema")
