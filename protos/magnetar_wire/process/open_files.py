"""A connection is a file, and shells allow a thousand by default; what the system allows at most is enough."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["raise_open_file_limit"]

_WANTED: Final = 65_536


def raise_open_file_limit() -> None:
    """For the whole process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
