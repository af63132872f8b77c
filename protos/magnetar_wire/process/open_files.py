"""A connection is a file, and shells allow a thousand by default; what the system allows at most is enough."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["allow_many_files"]

_WANTED: Final = 65_536


def allow_many_files() -> None:
    """For the whole process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
