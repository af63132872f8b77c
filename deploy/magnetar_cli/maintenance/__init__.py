"""Looking after a cluster that runs: `magnetar bookies …` and `magnetar ledgers …`."""

from __future__ import annotations

__all__: list[str] = []
