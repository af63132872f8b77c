"""The processes in which clients run, as the rig sees them: one for each role, of which each may have several lives."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ClientProcesses"]


class ClientProcesses(Protocol):
    # publish-1, publish-2, consume-1, consume-2.
    roles: tuple[str, ...]

    async def begin(self, role: str) -> None:
        """Its next life, if it has none; returns when it says that it has begun."""

    async def kill(self, role: str) -> None:
        """And writes `killed` into the rig's history when it is dead."""

    async def pause(self, role: str) -> None: ...

    async def resume(self, role: str) -> None: ...

    async def stop(self) -> None:
        """All producers end what they are about; returns when they have: what is pending has a receipt by then."""

    async def quit(self) -> None:
        """All end, and their processes with them."""

    def close(self) -> None:
        """Kills what is left."""
