"""`magnetar.aio` under the name that Pulsar's Python client gives its own: `from magnetar.asyncio import Client`.

With it comes every exception. In this package, too, `import asyncio` is Python's module: imports are absolute.
"""

from __future__ import annotations

from magnetar.aio import *  # noqa: F403 (it is that module by another name)
from magnetar.aio import __all__ as _names
from magnetar.exceptions import *  # noqa: F403
from magnetar.exceptions import __all__ as _exceptions

__all__ = sorted({*_names, *_exceptions})
