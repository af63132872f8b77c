"""The limit of open files. Each connection is a file, and shells allow a thousand by default."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["raise_open_file_limit"]

_WANTED: Final = 65_536


def raise_open_file_limit() -> None:
    """Raise the limit of the process, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
