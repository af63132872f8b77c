"""What all workers of one client process share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.checker.recorder import Recorder

__all__ = ["Clients"]


@dataclass
class Clients:
    url: str
    # By which brokers tell them of proxies.
    listener_name: str | None
    histories: Path
    seed: str
    # Role and life: `consume-1-3`. It is the history's writer, and part of the name of everything that is opened here.
    writer: str
    recorder: Recorder
    # Producers are to end; and all are.
    stopping: threading.Event = field(default_factory=threading.Event)
    quitting: threading.Event = field(default_factory=threading.Event)
